"""The poller with a real history database and small real providers: a poll is whole or failed."""

import asyncio
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from polling import GCP_SPOT, Prices, hint, poller, two
from readings import MINUTE, NOW, ON_DEMAND, SPOT, raw

from broker.core.errors import NotFound, ProviderDown
from broker.core.offer import RawQuote
from broker.market.poller import Poller
from broker.store.history import HistoryStore, PollKind
from tests.clocks import ManualClock

pytestmark = pytest.mark.anyio


async def test_a_poll_is_kept_with_its_row(history: HistoryStore) -> None:
    woken: list[int] = []
    one = poller(history, Prices("aws", two()), polled=lambda: woken.append(1))
    assert one.ages_s() == {"aws": None}
    poll = await one.poll_now("aws")
    assert (poll.ok, poll.offers, poll.changes, poll.error) == (True, 2, 0, ""), (
        "first sightings are no changes"
    )
    assert history.polls() == [poll]
    assert history.now()[SPOT.key].price_micro_usd_h == 2_500_000
    assert history.now()[SPOT.key].observed_at_ms == poll.started_at_ms
    age_s = one.ages_s()["aws"]
    assert age_s is not None
    assert 0 <= age_s < 10
    assert woken == [1]


async def test_no_change_makes_a_quote_younger(history: HistoryStore) -> None:
    one = poller(history, Prices("aws", two()))
    await one.poll_now("aws")
    before = history.now()[SPOT.key]
    await asyncio.sleep(0.005)
    poll = await one.poll_now("aws")
    after = history.now()[SPOT.key]
    assert poll.changes == 0
    assert after.effective_at_ms == before.effective_at_ms
    assert after.observed_at_ms == poll.started_at_ms > before.observed_at_ms


async def test_a_partial_poll_is_a_failed_poll(history: HistoryStore) -> None:
    def breaks() -> Iterator[RawQuote]:
        yield raw("2.5", SPOT, None)
        raise ProviderDown("page 2 of 3: connection reset")

    woken: list[int] = []
    poll = await poller(history, Prices("aws", breaks), polled=lambda: woken.append(1)).poll_now("aws")
    assert (poll.ok, poll.offers, poll.error) == (False, 0, "page 2 of 3: connection reset")
    assert history.now() == {}
    assert history.polls() == [poll]
    assert woken == [1]


async def test_a_failing_cloud_keeps_its_quotes_and_their_age(history: HistoryStore) -> None:
    answers = [two(), two(price="9.9")]

    def once() -> Iterable[RawQuote]:
        if not answers:
            raise ProviderDown("503")
        return answers.pop(0)()

    one = poller(history, Prices("aws", once), Prices("gcp", two(GCP_SPOT)))
    await one.poll_now("aws")
    answers.clear()
    kept = history.now()[SPOT.key]
    assert not (await one.poll_now("aws")).ok
    assert (await one.poll_now("gcp")).ok
    assert history.now()[SPOT.key] == kept
    assert GCP_SPOT.key in history.now()


async def test_a_mistake_in_a_provider_is_a_failed_poll(history: HistoryStore) -> None:
    def breaks() -> Iterable[RawQuote]:
        raise KeyError("GpuInfo")

    assert (await poller(history, Prices("aws", breaks)).poll_now("aws")).error == "'GpuInfo'"


async def test_a_hanging_cloud_is_left_and_asked_again_only_when_it_is_back(history: HistoryStore) -> None:
    release = threading.Event()

    def hangs() -> Iterable[RawQuote]:
        release.wait(10)
        return two()()

    slow = Prices("aws", hangs)
    one = poller(history, slow, Prices("gcp", two(GCP_SPOT)), timeout_s=0.05)
    assert (await one.poll_now("aws")).error == "aws: no answer within 0.05 s"
    assert (await one.poll_now("aws")).error == "aws: the poll before still has not come back"
    assert len(slow.calls) == 1
    assert (await one.poll_now("gcp")).ok
    release.set()
    while not (await one.poll_now("aws")).ok:
        await asyncio.sleep(0.01)
    # What came too late was not taken in; the poll after it was.
    assert SPOT.key in history.now()


