"""A cloud's price list as it was read, poll by poll."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TypeVar

from broker.core.offer import Market, Offer, RawQuote

T = TypeVar("T")


@dataclass
class Series:
    """One offer.

    Attributes:
        texts: What each poll read; None where the list did not have it.
        since_ms: By the cloud's word, since when that is the price; empty where the cloud does not say.
    """

    offer: Offer
    texts: list[str | None]
    since_ms: list[int] = field(default_factory=list)

    def readings(self) -> Iterator[tuple[int, Decimal]]:
        """Poll and price, of those polls that had a number."""
        for poll, text in enumerate(self.texts):
            if text is not None and (price := Decimal(text)).is_finite():
                yield poll, price


@dataclass
class Recording:
    """All offers of one cloud.

    Attributes:
        polls_ms: When each poll began.
        series: By offer key.
    """

    cloud: str
    source: str
    polls_ms: list[int]
    series: dict[str, Series]

    def polls(self) -> Iterator[tuple[int, list[RawQuote]]]:
        """When a poll began, and what it read."""
        before: dict[str, RawQuote] = {}
        for poll, at_ms in enumerate(self.polls_ms):
            raws = []
            for key, series in self.series.items():
                text = series.texts[poll]
                if text is None:
                    continue
                since_ms = series.since_ms[poll] if series.since_ms else None
                raw = before.get(key)
                if raw is None or raw.price_text is not text or raw.effective_at_ms != since_ms:
                    raw = before[key] = RawQuote(series.offer, text, "USD", since_ms, self.source)
                raws.append(raw)
            yield at_ms, raws

    def with_drop(self, key: str, from_poll: int, share: float) -> "Recording":
        """The same, with one offer cheaper in every reading from that poll on, by a share of its first price."""
        series = self.series[key]
        off = Decimal(str(share)) * next(series.readings())[1]

        def dropped(text: str) -> str:
            # A licence costs on demand what it has cost; on spot it is a share of the price.
            price = Decimal(text)
            is_spot = series.offer.market is Market.SPOT
            lower = price * (1 - Decimal(str(share))) if is_spot else price - off
            return str(lower.quantize(Decimal("1e-6")))

        texts = [
            text if text is None or poll < from_poll else dropped(text)
            for poll, text in enumerate(series.texts)
        ]
        since = series.since_ms[:from_poll] + [
            max(ms, self.polls_ms[from_poll]) for ms in series.since_ms[from_poll:]
        ]
        return replace(self, series=self.series | {key: Series(series.offer, texts, since)})

    def read_again(self, every_ms: int, for_ms: int) -> "Recording":
        """The same lists, each read again and again for so long, unless there is the next one."""
        ends = [*self.polls_ms[1:], self.polls_ms[-1] + 1]
        polls = [
            range(at_ms, min(end_ms, at_ms + for_ms), every_ms)
            for at_ms, end_ms in zip(self.polls_ms, ends, strict=True)
        ]
        counts = [len(times) for times in polls]

        def again(values: list[T]) -> list[T]:
            return [value for value, count in zip(values, counts, strict=False) for _ in range(count)]

        series = {
            key: Series(one.offer, again(one.texts), again(one.since_ms)) for key, one in self.series.items()
        }
        return replace(self, polls_ms=[at_ms for times in polls for at_ms in times], series=series)

    def begun(self) -> "Recording":
        """Without the polls before the first reading."""
        first = min(next(series.readings())[0] for series in self.series.values())
        series = {
            key: Series(one.offer, one.texts[first:], one.since_ms[first:])
            for key, one in self.series.items()
        }
        return replace(self, polls_ms=self.polls_ms[first:], series=series)

    def part(self, polls: int, keep: str = "") -> "Recording":
        """The first polls, of the offers whose key has that text."""
        series = {
            key: Series(one.offer, one.texts[:polls], one.since_ms[:polls])
            for key, one in self.series.items()
            if keep in key
        }
        return replace(self, polls_ms=self.polls_ms[:polls], series=series)
