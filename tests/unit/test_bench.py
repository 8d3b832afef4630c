"""What the comparisons of ``make bench`` rest on: both sides give the same answers, and a difference is noticed."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench import catalogue, cheapest, filters, history, ingest
from bench.measure import Row, Skipped, interleave, table
from bench.outside import DUCKDB, GPUHUNT, Outside, installed
from broker.core.offer import Quote
from broker.market.index import MarketIndex
from broker.store.history import HistoryStore

SEED = 7


def client(pin: str) -> None:
    try:
        installed(pin)
    except Skipped as reason:
        pytest.skip(str(reason))


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Callable[[int], filters.Ours]]:
    made: list[filters.Ours] = []

    def make(seed: int) -> filters.Ours:
        before = catalogue.draw(1500, seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        made.append(filters.Ours(folder, before, catalogue.redraw(before, 0.1, seed + 1)))
        return made[-1]

    yield make
    for one in made:
        one.history.close()


def test_the_index_finds_what_a_look_at_each_offer_finds(ours: Callable[[int], filters.Ours]):
    quotes = ours(SEED).quotes
    index = MarketIndex()
    asked = filters.draw_filters(100, SEED)
    hits = [index.find(quotes, one.ours, len(quotes)) for one in asked]
    for one, found in zip(asked, hits, strict=True):
        admitted = [quote for quote in quotes.values() if one.ours.admits(quote)]
        assert filters.fingerprint(found) == filters.fingerprint(admitted), one.ours
    assert len(set(map(len, hits))) > 20, "the filters are different ones"


def test_the_files_hold_the_market_and_all_of_it_is_believed(tmp_path: Path):
    before = catalogue.draw(800, SEED)
    markets = before, catalogue.redraw(before, 0.05, SEED)
    for number, market in enumerate(markets):
        catalogue.write(market, tmp_path / str(number))
    polls = ingest.Polls(tmp_path / "history.db", (tmp_path / "0", tmp_path / "1"))
    try:
        assert polls.take_in(polls.read()) == 0
        assert ingest.check_equal(polls, markets[0]) == 800
        assert polls.take_in(polls.read()) == 40
        assert ingest.check_equal(polls, markets[1]) == 800
    finally:
        polls.history.close()


def test_made_up_points_are_what_polls_would_have_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(history, "BUILD", tmp_path)
    monkeypatch.setattr(history, "POINTS_OF_AN_OFFER", 50)
    made = history.Ours(history.built(200, SEED), 40, SEED)
    polled = HistoryStore.open(tmp_path / "polled.db")
    try:
        offers = [listed.offer for listed in catalogue.draw(4, SEED)]
        series: dict[int, list[list[int]]] = defaultdict(list)
        for number, at_ms, price in history.draw_points(200, SEED):
            series[number].append([at_ms, price])
            polled.ingest([Quote(offers[number - 1], price, at_ms, at_ms, "bench:file")])
        assert made.history.now() == polled.now()
        for number, from_ms, to_ms in made.windows:
            before = [point for point in series[number] if point[0] < from_ms][-1:]
            inside = [point for point in series[number] if from_ms <= point[0] < to_ms]
            assert made.series(number, from_ms, to_ms) == before + inside
    finally:
        made.history.close()
        polled.close()


def test_sides_take_turns_and_only_the_rounds_after_the_warm_up_count():
    order: list[str] = []
    seconds = {"one": iter([9, 1, 2, 3]), "two": iter([9, 40, 50, 60])}

    def side(name: str) -> Callable[[], float]:
        def work() -> float:
            order.append(name)
            return next(seconds[name])

        return work

    assert interleave({name: side(name) for name in seconds}, 3) == {"one": 2000, "two": 50_000}
    assert order == ["one", "two", "two", "one", "one", "two", "two", "one"]


def test_the_table_says_how_many_times_as_much_the_other_takes():
    rows = [Row("asked", 2.0, "other 1.0", 3000.0, "5 answers"), Row("alone", 0.05)]
    assert table(rows).splitlines()[2:] == [
        "| asked | 2 ms | other 1.0 | 3,000 ms | 1,500 × | 5 answers |",
        "| alone | 0.05 ms | – | – | – | – |",
    ]


@pytest.mark.parametrize("catalogs", [None, Path("nowhere.tgz")])
def test_without_skypilots_catalogues_the_comparison_says_what_it_needs(catalogs: Path | None):
    with pytest.raises(Skipped, match="no catalogues of SkyPilot"):
        cheapest.compare(catalogs, 1)


@pytest.mark.process
@pytest.mark.timeout(400)
def test_gpuhunt_finds_the_same_offers_at_the_same_prices(
    ours: Callable[[int], filters.Ours], tmp_path: Path
):
    client(GPUHUNT)
    here, elsewhere = ours(SEED), ours(SEED + 50)
    catalogue.write(here.market, tmp_path / "market")
    asked = filters.draw_filters(100, SEED)
    with Outside(GPUHUNT, "gpuhunt_client.py") as gpuhunt:
        assert gpuhunt.ask("load", folder=str(tmp_path / "market"))["rows"] == 1500
        hits = filters.check_equal(gpuhunt, here, asked)
        assert sum(hits) > 1000
        with pytest.raises(AssertionError, match="offers here"):
            filters.check_equal(gpuhunt, elsewhere, asked)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(400)
def test_duckdb_says_the_same_of_the_past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    client(DUCKDB)
    monkeypatch.setattr(history, "BUILD", tmp_path)
    rows = history.compare(20_000, 30, 1, SEED)
    assert [row.ratio is not None for row in rows] == [True, True, True, False, True, True]
