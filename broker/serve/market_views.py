"""Bodies of the API: prices over time, and how well each cloud has been read."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from broker.core.offer import Market, Offer
from broker.core.time import DAY_S, MS
from broker.store.curves import Curve, Known
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
        last_at_ms: When the last poll began, whole or not; null: none yet.
        ok: Of that one.
        error: Of that one.
        prices: Read by the last whole poll, the doubted ones, too. A cloud that tells changes may tell several of an offer.
        list_date: Day of the list that they come from, where there is one with a date; null where the cloud was asked.
        changes_1d, polls_1d, failed_1d: In the last day.
        failed_in_row: Since the last whole poll; at most 100 are counted.
        doubted: Readings in quarantine.
        history: ``read``, ``failed``, or ``none`` when it was never asked.
        history_at_ms: When its past was last asked for.
        history_points: Prices of the past that it told.
        history_error: Why not.
    """

    cloud: str
    configured: bool
    prices_only: bool
    age_s: float | None
    last_at_ms: int | None
    ok: bool | None
    error: str
    prices: int
    list_date: str | None
    changes_1d: int
    polls_1d: int
    failed_1d: int
    failed_in_row: int
    doubted: int
    history: str
    history_at_ms: int | None
    history_points: int
    history_error: str


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
    configured: Collection[str],
    prices_only: Collection[str],
    list_dates: Mapping[str, str],
    now_ms: int,
) -> list[FeedView]:
    """One line a cloud, by name.

    Args:
        list_dates: Of the clouds whose prices come from a list with a date.
    """
    days = history.polled(now_ms - DAY_S * MS)
    doubted = Counter(key.partition("/")[0] for key in history.quarantined())
    views = []
    for cloud in sorted({*configured, *days}):
        polls = history.polls(cloud, limit=_POLLS)
        newest = polls[0] if polls else Poll(cloud, 0, 0, False)
        day = days.get(cloud, Polled())
        past = next(iter(history.polls(cloud, limit=1, kind=PollKind.HISTORY)), None)
        views.append(
            FeedView(
                cloud=cloud,
                configured=cloud in configured,
                prices_only=cloud in prices_only,
                age_s=None if day.whole_at_ms is None else max(0, now_ms - day.whole_at_ms) / MS,
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
                history="none" if past is None else "read" if past.ok else "failed",
                history_at_ms=past.started_at_ms if past else None,
                history_points=past.offers if past else 0,
                history_error=past.error if past else "",
            )
        )
    return views