async def test_a_jump_waits_until_it_has_held(history: HistoryStore) -> None:
    price = "2.5"
    clock = ManualClock(NOW)
    one = Poller({"aws": Prices("aws", lambda: [raw(price, SPOT, None)])}, history, clock)
    await one.poll_now("aws")
    price = "0.30"
    for minute in range(0, 30, 10):
        clock.advance(600)
        await one.poll_now("aws")
        assert history.now()[SPOT.key].price_micro_usd_h == 2_500_000
        assert "jumped from $2.50/h to $0.30/h" in history.quarantined()[SPOT.key].reason
        assert history.quarantined()[SPOT.key].held_ms == minute * MINUTE
    clock.advance(600)
    await one.poll_now("aws")
    assert history.now()[SPOT.key].price_micro_usd_h == 300_000
    assert history.quarantined() == {}


async def test_a_jump_back_is_released_and_leaves_no_price(history: HistoryStore) -> None:
    prices = ["2.5", "0.30", "2.5"]
    one = poller(history, Prices("aws", lambda: [raw(prices.pop(0), SPOT, None)]))
    for _ in range(3):
        await one.poll_now("aws")
        await asyncio.sleep(0.002)
    assert history.quarantined() == {}
    assert [q.price_micro_usd_h for q in history.points(SPOT.key, 0, 2**53)] == [2_500_000]


async def test_an_ordinary_shock_is_believed_at_once(history: HistoryStore) -> None:
    prices = ["2.0", "3.8"]
    one = poller(history, Prices("aws", lambda: [raw(prices.pop(0), SPOT, None)]))
    for _ in range(2):
        await one.poll_now("aws")
        await asyncio.sleep(0.002)
    assert history.now()[SPOT.key].price_micro_usd_h == 3_800_000


async def test_an_unknown_gpu_is_told_once(history: HistoryStore) -> None:
    odd = replace(SPOT, gpu="Radeon Graphics", instance_type="odd.xlarge")
    one = poller(history, Prices("aws", lambda: [raw("2.5", odd, None), raw("6.88", ON_DEMAND, None)]))
    for _ in range(3):
        assert (await one.poll_now("aws")).ok
    entry = history.quarantined()[odd.key]
    assert (entry.reason, entry.times_seen) == ("unknown GPU 'Radeon Graphics'", 1)
    assert list(history.now()) == [ON_DEMAND.key]


async def test_no_such_cloud(history: HistoryStore) -> None:
    with pytest.raises(NotFound, match="no cloud 'azure' is configured; there are aws"):
        await poller(history, Prices("aws", two())).poll_now("azure")


async def test_a_long_read_says_how_far_it_is(history: HistoryStore) -> None:
    release = threading.Event()

    def slowly() -> Iterator[RawQuote]:
        yield raw("2.5", SPOT, None)
        assert release.wait(10)
        yield raw("6.88", ON_DEMAND, None)

    one = poller(history, Prices("aws", slowly))
    poll = asyncio.create_task(one.poll_now("aws"))
    async with asyncio.timeout(10):
        while (reading := one.reading().get("aws")) is None or reading.found < 1:
            await asyncio.sleep(0.005)
    release.set()
    assert (await poll).offers == 2
    assert one.reading() == {}


async def test_a_list_of_which_nothing_is_believed_is_a_failed_poll(history: HistoryStore) -> None:
    answers = [two(), lambda: [replace(quote, currency="EUR") for quote in two()()]]
    one = poller(history, Prices("aws", lambda: answers[0]()))
    await one.poll_now("aws")
    age_s = one.ages_s()["aws"]
    assert age_s is not None
    del answers[0]
    await asyncio.sleep(0.02)
    poll = await one.poll_now("aws")
    assert not poll.ok
    assert poll.error == "none of 2 prices is believed; priced in EUR, not in USD"
    later_s = one.ages_s()["aws"]
    assert later_s is not None
    assert later_s > age_s
    assert len(history.quarantined()) == 2


async def test_what_nobody_thought_of_is_a_failed_poll_of_that_cloud(history: HistoryStore) -> None:
    # No number that a database takes.
    odd = [replace(quote, offer=replace(quote.offer, vcpus=2**70)) for quote in two()()]
    poll = await poller(history, Prices("aws", lambda: odd)).poll_now("aws")
    assert not poll.ok
    assert "too large" in poll.error


async def test_reads_one_after_the_other_never_meet(history: HistoryStore) -> None:
    """An answer is there before its thread has ended: the next read must not take that for a hang."""
    one = poller(history, Prices("aws", two(), hints=lambda: [hint(SPOT, 8)]))
    for _ in range(50):
        await one.poll_now("aws")
    assert all(poll.ok for poll in history.polls("aws", kind=PollKind.AVAILABILITY))
