"""A history as a daemon would have recorded it: real rows, a poll every five minutes."""

from collections.abc import Iterable, Mapping
from contextlib import contextmanager

from broker.core.offer import Offer, Quote
from broker.market.overlay import Overlay
from broker.settings import Settings
from broker.store.history import HistoryStore, Poll
from broker.store.recorded import PriceRecord, reading_state
from broker.store.state import StateStore
from tests.clocks import CountingIds, ManualClock

POLL = 300_000


def record(
    folder,
    series: Mapping[Offer, Iterable[tuple[int, int]]],
    from_ms: int,
    until_ms: int,
    blind: Iterable[tuple[int, int]] = (),
):
    """Change points (ms, micro-USD an hour) as polls would have seen them; blind within these stretches."""
    HistoryStore.open(folder / "history.db").close()
    StateStore.open(folder / "state.db", ManualClock(), CountingIds()).close()
    store = HistoryStore.open(folder / "history.db")
    at_ms = from_ms
    while at_ms < until_ms:
        seen = not any(a <= at_ms < b for a, b in blind)
        if seen:
            store.ingest(quotes(series, at_ms))
        for cloud in {offer.cloud for offer in series}:
            store.record_poll(Poll(cloud, at_ms, at_ms, ok=seen, offers=len(series)))
        at_ms += POLL
    store.close()


def quotes(series, at_ms):
    for offer, points in series.items():
        held = [(since, price) for since, price in points if since <= at_ms]
        if held:
            since_ms, price = held[-1]
            yield Quote(offer, price, since_ms, at_ms, "test")


@contextmanager
def records(folder, now_ms, clouds):
    """What the commands read of it."""
    from broker.cli.records import records_of

    with (
        PriceRecord.open(folder / "history.db") as prices,
        reading_state(folder / "state.db", ManualClock(now_ms)) as tx,
    ):
        yield records_of(prices, tx, now_ms, Overlay(), clouds, Settings.parse(""))
