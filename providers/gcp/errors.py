"""What Compute Engine and its client library say, into our closed set of errors.

Refusals come in two ways: as the reply to the call (quota, rights, bad request), and as the error of the operation
that the call began (stock-outs, mostly). Scopes follow what other schedulers block after each code.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.protobuf.json_format import ParseError  # type: ignore[import-untyped]
from requests import exceptions as http

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
from providers.gcp.settings import KEY_FILE, missing_key_file
from providers.no_answer import no_answer

_CAPACITY = {
    "ZONE_RESOURCE_POOL_EXHAUSTED": "zone",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": "zone",
    "GPU_STOCKOUT": "zone",
    "STOCKOUT": "zone",
    "REGION_RESOURCE_POOL_EXHAUSTED": "region",
    "UNSUPPORTED_OPERATION": "zone",  # seen when a Spot VM is preempted while it is being created
    "resourcePoolExhausted": "zone",
}
_QUOTA = {"QUOTA_EXCEEDED", "quotaExceeded", "QUOTA_LIMIT_EXCEEDED"}
_THROTTLED = {
    "rateLimitExceeded",
    "userRateLimitExceeded",
    "RATE_LIMIT_EXCEEDED",
    "RESOURCE_OPERATION_RATE_EXCEEDED",
    "concurrentOperationsQuotaExceeded",
}
_UNDECIDED = {"RESOURCE_NOT_READY", "INTERNAL_ERROR", "backendError", "internalError"}


@dataclass(frozen=True)
class Refusal:
    """One entry of an error list: a code or reason, and the text for people."""

    code: str
    message: str


@contextmanager
def translated(doing: str, *, creating: bool = False) -> Iterator[None]:
    """Turn whatever the client library raises inside into a `ProviderError`.

    Args:
        doing: For the text: ``renting a3-highgpu-8g in us-central1-a``.
        creating: A missing reply is then an unknown outcome.
    """
    try:
        yield
    except api.GoogleAPICallError as error:
        raise from_reply(error, doing, creating=creating) from error
    except auth.TransportError as error:
        raise ProviderDown(f"gcp: {doing}: no access token: {no_answer(error)}") from error
    except auth.RefreshError as error:
        if getattr(error, "retryable", False):
            raise ProviderDown(f"gcp: {doing}: no access token: {no_answer(error)}") from error
        raise Denied(f"gcp: {doing}: no access token: {error}") from error
    except auth.DefaultCredentialsError as error:
        raise Denied(f"gcp: {doing}: {_without_credentials(error)}") from error
    except auth.GoogleAuthError as error:
        raise Denied(f"gcp: {doing}: {error}") from error
    except http.RequestException as error:
        text = f"gcp: {doing}: {no_answer(error)}"
        if _was_not_sent(error):
            raise ProviderDown(text) from error
        raise no_reply(text, creating) from error
    except (api.RetryError, ParseError, ValueError) as error:
        raise no_reply(f"gcp: {doing}: unreadable reply: {error}", creating) from error


def from_reply(error: api.GoogleAPICallError, doing: str, *, creating: bool = False) -> ProviderError:
    """The error for a reply that is one."""
    status = int(error.code or 0)
    text = f"gcp: {doing}: {error.message}"
    entries = [entry for entry in error.errors if isinstance(entry, dict)]
    refusals = [Refusal(str(entry.get("reason", "")), str(entry.get("message", ""))) for entry in entries]
    known = classify(refusals, text)
    if isinstance(known, Throttled):
        return Throttled(text, _retry_after_s(error))
    if known is not None:
        return known
    if status == 429:
        return Throttled(text, _retry_after_s(error))
    if status in (401, 403):
        return Denied(text)
    if status >= 500 or status == 0 or status == 408:
        return no_reply(text, creating)
    return Invalid(text)


def from_operation(refusals: Sequence[Refusal], doing: str) -> ProviderError:
    """The error of an operation that has ended in one. It is decided: nothing was created."""
    text = f"gcp: {doing}: " + "; ".join(f"{refusal.code}: {refusal.message}" for refusal in refusals)
    known = classify(refusals, text)
    if known is not None:
        return known
    if any(refusal.code in _UNDECIDED for refusal in refusals):
        return UnknownOutcome(text)
    return Invalid(text)


def classify(refusals: Sequence[Refusal], text: str) -> ProviderError | None:
    """The error that the codes name, or None when they name none of ours."""
    for refusal in refusals:
        if refusal.code in _CAPACITY:
            return OutOfCapacity(text, _CAPACITY[refusal.code])
        if refusal.code in _QUOTA:
            # One quota counts the whole project; every other one is of a region.
            everywhere = "GPUS_ALL_REGIONS" in refusal.message
            return OutOfQuota(text, "cloud" if everywhere else "region")
        if refusal.code in _THROTTLED:
            return Throttled(text)
    return None


def no_reply(text: str, creating: bool) -> ProviderError:
    """The request may have arrived."""
    return UnknownOutcome(text) if creating else ProviderDown(text)


def _without_credentials(error: Exception) -> str:
    if missing := missing_key_file():
        return missing
    what = str(error).partition(". ")[0].rstrip(".")
    return (
        f"{what}; name the key of a service account in clouds.gcp.credentials_file or in {KEY_FILE}; on a machine of "
        "Google Cloud its own service account will do, on your own `gcloud auth application-default login`"
    )


def _was_not_sent(error: http.RequestException) -> bool:
    """Whether it failed before a byte of the request left: no route, no listener, no certificate to trust."""
    if isinstance(error, http.ConnectTimeout | http.ProxyError | http.InvalidURL):
        return True
    text = repr(error)
    return isinstance(error, http.ConnectionError) and any(
        sign in text for sign in ("NewConnectionError", "NameResolutionError", "CERTIFICATE_VERIFY_FAILED")
    )


def _retry_after_s(error: api.GoogleAPICallError) -> float | None:
    headers = getattr(error.response, "headers", None) or {}
    try:
        return float(headers.get("Retry-After", ""))
    except ValueError:
        return None
