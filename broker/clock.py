"""The real clock and the real randomness; everything else takes `Clock` and `Ids` from its caller."""

import asyncio
import secrets
import time

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"


class SystemClock:
    """The machine's clock, at a rate.

    A rehearsal gives the daemon and the lab the same anchor and the same rate, so that their clocks agree.

    Args:
        rate: Our seconds per real second.
        anchor_ms: Real time at which our clock and the machine's agree, ms since 1970; now when None.

    Raises:
        ValueError: the rate is not positive.
    """

    def __init__(self, rate: float = 1.0, anchor_ms: int | None = None) -> None:
        if not rate > 0:
            raise ValueError(f"a clock cannot run at rate {rate}")
        self._rate = rate
        self._anchor_ms = _real_ms() if anchor_ms is None else anchor_ms

    @property
    def rate(self) -> float:
        """Our seconds per real second."""
        return self._rate

    @property
    def anchor_ms(self) -> int:
        """Real time at which our clock and the machine's agree."""
        return self._anchor_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970 on our clock."""
        if self._rate == 1:
            return _real_ms()
        return self._anchor_ms + int((_real_ms() - self._anchor_ms) * self._rate)

    async def sleep(self, seconds: float) -> None:
        """Sleep that many seconds of our clock."""
        await asyncio.sleep(seconds / self._rate)


class SystemIds:
    """Names that nobody can guess: the operating system's randomness."""

    def base32(self, length: int) -> str:
        """Lower-case base32 characters, five bits of randomness each."""
        return "".join(secrets.choice(_BASE32) for _ in range(length))


def _real_ms() -> int:
    return time.time_ns() // 1_000_000
