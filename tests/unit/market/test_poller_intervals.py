"""When the poller asks whom: each cloud at its own interval, and a failing one less and less."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from polling import GCP_SPOT, Prices, poller, run_for, two
from readings import SPOT, raw

from broker.clock import SystemClock
from broker.core.errors import Denied, Throttled
from broker.core.offer import RawQuote
from broker.market.poller import Poller
from broker.store.history import HistoryStore

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


async def test_a_failing_cloud_is_asked_less_and_less(history: HistoryStore) -> None:
    def refuses() -> Iterable[RawQuote]:
        raise Denied("expired token")

    aws, gcp = Prices("aws", refuses), Prices("gcp", two(GCP_SPOT))
    await run_for(poller(history, aws, gcp, intervals_s={"aws": 0.05, "gcp": 0.05}), 1.5)
    assert len(aws.calls) <= 8
    assert len(gcp.calls) > len(aws.calls)


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
    assert not state.may_be_asked(state.failed_at_ms + 3_599_000)
    assert state.may_be_asked(state.failed_at_ms + 3_600_000)
