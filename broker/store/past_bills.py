"""When our nodes ran: bills are computed from the history, so an import of those hours changes them."""

from pathlib import Path

from broker.core.errors import BrokerError
from broker.core.ports import Clock
from broker.store.engines import open_engines
from broker.store.migrate import is_current
from broker.store.past import Stretches
from broker.store.state import Tx


def billed(path: Path, clock: Clock) -> Stretches:
    """Read ``state.db``, which a daemon may have open. Without one nothing of ours has run.

    Raises:
        BrokerError: it was written by another release.
    """
    if not path.is_file():
        return {}
    if not is_current(path, "state"):
        raise BrokerError(
            f"{path} is of another release; start this one's daemon once, and it is brought up to date"
        )
    engines = open_engines(path, synchronous="FULL")
    found: dict[str, list[tuple[int, int]]] = {}
    try:
        with engines.reader.begin() as connection:
            tx = Tx(connection, clock)
            for segment in tx.segments():
                end_ms = clock.now_ms() if segment.ended_at_ms is None else segment.ended_at_ms
                found.setdefault(segment.offer.key, []).append((segment.started_at_ms, end_ms))
            tx.close()
    finally:
        engines.dispose()
    return found
