"""A recorded market to play a policy over: what its polls had seen by then, and what its bills are computed from.

    what a decision sees    the newest price that was observed by the last whole poll of its cloud, as old as that poll
    what is billed          every price that is known now, from when it took effect

Capacity is not recorded. What is known of it is what happened to nodes of ours: where a cloud took one back, the pool is
taken for empty from then on for as long as a daemon leaves it alone. Everything else can be had.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Final, Protocol

from broker.core.gpu import GPUS
from broker.core.model import EndedBy, Segment
from broker.core.offer import Market, Offer, Quote
from broker.core.spec import JobSpec
from broker.core.time import HOUR_S, MS
from broker.decision.fit import gpu_request, refuse_offer, speed_tflops
from broker.market.lifetimes import spot_lives
from broker.paper.run import EMPTY_POOL_S
from broker.policy.schema import Policy

# Polls that are not on record any more were this far apart: the pace of a daemon that nobody has told another one.
ASSUMED_PACE_S: Final = 300
_HOUR_MS: Final = HOUR_S * MS


class Look(Protocol):
    """A whole poll: its start, by which prices are dated, and its end, from which on they were known."""

    @property
    def at_ms(self) -> int: ...
    @property
    def known_ms(self) -> int: ...


@dataclass(frozen=True)
class Recorded:
    """Prices of one offer.

    Attributes:
        points: By the time that they took effect; of two for one moment the one that was observed later is the last.
        last_seen_ms: When a poll last saw it; None when only an import knows it.
    """

    offer: Offer
    points: tuple[Quote, ...]
    last_seen_ms: int | None = None


@dataclass(frozen=True)
class Charges:
    """What is paid where a cloud's list says something else.

    Attributes:
        quote: Of a price as of a moment.
        points: Of an offer's prices, oldest first, until a moment.
    """

    quote: Callable[[Quote, int], Quote]
    points: Callable[[Sequence[Quote], int], Sequence[Quote]]


LIST: Final = Charges(lambda quote, _at_ms: quote, lambda points, _until_ms: points)


@dataclass(frozen=True)
class Doings:
    """What happened to nodes of ours, in that market.

    Attributes:
        segments: Of jobs other than the one that is played: how long spot lived.
        interrupted: When a cloud took a spot node back, by offer key, ascending.
        spot_launches: When one was tried, ascending, and whether it got a node.
    """

    segments: Sequence[Segment] = ()
    interrupted: Mapping[str, Sequence[int]] | None = None
    spot_launches: Sequence[tuple[int, bool]] = ()


def skus_of(spec: JobSpec) -> frozenset[str]:
    """Exact SKUs that a job could train on."""
    asked = {request.type for request in spec.resources.gpus}
    return frozenset(sku for sku, model in GPUS.items() if sku in asked or model.family in asked)


def could_take(spec: JobSpec, policies: Iterable[Policy]) -> Callable[[Offer], bool]:
    """Whether job and one of the policies allow an offer, whatever its price."""
    told = tuple(policies)

    def allowed(offer: Offer) -> bool:
        if gpu_request(offer, spec.resources.gpus) is None:
            return False
        return any(refuse_offer(offer, spec, policy) is None for policy in told)

    return allowed


def interruptions(segments: Iterable[Segment]) -> dict[str, list[int]]:
    """When clouds took spot nodes back, by offer key."""
    found: dict[str, set[int]] = {}
    for segment in segments:
        taken = segment.ended_by is EndedBy.CLOUD and segment.offer.market is Market.SPOT
        if taken and segment.ended_at_ms is not None:
            found.setdefault(segment.offer.key, set()).add(segment.ended_at_ms)
    return {key: sorted(times) for key, times in found.items()}


class InSight:
    """Which quotes are worth a decision's time: it chooses among the cheapest, or the fastest.

    Args:
        most: Of those that are equally fast, market by market.
    """

    def __init__(self, spec: JobSpec, most: int) -> None:
        self._spec = spec
        self._most = most
        self._alike: dict[str, tuple[Market, float]] = {}

    def of(self, quotes: Iterable[Quote], asked_for: Collection[str]) -> list[Quote]:
        """These, and whatever was asked for: the job may be there."""
        alike: dict[tuple[Market, float], list[Quote]] = {}
        for quote in quotes:
            alike.setdefault(self._class_of(quote.offer), []).append(quote)
        found: list[Quote] = []
        for group in alike.values():
            cheapest = nsmallest(self._most, group, key=lambda one: (one.price_micro_usd_h, one.offer.key))
            kept = {quote.offer.key for quote in cheapest}
            found += [quote for quote in group if quote.offer.key in kept or quote.offer.key in asked_for]
        return found

    def _class_of(self, offer: Offer) -> tuple[Market, float]:
        known = self._alike.get(offer.key)
        if known is None:
            known = self._alike[offer.key] = offer.market, speed_tflops(offer, self._spec)
        return known


class HistoryMarket:
    """Satisfies `broker.paper.market.PaperMarket`.

    Attributes:
        offers: That have a price here.
        clouds: Theirs.
        first_ms: When the first price was known; None when none is.
        assumed_looks: Whether some polls are not on record.
        pace_ms: Polls that came closer together are passed over; 0 where none did.

    Args:
        looks: By cloud, oldest first. Before the first one, a price that was known then is taken to have been seen
            again every `ASSUMED_PACE_S`: polls are kept for a shorter time than prices.
        from_ms: The policy is asked then, and after each poll.
        until_ms: Nothing is known of later.
        in_sight: How many offers a decision sees of those that are equally fast, market by market, the cheapest first; and
            every offer that was ever asked for. None shows all of them.
        most_asks: Polls that come closer together than this allows are passed over: a year of them need not all be
            answered. None answers all.
    """

    def __init__(
        self,
        offers: Iterable[Recorded],
        looks: Mapping[str, Sequence[Look]],
        from_ms: int,
        until_ms: int,
        *,
        in_sight: InSight | None = None,
        most_asks: int | None = None,
        charges: Charges = LIST,
        doings: Doings | None = None,
    ) -> None:
        doings = doings or Doings()
        self.from_ms = from_ms
        self._until_ms = until_ms
        self._charges = charges
        self._in_sight = in_sight
        self._asked_for: set[str] = set()
        self._launches = doings.spot_launches
        self._segments = doings.segments
        self._points: dict[str, Sequence[Quote]] = {}
        by_cloud: dict[str, list[_Track]] = {}
        for recorded in offers:
            if recorded.points:
                self._points[recorded.offer.key] = recorded.points
                by_cloud.setdefault(recorded.offer.cloud, []).append(_Track(recorded))
        self._feeds = [
            _Feed(tracks, looks.get(cloud, ()), from_ms, until_ms)
            for cloud, tracks in sorted(by_cloud.items())
        ]
        self.offers = tuple(track.offer for tracks in by_cloud.values() for track in tracks)
        self.clouds = frozenset(by_cloud)
        self.first_ms = min((feed.first_ms for feed in self._feeds), default=None)
        self.assumed_looks = any(feed.assumed for feed in self._feeds)
        span_ms = until_ms - max(from_ms, until_ms if self.first_ms is None else self.first_ms)
        pace_ms = max(0, span_ms) // most_asks if most_asks else 0
        every = sorted({at for feed in self._feeds for at in feed.known_ms if at > from_ms})
        self._asks = list(_thinned(every, from_ms, pace_ms))
        self.pace_ms = pace_ms if len(self._asks) <= len(every) else 0
        self._empty = {
            key: [(at_ms, at_ms + EMPTY_POOL_S * MS) for at_ms in times]
            for key, times in (doings.interrupted or {}).items()
        }
        self._shown: tuple[object, Mapping[str, Quote]] = (None, {})
        self._lives: tuple[int, Mapping[str, float]] = (-1, {})

    def next_poll_ms(self, after_ms: int) -> int | None:
        """See `PaperMarket.next_poll_ms`."""
        at = bisect_right(self._asks, after_ms)
        return self._asks[at] if at < len(self._asks) else None

    def quotes(self, now_ms: int) -> Mapping[str, Quote]:
        """See `PaperMarket.quotes`."""
        which = (len(self._asked_for), *(feed.index(now_ms) for feed in self._feeds))
        if which != self._shown[0]:
            seen = [feed.quotes(index) for feed, index in zip(self._feeds, which[1:], strict=True)]
            charged = [self._charges.quote(quote, now_ms) for quotes in seen for quote in quotes]
            if self._in_sight is not None:
                charged = self._in_sight.of(charged, self._asked_for)
            self._shown = which, {quote.offer.key: quote for quote in charged}
        return self._shown[1]

    def spot_failure_share(self, now_ms: int) -> float | None:
        """See `PaperMarket.spot_failure_share`: by launches of ours, where there were any in that hour."""
        recent = [ok for at_ms, ok in self._launches if now_ms - _HOUR_MS <= at_ms <= now_ms]
        return recent.count(False) / len(recent) if recent else None

    def spot_life_s(self, now_ms: int) -> Mapping[str, float]:
        """See `PaperMarket.spot_life_s`: of jobs of ours, as of the hour that began last."""
        hour_ms = now_ms // _HOUR_MS * _HOUR_MS
        if hour_ms != self._lives[0]:
            known = [_as_of(s, hour_ms) for s in self._segments if s.started_at_ms < hour_ms]
            self._lives = hour_ms, spot_lives(known, hour_ms)
        return self._lives[1]

    def stock(self, offer: Offer, now_ms: int) -> int | None:
        """See `PaperMarket.stock`."""
        self._asked_for.add(offer.key)
        empty = any(from_ms <= now_ms < until_ms for from_ms, until_ms in self._empty.get(offer.key, ()))
        return 0 if empty else None

    def next_shortage_ms(self, offer: Offer, nodes: int, after_ms: int) -> int | None:
        """See `PaperMarket.next_shortage_ms`."""
        return next((at_ms for at_ms, _ in self._empty.get(offer.key, ()) if at_ms > after_ms), None)

    def points(self, offer: Offer) -> Sequence[Quote]:
        """See `PaperMarket.points`; none for an offer that nobody has priced."""
        return self._charges.points(self._points.get(offer.key, ()), self._until_ms)


class _Track:
    """What was known of one offer's price over time."""

    def __init__(self, recorded: Recorded) -> None:
        self.offer = recorded.offer
        self._last_seen_ms = recorded.last_seen_ms
        self.known_ms: list[int] = []
        self._held: list[Quote] = []
        newest: Quote | None = None
        for point in sorted(recorded.points, key=lambda one: (one.observed_at_ms, one.effective_at_ms)):
            if newest is not None and point.effective_at_ms < newest.effective_at_ms:
                continue  # news of the past changes no price now
            newest = point
            self.known_ms.append(point.observed_at_ms)
            self._held.append(point)

    def at(self, seen_ms: int) -> Quote | None:
        index = bisect_right(self.known_ms, seen_ms) - 1
        if index < 0:
            return None
        held = self._held[index]
        again_ms = seen_ms if self._last_seen_ms is None else min(seen_ms, self._last_seen_ms)
        return replace(held, observed_at_ms=max(held.observed_at_ms, again_ms))


