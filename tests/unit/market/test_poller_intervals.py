"""When the poller asks whom: each cloud at its own interval, one that failed soon, a throttled one less and less."""

import asyncio
import threading
from collections.abc import Iterable
from dataclasses import replace

import pytest
from polling import GCP_SPOT, Prices, poller, run_for, two
from readings import NOW, SPOT, raw

from broker.clock import SystemClock
from broker.core.errors import Conflict, NotFound, ProviderDown, Throttled
from broker.core.offer import RawQuote
from broker.core.time import MS
from broker.market.poller import Poller
from broker.store.history import HistoryStore
from tests.clocks import ManualClock

pytestmark = pytest.mark.anyio


async def test_each_cloud_at_its_own_interval_from_the_start(history: HistoryStore) -> None:
    aws, gcp = Prices("aws", two()), Prices("gcp", two(GCP_SPOT))
    one = poller(history, aws, gcp, intervals_s={"aws": 0.1, "gcp": 60})
    await run_for(one, 0.55)
    assert 2 <= len(aws.calls) <= 6
    assert len(gcp.calls) == 1


async def test_intervals_are_in_seconds_of_our_clock(history: HistoryStore) -> None:
    aws = Prices("aws", two())
    one = Poller({"aws": aws}, history, SystemClock(rate=100), intervals_s={"aws": 10})
    await run_for(one, 0.55)
    assert 2 <= len(aws.calls) <= 6


async def test_a_failed_poll_is_made_again_soon_and_never_later_than_the_interval(
    history: HistoryStore,
) -> None:
    def refuses() -> Iterable[RawQuote]:
        raise ProviderDown("no network")

    clock = ManualClock(NOW)
    one = Poller({"aws": Prices("aws", refuses)}, history, clock, intervals_s={"aws": 300})
    waits = []
    for _ in range(7):
        await one.poll_now("aws")
        waits.append((one.next_ms()["aws"] - clock.now_ms()) / MS)
        clock.advance(waits[-1])
    assert waits == [30, 60, 120, 240, 300, 300, 300]


async def test_a_cloud_that_answers_again_is_read_long_before_its_interval_is_over(
    history: HistoryStore,
) -> None:
    answers = [False, False, True]

    def comes_back() -> Iterable[RawQuote]:
        if not answers.pop(0):
            raise ProviderDown("no network")
        return two()()

    # 30 seconds and a minute of a clock that runs 600 times as fast; the interval would be six real seconds.
    clock = SystemClock(rate=600)
    one = Poller({"aws": Prices("aws", comes_back)}, history, clock, intervals_s={"aws": 3600})
    await run_for(one, 1.5)
    assert not answers
    assert history.now()
    assert one.next_ms()["aws"] > clock.now_ms() + 1_000_000, "and then at its interval"


async def test_whoever_asks_has_a_poll_now_and_is_told_its_outcome(history: HistoryStore) -> None:
    aws = Prices("aws", two())
    one = poller(history, aws, intervals_s={"aws": 3600})
    async with asyncio.TaskGroup() as group:
        loops = group.create_task(one.run())
        while "aws" not in one.next_ms() or one._clouds["aws"].busy.locked():
            await asyncio.sleep(0.01)
        async with asyncio.timeout(5):
            poll = await one.ask("aws")
        assert (poll.ok, poll.offers, len(aws.calls)) == (True, 2, 2)
        with pytest.raises(NotFound, match="there are aws"):
            await one.ask("azure")
        loops.cancel()


async def test_nobody_asks_for_a_second_poll_beside_one(history: HistoryStore) -> None:
    release = threading.Event()

    def hangs() -> Iterable[RawQuote]:
        release.wait(10)
        return two()()

    one = poller(history, Prices("aws", hangs))
    running = asyncio.create_task(one.poll_now("aws"))
    while not one.reading():
        await asyncio.sleep(0.01)
    with pytest.raises(Conflict, match="is being read now"):
        await one.ask("aws")
    release.set()
    assert (await running).ok


async def test_a_clock_that_is_set_back_holds_no_poll_up(history: HistoryStore) -> None:
    clock = ManualClock(NOW)
    one = Poller({"aws": Prices("aws", two())}, history, clock)
    await one.poll_now("aws")
    assert one._clouds["aws"].left_s(NOW) == 300
    assert one._clouds["aws"].left_s(NOW - 86_400_000) == 0


async def test_a_cloud_with_too_many_calls_is_asked_less_and_less(history: HistoryStore) -> None:
    def throttles() -> Iterable[RawQuote]:
        raise Throttled("too many calls")

    clock = ManualClock(NOW)
    one = Poller({"aws": Prices("aws", throttles)}, history, clock, intervals_s={"aws": 300})
    waits = []
    for _ in range(5):
        await one.poll_now("aws")
        waits.append(one._clouds["aws"].wait_ms / MS)
    assert waits == [300, 600, 1200, 2400, 2400]


async def test_a_throttled_cloud_is_left_alone_as_long_as_it_says(history: HistoryStore) -> None:
    def throttles() -> Iterable[RawQuote]:
        raise Throttled("slow down", retry_after_s=60)

    aws = Prices("aws", throttles)
    await run_for(poller(history, aws, intervals_s={"aws": 0.05}), 0.4)
    assert len(aws.calls) == 1


async def test_a_full_disk_ends_no_loop(history: HistoryStore) -> None:
    """A poll that cannot be written down is lost; when there is room the next one is kept."""
    limit = "PRAGMA max_page_count={}"
    with history._engines.writer.begin() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(limit.format(pages))
    asked = 0

    def many() -> Iterable[RawQuote]:
        nonlocal asked
        asked += 1
        return [raw("2.5", replace(SPOT, zone=f"zone-{asked}-{number}")) for number in range(200)]

    one = poller(history, Prices("aws", many), intervals_s={"aws": 0.05})
    await run_for(one, 0.5)
    assert asked > 2
    assert not history.now()
    with history._engines.writer.begin() as connection:
        connection.exec_driver_sql(limit.format(1 << 30))
    await run_for(one, 0.5)
    assert history.now()


@pytest.mark.parametrize("seconds", [31_536_000.0, 1.7e308, float("inf"), float("nan")])
async def test_no_cloud_silences_itself_for_longer_than_an_hour(
    history: HistoryStore, seconds: float
) -> None:
    def throttles() -> Iterable[RawQuote]:
        raise Throttled("come again", retry_after_s=seconds)

    one = poller(history, Prices("aws", throttles))
    await one.poll_now("aws")
    state = one._clouds["aws"]
    assert state.left_s(state.from_ms + 3_599_000) == 1
    assert state.left_s(state.from_ms + 3_600_000) == 0
