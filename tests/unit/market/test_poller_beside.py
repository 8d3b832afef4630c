"""What is asked beside prices: hints of capacity, and the past."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from polling import Prices, hint, poller, two
from readings import SPOT, raw

from broker.core.availability import Availability, Unanswered
from broker.core.errors import ProviderDown, Throttled
from broker.core.offer import RawQuote
from broker.store.history import HistoryStore, PollKind

pytestmark = pytest.mark.anyio


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
