"""What a daemon has recorded, read beside it: by whoever plays a policy over its history. Nothing is ever written."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.core.errors import BrokerError, NotFound
from broker.core.offer import Offer
from broker.core.ports import Clock
from broker.store.curves import Curve, curve, known_offers
from broker.store.engines import Engines, open_engines
from broker.store.fetch import fetch
from broker.store.migrate import is_current
from broker.store.state import Tx

# Of one offer: a year of five-minute polls in which each saw another price.
_MOST_POINTS: Final = 105_120
_LOOKS = """\
SELECT started_at_ms, ended_at_ms FROM poll
WHERE cloud = :cloud AND kind = 'prices' AND ok AND started_at_ms >= :from_ms AND started_at_ms < :to_ms
ORDER BY started_at_ms"""
# The one that was the newest when the window begins.
_LOOK_BEFORE = """\
SELECT started_at_ms, ended_at_ms FROM poll
WHERE cloud = :cloud AND kind = 'prices' AND ok AND started_at_ms < :from_ms ORDER BY started_at_ms DESC LIMIT 1"""


@dataclass(frozen=True)
class Look:
    """A poll that read a cloud's prices as a whole.

    Attributes:
        at_ms: Its start, by which its prices are dated.
        known_ms: Its end: before that nobody could decide on them.
    """

    at_ms: int
    known_ms: int


class PriceRecord:
    """``history.db`` of a daemon, which may be running."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator["PriceRecord"]:
        """Within the block.

        Raises:
            NotFound: there is none.
            BrokerError: it was written by another release.
        """
        _check(path, "history")
        engines = open_engines(path, synchronous="NORMAL")
        try:
            yield cls(engines)
        finally:
            engines.dispose()

    def curves(
        self, gpus: Collection[str], wanted: Callable[[Offer], bool], from_ms: int, to_ms: int
    ) -> list[Curve]:
        """Prices of offers within ``from_ms <= effective_at < to_ms``, each with the last one before; by key.

        Args:
            gpus: SKUs: only these are read at all.
            wanted: Of the offers that have them.
        """
        with self._engines.reader.begin() as connection:
            known = [found for found in known_offers(connection, gpus) if wanted(found.offer)]
            known.sort(key=lambda found: found.offer.key)
            return [curve(connection, found, from_ms, to_ms, _MOST_POINTS) for found in known]

    def looks(self, clouds: Collection[str], from_ms: int, to_ms: int) -> dict[str, Sequence[Look]]:
        """By cloud: whole polls that began in that time, and the last one before it; oldest first."""
        found: dict[str, Sequence[Look]] = {}
        with self._engines.reader.begin() as connection:
            for cloud in sorted(clouds):
                window = {"cloud": cloud, "from_ms": from_ms, "to_ms": to_ms}
                before = fetch(connection, _LOOK_BEFORE, {"cloud": cloud, "from_ms": from_ms})
                rows = (*before, *fetch(connection, _LOOKS, window))
                found[cloud] = [Look(*row) for row in rows]
        return found


@contextmanager
def reading_state(path: Path, clock: Clock) -> Iterator[Tx]:
    """One moment of ``state.db``, which a daemon may have open; writing in it fails.

    Raises:
        NotFound: there is none.
        BrokerError: it was written by another release.
    """
    _check(path, "state")
    engines = open_engines(path, synchronous="FULL")
    try:
        with engines.reader.begin() as connection:
            tx = Tx(connection, clock)
            try:
                yield tx
            finally:
                tx.close()
    finally:
        engines.dispose()


def _check(path: Path, name: str) -> None:
    if not path.is_file():
        raise NotFound(
            f"no {path.name} in {path.parent}; name the daemon's configuration with --config, on its machine"
        )
    if not is_current(path, name):
        raise BrokerError(
            f"{path} is of another release; start this one's daemon once, and it is brought up to date"
        )
