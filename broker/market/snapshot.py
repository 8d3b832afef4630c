"""The market as of one moment, put together from what the two databases know."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from broker.core.model import Segment
from broker.core.offer import Market, MarketSnapshot
from broker.core.time import HOUR_S, MS
from broker.market.lifetimes import spot_lives
from broker.market.overlay_file import Laid, Laying, OverlayFile
from broker.store.history import HistoryStore
from broker.store.memory import Launch
from broker.store.state import Tx


def build_snapshot(
    history: HistoryStore,
    tx: Tx,
    now_ms: int,
    prices_only: frozenset[str] = frozenset(),
    segments: Sequence[Segment] | None = None,
    laid: Laid | None = None,
) -> MarketSnapshot:
    """Prices and doubts from the price history; empty pools, launches and lifetimes from our own doings.

    Args:
        segments: All of `tx`, where they have been read already.
        laid: Prices with the overlay over them, where there is one.
    """
    laid = laid or Laid(history.now(), {}, {})
    return MarketSnapshot(
        at_ms=now_ms,
        quotes=laid.quotes,
        empty_until_ms=tx.pools(),
        quarantined={key: entry.reason for key, entry in history.quarantined().items()},
        spot_launch_failures_1h=spot_failure_share(tx.launches(now_ms - HOUR_S * MS)),
        spot_life_s=spot_lives(tx.segments() if segments is None else segments, now_ms),
        hints=history.hints(),
        prices_only=prices_only,
        list_micro_usd_h=laid.list_micro_usd_h,
        held_micro_usd_h=laid.held_micro_usd_h,
    )


class Snapshots:
    """Snapshots under the overlay that is in force.

    Args:
        spent_micro_usd: By cloud, since its credit began, as of a moment.
    """

    def __init__(
        self,
        history: HistoryStore,
        overlay: OverlayFile,
        spent_micro_usd: Callable[[Tx, int], Mapping[str, int]],
    ) -> None:
        self._history = history
        self._overlay = overlay
        self._spent_micro_usd = spent_micro_usd
        self._laying = Laying()

    def of(self, tx: Tx, now_ms: int, prices_only: frozenset[str]) -> MarketSnapshot:
        """The market as of now."""
        overlay, segments = self._overlay.overlay, tx.segments()
        nodes = Counter(s.offer.key for s in segments if s.ended_at_ms is None)
        running = {s.offer.key: (s.offer, nodes[s.offer.key]) for s in segments if s.ended_at_ms is None}
        standing = overlay.standing(now_ms, running, self._spent_micro_usd(tx, now_ms))
        laid = self._laying.over(self._history.now(), overlay, standing, now_ms)
        return build_snapshot(self._history, tx, now_ms, prices_only, segments, laid)


def spot_failure_share(launches: Sequence[Launch]) -> float:
    """Share of the spot launches among these that got no node; 0 when nothing was tried."""
    spot = [launch for launch in launches if launch.market is Market.SPOT]
    return sum(not launch.ok for launch in spot) / len(spot) if spot else 0.0
