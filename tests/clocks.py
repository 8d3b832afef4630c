"""Time and names that a test decides."""

from collections.abc import Iterator
from itertools import count

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"

START_MS = 1_780_000_000_000  # 2026-05-28T20:26:40Z


class ManualClock:
    """Stands still until the test moves it. `sleep` moves it, so that nothing ever waits."""

    def __init__(self, now_ms: int = START_MS, rate: float = 1.0) -> None:
        self._now_ms = now_ms
        self._rate = rate

    @property
    def rate(self) -> float:
        return self._rate

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, seconds: float) -> int:
        """Move on; returns the new time in ms."""
        assert seconds >= 0, seconds
        self._now_ms += round(seconds * 1000)
        return self._now_ms

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


class CountingIds:
    """The same names in every run: a counter in base32."""

    def __init__(self, start: int = 1) -> None:
        self._numbers: Iterator[int] = count(start)

    def base32(self, length: int) -> str:
        number, text = next(self._numbers), ""
        for _ in range(length):
            number, digit = divmod(number, 32)
            text = _BASE32[digit] + text
        return text
