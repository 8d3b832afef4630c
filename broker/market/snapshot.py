"""The market as of one moment, put together from what the two databases know."""

from collections.abc import Sequence

from broker.core.offer import Market, MarketSnapshot
from broker.core.time import HOUR_S, MS
from broker.market.lifetimes import spot_lives
from broker.store.history import HistoryStore
from broker.store.memory import Launch
from broker.store.state import Tx


def build_snapshot(
    history: HistoryStore, tx: Tx, now_ms: int, prices_only: frozenset[str] = frozenset()
) -> MarketSnapshot:
    """Prices and doubts from the price history; empty pools, launches and lifetimes from our own doings."""
    return MarketSnapshot(
        at_ms=now_ms,
        quotes=history.now(),
        empty_until_ms=tx.pools(),
        quarantined={key: entry.reason for key, entry in history.quarantined().items()},
        spot_launch_failures_1h=spot_failure_share(tx.launches(now_ms - HOUR_S * MS)),
        spot_life_s=spot_lives(tx.segments(), now_ms),
        hints=history.hints(),
        prices_only=prices_only,
    )


def spot_failure_share(launches: Sequence[Launch]) -> float:
    """Share of the spot launches among these that got no node; 0 when nothing was tried."""
    spot = [launch for launch in launches if launch.market is Market.SPOT]
    return sum(not launch.ok for launch in spot) / len(spot) if spot else 0.0
