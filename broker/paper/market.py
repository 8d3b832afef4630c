"""A market that a job on paper lives in: what polls see of it, and what is true of it."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from broker.core.offer import Offer, Quote
from broker.paper.series import Track

SOURCE: Final = "paper:series"


class PaperMarket(Protocol):
    """What the loop asks. Only `stock`, `next_shortage_ms` and `points` know more than a decision may see."""

    def next_poll_ms(self, after_ms: int) -> int | None:
        """The next moment at which prices are seen; None when there is none any more."""

    def quotes(self, now_ms: int) -> Mapping[str, Quote]:
        """By offer key: what polls up to now have seen, with its age."""

    def spot_failure_share(self, now_ms: int) -> float | None:
        """Share of the spot launches of the last hour that failed; None leaves it to the job's own."""

    def spot_life_s(self, now_ms: int) -> Mapping[str, float]:
        """Expected life by ``cloud/zone/instance_type``, instead of what the job has seen of it itself."""

    def stock(self, offer: Offer, now_ms: int) -> int | None:
        """Nodes of ours that can be had there; None is no bound."""

    def next_shortage_ms(self, offer: Offer, nodes: int, after_ms: int) -> int | None:
        """When fewer than `nodes` can be had there for the first time; None for never."""

    def points(self, offer: Offer) -> Sequence[Quote]:
        """Every true price, oldest first, for the bill."""


@dataclass(frozen=True)
class OfferSeries:
    """One offer over time.

    Attributes:
        prices: Micro-USD an hour of an instance; None while no poll sees it.
        stock: Nodes of ours that its cloud lets us have; None is no bound.
    """

    offer: Offer
    prices: Track[int | None]
    stock: Track[int] | None = None


class SeriesMarket:
    """Series as a market that is polled at an even pace, the first time at its start."""

    def __init__(
        self,
        series: Mapping[str, OfferSeries],
        from_ms: int,
        poll_ms: int,
        failures: Track[float] | None = None,
        lives_s: Mapping[str, float] | None = None,
    ) -> None:
        self._series = series
        self._from_ms = from_ms
        self._poll_ms = poll_ms
        self._failures = failures
        self._lives_s = lives_s or {}
        self._last: tuple[int, Mapping[str, Quote]] = (-1, {})

    def next_poll_ms(self, after_ms: int) -> int:
        """See `PaperMarket.next_poll_ms`; there is always one."""
        return self._poll_before(after_ms) + self._poll_ms if after_ms >= self._from_ms else self._from_ms

    def quotes(self, now_ms: int) -> Mapping[str, Quote]:
        """See `PaperMarket.quotes`."""
        polled_ms = self._poll_before(now_ms)
        if polled_ms != self._last[0]:
            seen = ((key, self._seen(series, polled_ms)) for key, series in self._series.items())
            self._last = (polled_ms, {key: quote for key, quote in seen if quote is not None})
        return self._last[1]

    def spot_failure_share(self, now_ms: int) -> float | None:
        """See `PaperMarket.spot_failure_share`."""
        return None if self._failures is None else self._failures.at(now_ms)

    def spot_life_s(self, now_ms: int) -> Mapping[str, float]:
        """See `PaperMarket.spot_life_s`."""
        return self._lives_s

    def stock(self, offer: Offer, now_ms: int) -> int | None:
        """See `PaperMarket.stock`."""
        series = self._series.get(offer.key)
        return None if series is None or series.stock is None else series.stock.at(now_ms)

    def next_shortage_ms(self, offer: Offer, nodes: int, after_ms: int) -> int | None:
        """See `PaperMarket.next_shortage_ms`."""
        series = self._series.get(offer.key)
        if series is None or series.stock is None:
            return None
        return next((at for at, count in series.stock.after(after_ms) if count < nodes), None)

    def points(self, offer: Offer) -> list[Quote]:
        """See `PaperMarket.points`: while no poll sees a price, the last one still holds."""
        prices = self._series[offer.key].prices
        return [
            Quote(offer, price, at, at, SOURCE)
            for at, price in zip(prices.at_ms, prices.values, strict=True)
            if price is not None
        ]

    def _poll_before(self, now_ms: int) -> int:
        return self._from_ms + (now_ms - self._from_ms) // self._poll_ms * self._poll_ms

    def _seen(self, series: OfferSeries, polled_ms: int) -> Quote | None:
        """The price there as of a poll; one that has gone out of sight is as old as the last poll that saw it."""
        prices = series.prices
        index = bisect_right(prices.at_ms, polled_ms) - 1
        seen_ms = polled_ms
        while index >= 0:
            price, at_ms = prices.values[index], prices.at_ms[index]
            if price is not None and seen_ms >= at_ms:
                return Quote(series.offer, price, at_ms, seen_ms, SOURCE)
            # The last poll before this stretch began: what it saw is what is remembered.
            seen_ms = self._poll_before(at_ms - 1)
            index -= 1
        return None
