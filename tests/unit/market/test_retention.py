"""What is old goes, and what holds, what a bill needs and what would have to be read again stays."""

import asyncio
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from readings import ON_DEMAND, SPOT, raw
from test_overlay_in_force import rent, state

from broker.core.offer import Quote
from broker.core.time import DAY_S, MS
from broker.market.retention import KEEP_POLLS_S, Retention
from broker.store.history import HistoryStore, Poll, PollKind
from tests.clocks import ManualClock

__all__ = ["state"]

FRESH = count()

DAY = DAY_S * MS


@pytest.fixture
def clock():
    return ManualClock()


def points(history, offer=SPOT):
    return [(p.effective_at_ms // DAY, p.price_micro_usd_h) for p in history.points(offer.key, 0, 10**15)]


def put(history, clock, offer, *days_ago):
    for ago in days_ago:
        at_ms = clock.now_ms() - ago * DAY
        history.ingest([Quote(offer, 1000 + ago, at_ms, at_ms, "s")])


def retention(history, state, clock):
    return Retention(history, state, clock, 400 * DAY_S)


@pytest.fixture
def empty(tmp_path):
    store = HistoryStore.open(tmp_path / "empty.db")
    yield store
    store.close()


def ages(history, clock, offer=SPOT):
    today = clock.now_ms() // DAY
    return [today - day for day, _ in points(history, offer)]


def test_changes_go_and_the_price_that_held_at_the_horizon_stays(empty, state, clock):
    put(empty, clock, SPOT, 900, 500, 401, 399, 2)
    put(empty, clock, ON_DEMAND, 900)
    assert retention(empty, state, clock).once().points == 2
    assert ages(empty, clock) == [401, 399, 2]
    assert ages(empty, clock, ON_DEMAND) == [900], "it has not changed since"
    assert empty.now()[ON_DEMAND.key].price_micro_usd_h == 1900


def test_what_a_bill_needs_stays_for_ever(empty, state, clock):
    put(empty, clock, SPOT, 900, 600, 500, 401, 2)
    put(empty, clock, ON_DEMAND, 900, 600, 2)
    rent(state, 1, clock.now_ms() - 550 * DAY, clock.now_ms() - 549 * DAY, SPOT)
    assert retention(empty, state, clock).once().points == 2
    assert ages(empty, clock) == [600, 500, 401, 2]
    assert ages(empty, clock, ON_DEMAND) == [600, 2]


def test_polls_go_but_the_last_of_each_kind_and_that_the_past_was_read(empty, state, clock):
    now_ms = clock.now_ms()
    old = now_ms - KEEP_POLLS_S * MS - 1
    for poll in (
        Poll("aws", old - 20, old, True, kind=PollKind.HISTORY),
        Poll("aws", old - 9, old, True),
        Poll("aws", old - 8, old, True),
        Poll("aws", old - 7, old, False, error="old"),
        Poll("aws", now_ms - 1, now_ms, False, error="new"),
        Poll("gcp", old - 1, old, True),
    ):
        empty.record_poll(poll)
    assert retention(empty, state, clock).once().polls == 2
    assert [(p.ok, p.error) for p in empty.polls("aws")] == [(False, "new"), (True, "")]
    assert len(empty.polls("gcp")) == 1
    assert len(empty.polls("aws", kind=PollKind.HISTORY)) == 1
    assert empty.polled(0)["aws"].whole_at_ms == old - 8


def test_closed_doubts_go_and_open_ones_stay(empty, state, clock):
    long_ago = clock.now_ms() - 500 * DAY
    empty.quarantine(raw("0"), long_ago, "zero")
    empty.release(SPOT.key, "0", long_ago)
    empty.quarantine(raw("0", ON_DEMAND), long_ago, "zero")
    assert retention(empty, state, clock).once().doubts == 1
    assert list(empty.quarantined()) == [ON_DEMAND.key]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=12),
    st.integers(-5, 60),
    st.one_of(st.none(), st.integers(-5, 60)),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
def test_every_price_from_the_horizon_on_is_what_it_was(empty, changes, horizon, needed):
    offer = replace(SPOT, zone=f"z{next(FRESH)}")
    empty.ingest(
        [Quote(offer, price, at * DAY, at * DAY, "s") for at, price in sorted(dict(changes).items())]
    )

    def price(at):
        found = empty.points(offer.key, at * DAY, at * DAY + 1)
        return found[-1].price_micro_usd_h if found else None

    first = horizon if needed is None else min(horizon, needed)
    before = [price(at) for at in range(max(0, first), 60)]
    empty.prune(horizon * DAY, 0, {} if needed is None else {offer.key: needed * DAY})
    assert [price(at) for at in range(max(0, first), 60)] == before


def test_it_prunes_at_the_start_and_when_it_is_woken(empty, state, clock):
    async def run():
        put(empty, clock, SPOT, 900, 500, 401, 2)
        keeper = retention(empty, state, clock)
        task = asyncio.create_task(keeper.run())
        await until(lambda: ages(empty, clock) == [401, 2])
        clock.advance(400 * DAY_S)
        keeper.due.set()
        await until(lambda: len(points(empty)) == 1)
        task.cancel()

    async def until(holds):
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0.01)

    asyncio.run(run())