class _Feed:
    """One cloud: its offers and its polls.

    Attributes:
        first_ms: When the first of its prices was known.
        assumed: Some of the polls are not on record.
    """

    def __init__(self, tracks: list[_Track], looks: Sequence[Look], from_ms: int, until_ms: int) -> None:
        self._tracks = tracks
        first_known_ms = min(track.known_ms[0] for track in tracks)
        recorded_ms = min((look.at_ms for look in looks), default=until_ms)
        pace_ms = ASSUMED_PACE_S * MS
        early = list(range(max(from_ms, first_known_ms), min(recorded_ms, until_ms), pace_ms))
        # Of a daemon's first poll the prices are as old as the poll itself: nothing was known before it.
        self.assumed = bool(early)
        self._at_ms = [*early, *(look.at_ms for look in looks)]
        self.known_ms = [*early, *(look.known_ms for look in looks)]
        known = zip(self._at_ms, self.known_ms, strict=True)
        self.first_ms = next((known_ms for at_ms, known_ms in known if at_ms >= first_known_ms), until_ms)
        self._quotes: tuple[int, list[Quote]] = (-1, [])

    def index(self, now_ms: int) -> int:
        """Of the newest poll that was known then; -1 before the first."""
        return bisect_right(self.known_ms, now_ms) - 1

    def quotes(self, index: int) -> list[Quote]:
        if index < 0:
            return []
        if index != self._quotes[0]:
            found = (track.at(self._at_ms[index]) for track in self._tracks)
            self._quotes = index, [quote for quote in found if quote is not None]
        return self._quotes[1]


def _thinned(times_ms: Iterable[int], from_ms: int, pace_ms: int) -> Iterator[int]:
    yield from_ms
    last_ms = from_ms
    for at_ms in times_ms:
        if at_ms - last_ms >= pace_ms:
            yield at_ms
            last_ms = at_ms


def _as_of(segment: Segment, now_ms: int) -> Segment:
    """What was known of it then: one that ended later had not ended yet."""
    if segment.ended_at_ms is None or segment.ended_at_ms <= now_ms:
        return segment
    return replace(segment, ended_at_ms=None, ended_by=None)
