"""What EC2 and botocore say, into our closed set of errors.

Two questions decide: was the request sent, and would it have changed anything? A create whose reply is missing is
`UnknownOutcome`; everything else that got no usable answer is `ProviderDown` and may simply be asked again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from broker.core.errors import (
    Denied,
    Invalid,
    OutOfCapacity,
    OutOfQuota,
    ProviderDown,
    ProviderError,
    Throttled,
    UnknownOutcome,
)
from providers.no_answer import no_answer

# Codes: EC2 API reference "Error codes"; the capacity set is the one that AWS ParallelCluster fails over on.
# InsufficientInstanceCapacity comes as HTTP 500: the code must be looked at before the status.
_CAPACITY = {
    "InsufficientInstanceCapacity": "zone",
    "InsufficientHostCapacity": "zone",
    "InsufficientReservedInstanceCapacity": "zone",
    "InsufficientCapacity": "zone",
    "UnfulfillableCapacity": "zone",
    "Unsupported": "zone",  # this type is not sold in this zone
    "SpotMaxPriceTooLow": "zone",
}
_QUOTA = {
    "VcpuLimitExceeded": "region",
    "InstanceLimitExceeded": "region",
    "MaxSpotInstanceCountExceeded": "region",
    "VolumeLimitExceeded": "region",
    "InsufficientFreeAddressesInSubnet": "zone",
    "NetworkInterfaceLimitExceeded": "region",
}
_THROTTLED = {
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
    "EC2ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
}
_DENIED = {
    "UnauthorizedOperation",
    "AuthFailure",
    "AccessDenied",
    "AccessDeniedException",
    "Blocked",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "OptInRequired",
    "PendingVerification",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
# The token has made an instance already, with other parameters: an earlier send of ours, before an upgrade or a change
# of settings. So there is one to be looked up.
_TAKEN = {"IdempotentParameterMismatch"}

_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.ProfileNotFound,
    boto.TokenRetrievalError,
    boto.SSOError,
    boto.NoAuthTokenError,
)
_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN too where they are for a time) in the daemon's "
    "environment, name a profile in clouds.aws.profile, or run on an instance with a role"
)
# Raised before a byte of the request has left: no route, no listener, no TLS.
_NOT_SENT = (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError)


@contextmanager
def translated(doing: str, *, creating: bool = False) -> Iterator[None]:
    """Turn whatever botocore raises inside into a `ProviderError`.

    Args:
        doing: For the text: ``renting p5.48xlarge in use1-az6``.
        creating: A missing reply is then an unknown outcome.
    """
    try:
        yield
    except boto.ClientError as error:
        raise from_reply(error, doing, creating=creating) from error
    except _NO_CREDENTIALS as error:
        raise Denied(f"aws: {doing}: {error}; {_CREDENTIALS}") from error
    except _NOT_SENT as error:
        raise ProviderDown(f"aws: {doing}: {no_answer(error)}") from error
    except (boto.ParamValidationError, boto.NoRegionError, boto.UnknownServiceError) as error:
        raise Invalid(f"aws: {doing}: {error}") from error
    except boto.SSLError as error:
        # A certificate is judged before anything is sent; any other TLS failure may come while the reply is read.
        sent = "CERTIFICATE_VERIFY_FAILED" not in str(error)
        raise _no_reply(f"aws: {doing}: {error}", creating and sent) from error
    except (boto.BotoCoreError, ResponseParserError) as error:
        # The request may have arrived: no reply, half a reply, or one that cannot be read.
        raise _no_reply(f"aws: {doing}: {error or type(error).__name__}", creating) from error
    except (KeyError, ValueError) as error:
        # A reply without what its document promises, or with a text that is none of its kind.
        raise _no_reply(f"aws: {doing}: unreadable reply: {error!r}", creating) from error


def from_reply(error: boto.ClientError, doing: str, *, creating: bool = False) -> ProviderError:
    """The error for a reply that is one."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    meta = error.response.get("ResponseMetadata", {})
    status = int(meta.get("HTTPStatusCode", 0))
    text = f"aws: {doing}: {code}: {error.response.get('Error', {}).get('Message', '')}"
    if code in _CAPACITY:
        return OutOfCapacity(text, _CAPACITY[code])
    if code in _QUOTA:
        return OutOfQuota(text, _QUOTA[code])
    if code in _THROTTLED or status == 429:
        return Throttled(text, _retry_after_s(meta))
    if code in _DENIED or status in (401, 403):
        return Denied(text)
    if status >= 500 or code in _TAKEN:
        return _no_reply(text, creating)
    return Invalid(text)


def _no_reply(text: str, creating: bool) -> ProviderError:
    return UnknownOutcome(text) if creating else ProviderDown(text)


def _retry_after_s(meta: Mapping[str, Any]) -> float | None:
    headers = meta.get("HTTPHeaders")
    value = headers.get("retry-after") if isinstance(headers, dict) else None
    try:
        return float(str(value))
    except ValueError:
        return None
