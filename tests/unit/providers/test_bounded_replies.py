"""What a reply may cost: bytes packed and unpacked, and time, whatever a server sends instead of prices."""

import gzip
import json
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

import pytest
import zstandard

from broker.core.errors import ProviderDown
from broker.core.ports import PriceSource
from providers.registry import open_source
from tests.clocks import ManualClock

_MIB = 1 << 20
_ALLOWED_PEAK = 40 * _MIB  # a page may have 16 MiB, and is held twice while it grows
_TYPES = json.dumps({"data": {}}).encode()
_PAGE = json.dumps({"Items": [], "NextPageLink": None, "Count": 0}).encode()


class Wire:
    """One server on 127.0.0.1 that writes what a test says, piece by piece, to whoever connects.

    Attributes:
        sent: Bytes that were written.
        asked: The head of each request.
    """

    def __init__(self, pieces: Callable[[], Iterable[bytes]], pause_s: float) -> None:
        self.sent = 0
        self.asked: list[bytes] = []
        self._pieces = pieces
        self._pause_s = pause_s
        self._over = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End every connection."""
        self._over.set()
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                self.asked.append(connection.recv(65536))
                for piece in self._pieces():
                    connection.sendall(piece)
                    self.sent += len(piece)
                    if self._over.wait(self._pause_s):
                        return
            except OSError:
                return  # the client has had enough


Serve = Callable[..., Wire]


@pytest.fixture
def serve() -> Iterator[Serve]:
    wires: list[Wire] = []

    def start(pieces: Callable[[], Iterable[bytes]], pause_s: float = 0.0) -> Wire:
        wires.append(Wire(pieces, pause_s))
        return wires[-1]

    yield start
    for wire in wires:
        wire.close()


@pytest.fixture(params=["azure", "lambda"])
def opened(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PriceSource]:
    """A source of prices at an address, with so much time for one call."""
    monkeypatch.setenv("LAMBDA_API_KEY", "key")

    def at(url: str, seconds: float = 20.0) -> PriceSource:
        options: dict[str, dict[str, Any]] = {
            "azure": {"regions": ["eastus"], "endpoint_retail": url, "read_timeout_s": seconds},
            "lambda": {"endpoint": url, "timeout_s": seconds},
        }
        return open_source(request.param, options[request.param], ManualClock(), "broker-lab1")

    return at


def head(*lines: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", "Connection: close", *lines, "", ""]).encode()


def packed(encoding: str, body: bytes) -> Callable[[], Iterable[bytes]]:
    return lambda: [head(f"Content-Encoding: {encoding}", f"Content-Length: {len(body)}"), body]


BOMB = gzip.compress(bytes(64 * _MIB), 1)


@pytest.mark.parametrize(
    ("encoding", "body", "words"),
    [
        ("gzip", BOMB, "larger than 16 MiB"),
        ("gzip, gzip", gzip.compress(BOMB), "gzip, gzip"),
        ("zstd", zstandard.ZstdCompressor().compress(bytes(64 * _MIB)), "zstd"),
    ],
)
def test_a_small_reply_that_unpacks_into_a_large_one_is_refused_before_it_is_large(
    serve: Serve, opened: Callable[..., PriceSource], encoding: str, body: bytes, words: str
) -> None:
    assert len(body) < _MIB
    source = opened(serve(packed(encoding, body)).url)
    tracemalloc.start()
    try:
        with pytest.raises(ProviderDown, match=words):
            list(source.quotes())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < _ALLOWED_PEAK


def test_nothing_is_asked_for_that_is_not_unpacked_with_a_bound(
    serve: Serve, opened: Callable[..., PriceSource]
) -> None:
    wire = serve(lambda: [head(), b"{}"])
    with pytest.raises(ProviderDown):
        list(opened(wire.url).quotes())
    (asked,) = wire.asked
    encodings = [line for line in asked.lower().split(b"\r\n") if line.startswith(b"accept-encoding:")]
    assert encodings == [b"accept-encoding: gzip"]


def test_a_reply_without_end_is_not_read_to_its_end(serve: Serve, opened: Callable[..., PriceSource]) -> None:
    wire = serve(lambda: (head(), *repeat(bytes(65536), 4000)))
    with pytest.raises(ProviderDown, match="larger than 16 MiB"):
        list(opened(wire.url).quotes())
    assert wire.sent < 64 * _MIB, "what it sent beyond the bound lies in buffers of the system"


def test_gzip_that_ends_in_the_middle_is_no_answer(serve: Serve, opened: Callable[..., PriceSource]) -> None:
    for whole in (_TYPES, _PAGE):
        source = opened(serve(packed("gzip", gzip.compress(whole)[:-4])).url)
        with pytest.raises(ProviderDown, match="ends in the middle"):
            list(source.quotes())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"data": {"a": 1, "a": 2}, "Items": [{"retailPrice": 1, "retailPrice": 2}]}', "twice"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_json_that_says_two_things_or_has_no_bottom_is_no_answer(
    serve: Serve, opened: Callable[..., PriceSource], body: bytes, words: str
) -> None:
    with pytest.raises(ProviderDown, match=words):
        list(opened(serve(lambda: [head(), body]).url).quotes())


@pytest.mark.parametrize("dripped", ["headers", "body"])
def test_a_reply_that_drips_ends_with_its_time(
    serve: Serve, opened: Callable[..., PriceSource], dripped: str
) -> None:
    """Each byte comes well within the time of one read: only their sum is too long."""
    drops = [bytes([byte]) for byte in b"X-Slow: " + b"y" * 400]
    start = head()[:-2]
    answer = [start, *drops] if dripped == "headers" else [start + b"\r\n", *drops]
    wire = serve(lambda: answer, pause_s=0.1)
    with pytest.raises(ProviderDown, match=r"no whole answer within 0\.6 s"):
        list(opened(wire.url, seconds=0.6).quotes())
    assert wire.sent < len(start) + 100
