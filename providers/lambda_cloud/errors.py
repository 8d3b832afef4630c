"""What Lambda's API and httpx say, into our closed set of errors. The API's `code` decides, never its `message`."""

import math
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from broker.core.errors import Denied, Invalid, ProviderDown, ProviderError, SettingsError, Throttled
from providers.no_answer import no_answer
from providers.strict_json import loads

# Those that reading can meet, of the API's document 1.8.3. Codes with the prefix ``provider/`` come from upstream.
_DENIED = ("global/invalid-api-key", "global/account-inactive", "global/invalid-address")
_DOWN = ("global/internal-error",)
_SHOWN = 200


@contextmanager
def translated(doing: str, host: str) -> Iterator[None]:
    """Turn whatever httpx raises inside into a `ProviderError`.

    Args:
        doing: For the text: ``reading instance types``.
        host: Who is asked.
    """
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ProviderDown(f"lambda: {doing}: {no_answer(error, host)}") from error
    except SettingsError as error:
        raise Invalid(f"lambda: {doing}: {error}") from error
    except ssl.SSLError as error:
        raise Invalid(f"lambda: {doing}: ca_file holds no usable certificate: {error}") from error


def document_of(status: int, headers: Mapping[str, str], body: bytes, doing: str) -> Any:
    """What lies under ``data`` in a good reply.

    Raises:
        Throttled: too many requests, with the time to wait where it is told.
        Denied: the key or the account is not accepted.
        ProviderDown: the API is not well, or what came is not what its document says.
        Invalid: the request is refused.
    """
    text = f"lambda: {doing}"
    document, why = None, ""
    try:
        document = loads(body)
    except ValueError as error:
        why = f" ({error})"
    if status != 200:
        raise _refusal(status, headers, document, text)
    if not isinstance(document, dict) or "data" not in document:
        kind = headers.get("content-type", "no content type")
        raise ProviderDown(f"{text}: the reply is not the API's JSON but {kind}: {_start(body)}{why}")
    return document["data"]


def _refusal(status: int, headers: Mapping[str, str], document: Any, text: str) -> ProviderError:
    error = document.get("error") if isinstance(document, dict) else None
    told = error if isinstance(error, dict) else {}
    code = str(told.get("code", ""))
    why = " ".join(str(told[name]) for name in ("message", "suggestion") if told.get(name))
    text = f"{text}: HTTP {status} {code}: {why[:_SHOWN]}".rstrip(": ")
    if status == 429:
        return Throttled(text, retry_after_s(headers))
    if code in _DENIED:
        return Denied(text)
    if code in _DOWN or code.startswith("provider/"):
        return ProviderDown(text)
    if status in (401, 403):
        return Denied(text)
    if status >= 500 or status == 408:
        return ProviderDown(text)
    if 300 <= status < 400:
        # Followed, the key would be left out or go to a stranger.
        return Invalid(f"{text}: the API has moved to {headers.get('location', 'nowhere')}; set endpoint")
    return Invalid(text)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that ``Retry-After`` asks for, be it a number or a date (RFC 9110, 10.2.3); None when it says nothing."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            until, now = parsedate_to_datetime(value), parsedate_to_datetime(headers.get("date", ""))
            seconds = (until - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _start(body: bytes) -> str:
    return repr(body[:60].decode("utf-8", "replace"))
