"""One GET over HTTP that costs no more than it may: one deadline for all of it, one bound for its bytes.

httpx bounds each read and not their sum, so a reply that drips, be it in its headers, would hold a poll up for ever; and
it unpacks whatever comes, so that a few kilobytes become gigabytes. Here the whole call is a task that is cancelled at its
deadline; gzip is the only packing that is asked for and taken, and it is unpacked no further than the bound.
"""

import asyncio
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

_GZIP = 16 + zlib.MAX_WBITS


class Unreadable(httpx.HTTPError):
    """A reply that is not read to its end: too large, packed in another way, or broken off."""


@dataclass(frozen=True)
class Bounds:
    """What one call may cost.

    Attributes:
        connect_s: For a connection, real seconds.
        whole_s: For everything, from the first byte out to the last one in, real seconds.
        bytes: Of the body, unpacked.
    """

    connect_s: float
    whole_s: float
    bytes: int


@dataclass(frozen=True)
class Reply:
    """What came."""

    status: int
    headers: httpx.Headers
    body: bytes


def bounded_get(
    url: httpx.URL | str,
    trusted: ssl.SSLContext | bool,
    bounds: Bounds,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """The reply to one GET, whatever its status; redirects are not followed. Blocks; not for an event loop's thread.

    Args:
        trusted: As httpx takes it for ``verify``.

    Raises:
        httpx.HTTPError, httpx.InvalidURL: no whole reply.
        Unreadable: see there.
    """
    return asyncio.run(_get(url, trusted, bounds, {**(headers or {}), "Accept-Encoding": "gzip"}))


async def _get(
    url: httpx.URL | str, trusted: ssl.SSLContext | bool, bounds: Bounds, headers: Mapping[str, str]
) -> Reply:
    times = httpx.Timeout(None, connect=bounds.connect_s)
    try:
        async with (
            asyncio.timeout(bounds.whole_s),
            httpx.AsyncClient(verify=trusted, timeout=times, follow_redirects=False) as client,
            client.stream("GET", url, headers=headers) as reply,
        ):
            return Reply(reply.status_code, reply.headers, await _body(reply, bounds.bytes))
    except TimeoutError:
        raise httpx.ReadTimeout(f"no whole answer within {bounds.whole_s:g} s") from None


async def _body(reply: httpx.Response, most: int) -> bytes:
    packing = reply.headers.get("Content-Encoding", "identity").strip().lower()
    if packing not in ("identity", "gzip"):
        raise Unreadable(f"the reply is packed as {packing[:40]}, which nobody asked for")
    unpacker = zlib.decompressobj(_GZIP) if packing == "gzip" else None
    body, came = bytearray(), 0
    async for piece in reply.aiter_raw():
        came += len(piece)
        try:
            body += piece if unpacker is None else unpacker.decompress(piece, most + 1 - len(body))
        except zlib.error as error:
            raise Unreadable(f"the reply is no gzip: {error}") from error
        if max(came, len(body)) > most:
            raise Unreadable(f"the reply is larger than {most >> 20} MiB")
    if unpacker is not None and not unpacker.eof:
        raise Unreadable("the reply ends in the middle")
    return bytes(body)
