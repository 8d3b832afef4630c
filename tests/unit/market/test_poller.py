"""The poller with a real history database and small real providers."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from readings import ON_DEMAND, SPOT, raw

from broker.clock import SystemClock
from broker.core.availability import Availability, Signal, Unanswered
from broker.core.errors import Denied, NotFound, ProviderDown, Throttled
from broker.core.offer import Market, Offer, RawQuote
from broker.core.ports import Check, CloudNode, LaunchRequest
from broker.core.tariff import BillingRule
from broker.market.poller import Poller
from broker.store.history import HistoryStore, PollKind

pytestmark = pytest.mark.anyio

GCP_SPOT = replace(
    SPOT, cloud="gcp", region="us-central1", zone="us-central1-a", instance_type="a3-highgpu-1g"
)


@dataclass
class Prices:
    """A cloud that only has prices."""

    cloud: str
    read: Callable[[], Iterable[RawQuote]]
    calls: list[float] = field(default_factory=list)
    hints: Callable[[], Iterable[Availability | Unanswered]] = tuple
    past: Callable[[int], Iterable[RawQuote]] = lambda from_ms: ()

    def quotes(self) -> Iterable[RawQuote]:
        self.calls.append(time.monotonic())
        return self.read()

    def price_history(self, from_ms: int) -> Iterable[RawQuote]:
        return self.past(from_ms)

    def availability(self) -> Iterable[Availability | Unanswered]:
        return self.hints()

    def disk_micro_usd_per_gib_month(self, region: str) -> int:
        return 0

    def create(self, request: LaunchRequest) -> CloudNode:
        raise Denied("sells nothing")

    def find(self, token: str, region: str, zone: str) -> CloudNode | None:
        return None

    def list_owned(self) -> Sequence[CloudNode]:
        return ()

    def list_tagged(self) -> Sequence[CloudNode]:
        return ()

    def delete(self, node: CloudNode) -> None:
        raise Denied("sells nothing")

    def egress_micro_usd_per_gib(self, from_offer: Offer, to_offer: Offer | None) -> int:
        return 0

    def billing_rule(self, market: Market) -> BillingRule:
        return BillingRule()

    def check(self) -> Sequence[Check]:
        return ()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def history(tmp_path: Path) -> Iterator[HistoryStore]:
    store = HistoryStore.open(tmp_path / "history.db")
    yield store
    store.close()


def two(offer: Offer = SPOT, price: str = "2.5") -> Callable[[], list[RawQuote]]:
    other = replace(offer, market=Market.ON_DEMAND)
    return lambda: [raw(price, offer, None), raw("6.88", other, None)]


def hint(offer: Offer, score: float) -> Availability:
    return Availability(offer.key, Signal.PLACEMENT_SCORE, score, score, 1_000, "aws:placement_scores")


def poller(history: HistoryStore, *providers: Prices, **more: object) -> Poller:
    return Poller({p.cloud: p for p in providers}, history, SystemClock(), **more)  # type: ignore[arg-type]


async def test_a_poll_is_kept_with_its_row(history: HistoryStore) -> None:
    woken: list[int] = []
    one = poller(history, Prices("aws", two()), polled=lambda: woken.append(1))
    assert one.ages_s() == {"aws": None}
    poll = await one.poll_now("aws")
    assert (poll.ok, poll.offers, poll.changes, poll.error) == (True, 2, 2, "")
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


async def test_a_jump_waits_for_a_second_poll(history: HistoryStore) -> None:
    price = "2.5"

    def reads() -> Iterable[RawQuote]:
        return [raw(price, SPOT, None)]

    one = poller(history, Prices("aws", reads))
    await one.poll_now("aws")
    price = "0.30"
    await asyncio.sleep(0.002)
    await one.poll_now("aws")
    assert history.now()[SPOT.key].price_micro_usd_h == 2_500_000
    assert "jumped from $2.50/h to $0.30/h" in history.quarantined()[SPOT.key].reason
    await asyncio.sleep(0.002)
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


async def run_for(one: Poller, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await one.run()


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


async def test_hints_are_kept_with_their_date_and_forgotten_when_no_longer_said(
    history: HistoryStore,
) -> None:
    says = [hint(SPOT, 8)]
    one = poller(history, Prices("aws", two(), hints=lambda: says))
    await one.poll_now("aws")
    assert history.hints() == {SPOT.key: (hint(SPOT, 8),)}
    says.clear()
    await one.poll_now("aws")
    assert history.hints() == {}


async def test_a_hint_that_failed_is_told_in_the_row_and_takes_the_others_not_away(
    history: HistoryStore,
) -> None:
    elsewhere = replace(SPOT, zone="use1-az2")
    answers: list[list[Availability | Unanswered]] = [
        [hint(SPOT, 8), hint(elsewhere, 7)],
        [hint(SPOT, 2), Unanswered("one a day"), Unanswered("no route")],
    ]
    one = poller(history, Prices("aws", two(), hints=lambda: answers.pop(0)))
    await one.poll_now("aws")
    await one.poll_now("aws")
    newest, before = history.polls(kind=PollKind.AVAILABILITY)
    assert (before.ok, before.offers, before.error) == (True, 2, "")
    assert (newest.ok, newest.offers, newest.error) == (False, 1, "one a day; no route")
    assert history.hints() == {SPOT.key: (hint(SPOT, 2),), elsewhere.key: (hint(elsewhere, 7),)}
    assert [poll.ok for poll in history.polls()] == [True, True]


async def test_a_cloud_that_does_not_hint_keeps_its_prices_and_what_it_said(history: HistoryStore) -> None:
    answers: list[Callable[[], Iterable[Availability]]] = [lambda: [hint(SPOT, 8)]]

    def breaks() -> Iterable[Availability]:
        raise Throttled("one request a day")

    one = poller(history, Prices("aws", two(), hints=lambda: answers[0]()))
    await one.poll_now("aws")
    answers[0] = breaks
    poll = await one.poll_now("aws")
    assert poll.ok
    assert history.hints() == {SPOT.key: (hint(SPOT, 8),)}
    failed, _ = history.polls("aws", kind=PollKind.AVAILABILITY)
    assert (failed.ok, failed.error) == (False, "one request a day")


async def test_the_past_is_read_once_and_only_believable_points_of_it(history: HistoryStore) -> None:
    asked: list[int] = []
    day = 86_400_000

    def past(from_ms: int) -> Iterable[RawQuote]:
        asked.append(from_ms)
        return [raw("2.4", SPOT, from_ms + day), raw("-1", SPOT, from_ms + 2 * day), raw("2.6", SPOT, None)]

    one = poller(history, Prices("aws", two(), past=past))
    first = await one.poll_now("aws")
    await one.poll_now("aws")
    assert len(asked) == 1
    points = history.points(SPOT.key, 0, first.ended_at_ms + day)
    assert [point.price_micro_usd_h for point in points] == [2_400_000, 2_500_000]
    # Known since the import: a back-test must not see it earlier.
    assert points[0].observed_at_ms >= first.started_at_ms


async def test_a_past_that_breaks_off_is_read_again(history: HistoryStore) -> None:
    asked: list[int] = []

    def past(from_ms: int) -> Iterable[RawQuote]:
        asked.append(from_ms)
        if len(asked) == 1:
            raise ProviderDown("page 7")
        return [raw("2.4", SPOT, from_ms + 86_400_000)]

    one = poller(history, Prices("aws", two(), past=past))
    for _ in range(3):
        await one.poll_now("aws")
    assert len(asked) == 2
    assert len(history.points(SPOT.key, 0, 2**60)) == 2


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


async def test_a_cloud_that_never_hints_leaves_one_row_of_it_and_none_of_its_past(
    history: HistoryStore,
) -> None:
    one = poller(history, Prices("aws", two()))
    for _ in range(3):
        await one.poll_now("aws")
    assert len(history.polls("aws", kind=PollKind.AVAILABILITY)) == 1
    assert len(history.polls("aws", kind=PollKind.HISTORY)) == 1
    assert len(history.polls("aws")) == 3


async def test_what_changed_while_no_daemon_looked_is_read_after_a_start(history: HistoryStore) -> None:
    asked: list[int] = []

    def past(from_ms: int) -> Iterable[RawQuote]:
        asked.append(from_ms)
        return []

    before = await poller(history, Prices("aws", two(), past=past)).poll_now("aws")
    await asyncio.sleep(0.005)
    restarted = poller(history, Prices("aws", two(), past=past))
    for _ in range(3):
        await restarted.poll_now("aws")
    assert asked[1:] == [before.started_at_ms]


async def test_the_past_never_says_what_holds_now(history: HistoryStore) -> None:
    gone = replace(SPOT, zone="use1-az9")

    def past(from_ms: int) -> Iterable[RawQuote]:
        now_ms = from_ms + 90 * 86_400_000
        return [raw("9.9", SPOT, now_ms + 60_000), raw("2.0", gone, from_ms + 60_000)]

    one = poller(history, Prices("aws", two(), past=past))
    await one.poll_now("aws")
    assert history.now()[SPOT.key].price_micro_usd_h == 2_500_000
    assert gone.key not in history.now()


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
    odd = [replace(quote, source="\ud800") for quote in two()()]  # no text that a database takes
    poll = await poller(history, Prices("aws", lambda: odd)).poll_now("aws")
    assert not poll.ok
    assert "surrogates" in poll.error


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


async def test_reads_one_after_the_other_never_meet(history: HistoryStore) -> None:
    """An answer is there before its thread has ended: the next read must not take that for a hang."""
    one = poller(history, Prices("aws", two(), hints=lambda: [hint(SPOT, 8)]))
    for _ in range(50):
        await one.poll_now("aws")
    assert all(poll.ok for poll in history.polls("aws", kind=PollKind.AVAILABILITY))
