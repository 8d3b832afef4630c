"""What the price list, the resource manager and Entra ID say, into our closed set of errors.

azure-core names exceptions by status (any 409 is a `ResourceExistsError`), so codes and statuses decide, never types.
Everything here only reads: what got no usable answer may simply be asked again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
from azure.core import exceptions as azure

from broker.core.errors import Denied, Invalid, ProviderDown, ProviderError, Throttled
from providers.bounded_get import Reply
from providers.no_answer import no_answer

# Codes as the resource manager and Resource Graph send them.
_THROTTLED = {
    "TooManyRequests",
    "RateLimiting",
    "SubscriptionRequestsThrottled",
    "OperationNotAllowedDueToThrottling",
}
_DENIED = {
    "AuthenticationFailed",
    "AuthorizationFailed",
    "DisabledSubscription",
    "ExpiredAuthenticationToken",
    "InvalidAuthenticationToken",
    "InvalidAuthenticationTokenTenant",
    "LinkedAuthorizationFailed",
    "ReadOnlyDisabledSubscription",
    "SubscriptionNotFound",
}
_SHORT = 300


@contextmanager
def translated(doing: str, host: str) -> Iterator[None]:
    """Turn whatever an Azure client raises inside into a `ProviderError`.

    Args:
        doing: For the text: ``reading quotas in eastus``.
        host: Who was asked, for the text of a missing answer.
    """
    try:
        yield
    except azure.ClientAuthenticationError as error:
        raise _refused(error, doing) from error
    except azure.HttpResponseError as error:
        raise from_reply(error, doing) from error
    except azure.AzureError as error:
        raise ProviderDown(f"azure: {doing}: {no_answer(error, host)}") from error
    except ValueError as error:
        raise ProviderDown(f"azure: {doing}: unreadable reply from {host}: {_first_line(error)}") from error


@contextmanager
def translated_http(doing: str, host: str) -> Iterator[None]:
    """The same for httpx."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ProviderDown(f"azure: {doing}: {no_answer(error, host)}") from error


def from_reply(error: Any, doing: str) -> ProviderError:
    """The error for a reply that is one. `error`: azure-core's."""
    status = int(error.status_code or 0)
    code = str(getattr(error.error, "code", None) or "")
    headers = error.response.headers if error.response is not None else {}
    text = f"azure: {doing}: {code or status}: {_first_line(getattr(error.error, 'message', None) or error.message)}"
    if code in _THROTTLED or status == 429:
        return Throttled(text, retry_after_s(headers))
    if code in _DENIED or status in (401, 403):
        return Denied(f"{text}; see `az account show`, and whether the role assignment still stands")
    if status >= 500 or status in (0, 408):
        return ProviderDown(text)
    return Invalid(text)


def from_status(reply: Reply, doing: str) -> ProviderError:
    """The error for a reply of the price list that is not 200."""
    said = _first_line(reply.body.decode("utf-8", "replace"))
    text = f"azure: {doing}: HTTP {reply.status}: {said}"
    if reply.status == 429:
        return Throttled(text, retry_after_s(reply.headers))
    if reply.status in (401, 403):
        return Denied(f"{text}; the price list asks for no credentials, so something in between refuses")
    if "location" in reply.headers and 300 <= reply.status < 400:
        # The list's own links are checked; a redirect would not be.
        return ProviderDown(f"{text}; redirected to {reply.headers['location']:.200}, which is not followed")
    if reply.status >= 500 or reply.status == 408:
        return ProviderDown(text)
    return Invalid(text)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, as ``Retry-After`` or Resource Graph's own header say; None when they do not."""
    given = headers.get("retry-after")
    if given is not None and given.strip().isascii() and given.strip().isdigit():
        return float(given)
    hours, _, rest = (headers.get("x-ms-user-quota-resets-after") or "").partition(":")
    minutes, _, seconds = rest.partition(":")
    try:
        return float(hours) * 3600 + float(minutes) * 60 + float(seconds)
    except ValueError:
        return None


def _refused(error: Any, doing: str) -> ProviderError:
    """No token, or one that is not taken. azure-identity wraps a broken connection in the same type."""
    if error.response is not None and error.status_code not in (400, 401, 403):
        return from_reply(error, doing)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError | azure.ServiceRequestError | azure.ServiceResponseError):
            return ProviderDown(f"azure: {doing}: no access token: {no_answer(error)}")
        cause = cause.__cause__ or cause.__context__
    return Denied(
        f"azure: {doing}: {_first_line(error)}; check tenant_id, client_id and the secret's date in the app "
        "registration, or run `az login`"
    )


def _first_line(error: object) -> str:
    return str(error).strip().partition("\n")[0][:_SHORT]
