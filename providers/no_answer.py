"""Why nobody has answered, in a line for a person. The vendors' clients print their own objects, nested four deep."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

_LONGEST = 300

# Of the clients' texts and of the operating systems' beneath them; the first that is found is the cause.
_CAUSES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(signs, re.IGNORECASE), words)
    for signs, words in (
        (r"407 proxy authentication required", "the proxy wants a name and a password"),
        (
            r"NameResolutionError|name or service not known|name resolution|failed to resolve|nodename nor servname|"
            r"getaddrinfo failed|no address associated",
            "name not known",
        ),
        (r"hostname mismatch|doesn't match|not valid for", "its certificate is another host's"),
        (r"certificate has expired", "its certificate has expired"),
        (r"CERTIFICATE_VERIFY_FAILED", "certificate verify failed: no CA that we trust has signed it"),
        (r"connection refused", "connection refused"),
        (r"network is unreachable|no route to host", "there is no way to it from here"),
        (r"connection reset|remote end closed|server disconnected|connection aborted", "it broke the connection off"),
        (r"no whole answer within [\d.]+ s", ""),  # our own words
        (r"timed out|timeout", "timed out"),
    )
)  # fmt: skip
_HOST = re.compile(r"host='([^']+)', port=(\d+)")
_URL = re.compile(r"https?://[^\s\"')]+")


def no_answer(error: BaseException, host: str | None = None) -> str:
    """``no answer from compute.googleapis.com: name not known``, with the proxy's name where one was asked.

    Args:
        error: What a client has raised; its causes are read, too.
        host: Who was asked, where the caller knows; else as the error says.
    """
    text = " | ".join(_texts(error))
    host = host or _host_in(text)
    proxy = None if host is None else proxy_to(host)
    cause = next((words or found[0] for signs, words in _CAUSES if (found := signs.search(text))), None)
    if cause is None:
        cause = str(error).strip().partition("\n")[0][:_LONGEST] or type(error).__name__
    if proxy is not None and host == proxy:  # some clients name nobody else
        return f"no answer from the proxy {proxy}: {cause}"
    asked = "" if host is None else f" from {host}"
    through = "" if proxy is None else f" through the proxy {proxy}"
    return f"no answer{asked}{through}: {cause}"


def proxy_to(host: str) -> str | None:
    """The proxy that the environment names for an HTTPS host, as host and port, without what it is logged in with."""
    proxies = getproxies()
    named = proxies.get("https") or proxies.get("all")
    if not named or proxy_bypass(host):
        return None
    return (named.rpartition("@")[2] if "@" in named else urlsplit(named).netloc or named).rstrip("/")


def _texts(error: BaseException) -> Iterator[str]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield f"{type(cause).__name__}: {cause}"
        # botocore keeps what it met beside its text.
        beside = getattr(cause, "kwargs", None)
        if isinstance(beside, dict) and "error" in beside:
            yield str(beside["error"])
        cause = cause.__cause__ or cause.__context__


def _host_in(text: str) -> str | None:
    if found := _HOST.search(text):
        return found[1] if found[2] in ("443", "80") else f"{found[1]}:{found[2]}"
    found = _URL.search(text)
    try:
        parts = urlsplit(found[0]) if found else None
        return parts.netloc.rpartition("@")[2] or None if parts else None
    except ValueError:
        return None
