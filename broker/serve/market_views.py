"""Bodies of the API: prices over time, and how well each cloud has been read."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from broker.core.offer import Market, Offer
from broker.core.time import DAY_S, MS, age_s
from broker.serve.unread import is_late
from broker.store.curves import Curve, Known
from broker.store.doubts import is_gpu_known
from broker.store.feeds import Polled
from broker.store.history import HistoryStore, Poll, PollKind

# Of a cloud: more failures in a row are told as "at least".
_POLLS = 100


@dataclass(frozen=True)
class PointView:
    """A change of price.

    Attributes:
        effective_at_ms: By the cloud's word, or when we first saw it.
        observed_at_ms: When we knew.
    """

    effective_at_ms: int
    observed_at_ms: int
    price_micro_usd_h: int
    source: str


@dataclass(frozen=True)
class CurveView:
    """An offer's price over time.

    Attributes:
        points: In order. The first may lie before the window: it says what held at its start.
        last_seen_ms: When a poll last saw the last price; null when only an import knows the offer.
        cut: Older points of the window were left out.
        low_micro_usd_h, high_micro_usd_h: Bounds within the window; null without a point.
    """

    key: str
    offer: Offer
    points: tuple[PointView, ...]
    last_seen_ms: int | None
    cut: bool
    low_micro_usd_h: int | None
    high_micro_usd_h: int | None


@dataclass(frozen=True)
class FeedView:
    """How well one cloud's prices have been read.

    Attributes:
        configured: It is in broker.toml and enabled; else only its past is here.
        prices_only: Nothing can be rented there.
        age_s: Since the last whole poll began; null: none yet.
        interval_s: Of our clock, between two polls; null where it is not configured.
        late: Three intervals have passed since the last whole poll began.
        last_at_ms: When the last poll began, whole or not; null: none yet.
        next_at_ms: When it is read next; null when that is due now, or the cloud cannot be asked.
        ok: Of the last one.
        error: Of the last one.
        prices: Read by the last whole poll, the doubted ones, too. A cloud that tells changes may tell several of an offer.
        list_date: Day of the list that they come from, where there is one with a date; null where the cloud was asked.
        changes_1d, polls_1d, failed_1d: In the last day; a price that is seen for the first time is no change.
        failed_in_row: Since the last whole poll; at most 100 are counted.
        doubted: Readings in quarantine that time or a person may decide on.
        unknown_gpus: Those of GPUs that this release does not know, on which nobody can.
        history: ``read``, ``failed``, or ``none`` when it was never asked.
        history_at_ms: When its past was last asked for.
        history_points: Prices of the past that it told.
        history_error: Why not.
    """

    cloud: str
    configured: bool
    prices_only: bool
    age_s: float | None
    interval_s: int | None
    late: bool
    last_at_ms: int | None
    next_at_ms: int | None
    ok: bool | None
    error: str
    prices: int
    list_date: str | None
    changes_1d: int
    polls_1d: int
    failed_1d: int
    failed_in_row: int
    doubted: int
    unknown_gpus: int
    history: str
    history_at_ms: int | None
    history_points: int
    history_error: str


@dataclass(frozen=True)
class PolledView:
    """What came of a poll that somebody has asked for.

    Attributes:
        error: Why it failed; empty when it was whole.
        prices: That were read.
        changes: How many of them are news.
        took_s: On our clock.
    """

    cloud: str
    ok: bool
    error: str
    prices: int
    changes: int
    took_s: float


def cheapest_of_each(offers: Iterable[Known]) -> list[Known]:
    """The first of every cloud and market, in their order."""
    first: dict[tuple[str, Market], Known] = {}
    for known in offers:
        first.setdefault((known.offer.cloud, known.offer.market), known)
    return list(first.values())


def curve_views(curves: Iterable[Curve], from_ms: int) -> list[CurveView]:
    """Curves as they are sent."""
    return [_curve_view(curve, from_ms) for curve in curves]


def _curve_view(curve: Curve, from_ms: int) -> CurveView:
    prices = [
        point.price_micro_usd_h
        for point, then in zip(curve.points, (*curve.points[1:], None), strict=True)
        if then is None or then.effective_at_ms > from_ms
    ]
    return CurveView(
        key=curve.known.offer.key,
        offer=curve.known.offer,
        points=tuple(
            PointView(p.effective_at_ms, p.observed_at_ms, p.price_micro_usd_h, p.source)
            for p in curve.points
        ),
        last_seen_ms=curve.known.last_seen_ms,
        cut=curve.cut,
        low_micro_usd_h=min(prices, default=None),
        high_micro_usd_h=max(prices, default=None),
    )


def feed_views(
    history: HistoryStore,
    intervals_s: Mapping[str, int],
    next_polls_ms: Mapping[str, int],
    prices_only: Collection[str],
    list_dates: Mapping[str, str],
    now_ms: int,
) -> list[FeedView]:
    """One line a cloud, by name.

    Args:
        intervals_s: Of the configured clouds: seconds of our clock between two polls.
        next_polls_ms: When a cloud is asked next, where that is still to come.
        list_dates: Of the clouds whose prices come from a list with a date.
    """
    days = history.polled(now_ms - DAY_S * MS)
    doubts = history.quarantined().values()
    doubted = Counter(entry.raw.offer.cloud for entry in doubts if is_gpu_known(entry))
    unknown = Counter(entry.raw.offer.cloud for entry in doubts if not is_gpu_known(entry))
    views = []
    for cloud in sorted({*intervals_s, *days}):
        polls = history.polls(cloud, limit=_POLLS)
        newest = polls[0] if polls else Poll(cloud, 0, 0, False)
        day = days.get(cloud, Polled())
        past = next(iter(history.polls(cloud, limit=1, kind=PollKind.HISTORY)), None)
        whole_s = None if day.whole_at_ms is None else age_s(day.whole_at_ms, now_ms)
        interval_s = intervals_s.get(cloud)
        views.append(
            FeedView(
                cloud=cloud,
                configured=interval_s is not None,
                prices_only=cloud in prices_only,
                age_s=whole_s,
                interval_s=interval_s,
                late=is_late(whole_s, interval_s),
                next_at_ms=next_polls_ms.get(cloud),
                last_at_ms=newest.started_at_ms if polls else None,
                ok=newest.ok if polls else None,
                error=newest.error,
                prices=day.offers,
                list_date=list_dates.get(cloud),
                polls_1d=day.polls,
                failed_1d=day.failed,
                changes_1d=day.changes,
                failed_in_row=next((at for at, poll in enumerate(polls) if poll.ok), len(polls)),
                doubted=doubted[cloud],
                unknown_gpus=unknown[cloud],
                history="none" if past is None else "read" if past.ok else "failed",
                history_at_ms=past.started_at_ms if past else None,
                history_points=past.offers if past else 0,
                history_error=past.error if past else "",
            )
        )
    return views
