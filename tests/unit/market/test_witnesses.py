"""Time that was watched is what confirms a reading, and not how often somebody has looked."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from alembic import command
from readings import MINUTE, NOW

from broker.core.offer import Market, Offer, RawQuote
from broker.core.plain import to_plain
from broker.market import intake
from broker.market.confirming import confirmed
from broker.market.intake import take_in
from broker.market.quarantine import Sifted, sift
from broker.store.engines import migration_engine
from broker.store.history import HistoryStore
from broker.store.migrate import config

HOUR = 60 * MINUTE
AWS = Offer("aws", "us-east-1", "use1-az6", "p5.4xlarge", Market.SPOT, "H100-SXM5-80GB", 1)
AZURE = Offer(
    "azure", "eastus", "eastus", "Standard_NC40ads_H100_v5", Market.ON_DEMAND, "H100-NVL-94GB", 1, vcpus=40
)
AZURE_SPOT = replace(AZURE, market=Market.SPOT)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[HistoryStore]:
    store = HistoryStore.open(tmp_path / "history.db")
    yield store
    store.close()


def read(history: HistoryStore, offer: Offer, text: str, at_ms: int) -> float:
    """The price after a poll that read this one."""
    take_in(history, [RawQuote(offer, text, "USD", None, f"{offer.cloud}:list")], at_ms)
    return history.now()[offer.key].price_micro_usd_h / 1e6


@pytest.mark.parametrize(("offer", "was", "text"), [(AWS, "2.5", "0.3"), (AZURE_SPOT, "2.19", "1.80")])
def test_restarts_and_polls_on_demand_are_no_more_witnesses(
    history: HistoryStore, offer: Offer, was: str, text: str
) -> None:
    read(history, offer, was, NOW)
    assert {read(history, offer, text, NOW + MINUTE + second * 1000) for second in range(0, 240, 10)} == {
        float(was)
    }


@pytest.mark.parametrize("text", ["0.0001", "2190000", "0.1", "24.5"])
def test_what_no_gpu_can_cost_is_not_believed_however_long_it_is_read(
    history: HistoryStore, text: str
) -> None:
    read(history, AZURE_SPOT, "2.19", NOW)
    assert {read(history, AZURE_SPOT, text, NOW + day * 24 * HOUR) for day in range(1, 30)} == {2.19}


def test_a_false_rise_of_nine_hours_is_never_a_price_at_the_default_interval(history: HistoryStore) -> None:
    read(history, AZURE, "6.98", NOW)
    assert {read(history, AZURE, "7.70", NOW + minute * MINUTE) for minute in range(5, 9 * 60 + 5, 5)} == {
        6.98
    }
    assert read(history, AZURE, "6.98", NOW + 10 * HOUR) == 6.98


class TestAPersonBesideAPoll:
    """The poll has read what is doubted, and stands still before it writes."""

    def interleave(
        self, history: HistoryStore, monkeypatch: pytest.MonkeyPatch, reads: str, act: Callable[[], bool]
    ) -> list[bool]:
        judged, may_go_on = Event(), Event()

        def slow(*arguments: Any) -> Sifted:
            sifted = sift(*arguments)
            judged.set()
            assert may_go_on.wait(10)
            return sifted

        monkeypatch.setattr(intake, "sift", slow)
        answers: list[bool] = []
        poll = Thread(target=read, args=(history, AZURE, reads, NOW + 10 * MINUTE))
        person = Thread(target=lambda: answers.append(act()))
        poll.start()
        assert judged.wait(10)
        person.start()
        person.join(0.2)
        may_go_on.set()
        poll.join(10)
        person.join(10)
        return answers

    def confirm(self, history: HistoryStore) -> Callable[[], bool]:
        entry = history.quarantined()[AZURE.key]
        quote = confirmed(entry, history.now()[AZURE.key])
        return lambda: history.believe(quote, entry.raw.price_text, NOW + 11 * MINUTE)

    @pytest.fixture(autouse=True)
    def doubted(self, history: HistoryStore) -> None:
        read(history, AZURE, "6.98", NOW)
        read(history, AZURE, "7.70", NOW + 5 * MINUTE)

    def test_a_confirmed_price_is_not_doubted_by_a_poll_that_had_begun(
        self, history: HistoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.interleave(history, monkeypatch, "7.70", self.confirm(history)) == [True]
        assert history.now()[AZURE.key].price_micro_usd_h == 7_700_000
        assert history.quarantined() == {}

    def test_a_reading_that_the_poll_has_replaced_cannot_be_confirmed_any_more(
        self, history: HistoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.interleave(history, monkeypatch, "6.98", self.confirm(history)) == [False]
        assert history.now()[AZURE.key].price_micro_usd_h == 6_980_000
        assert history.quarantined() == {}

    def test_a_dropped_reading_stays_dropped(
        self, history: HistoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def drop() -> bool:
            return history.release(AZURE.key, "7.70", NOW + 11 * MINUTE)

        assert self.interleave(history, monkeypatch, "7.70", drop) == [True]
        assert history.quarantined() == {}

    def test_who_drops_what_has_been_replaced_drops_nothing(
        self, history: HistoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def drop() -> bool:
            return history.release(AZURE.key, "7.70", NOW + 11 * MINUTE)

        assert self.interleave(history, monkeypatch, "9.20", drop) == [False]
        assert history.quarantined()[AZURE.key].raw.price_text == "9.20"


def test_what_an_earlier_release_has_doubted_waits_on(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    engine = migration_engine(path)
    made = config("history")
    with engine.begin() as connection:
        made.attributes["connection"] = connection
        command.upgrade(made, "0003")
        for key, needed in (("a", 4), ("b", None)):
            offer = json.dumps(to_plain(replace(AZURE, zone=key)))
            connection.exec_driver_sql(
                "INSERT INTO quarantine (offer_key, offer, price_text, currency, source, reason, first_seen_ms, "
                "last_seen_ms, times_seen, polls_needed) VALUES (?, ?, '7.70', 'USD', 's', 'changed', 1, 2, 3, ?)",
                (replace(AZURE, zone=key).key, offer, needed),
            )
    engine.dispose()
    history = HistoryStore.open(path)
    try:
        found = sorted(history.quarantined().items())
    finally:
        history.close()
    assert [(entry.times_seen, entry.held_ms, entry.needed_ms) for _, entry in found] == [
        (3, 0, 12 * HOUR),
        (3, 0, None),
    ]
