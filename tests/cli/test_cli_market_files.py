"""`broker market export` and `import`: beside a daemon's database, with exit codes, and nothing by halves."""

import csv
import json
from dataclasses import replace

import pytest

from broker.core.offer import Quote
from broker.core.time import DAY_S, MS, to_iso
from broker.store.history import HistoryStore
from broker.store.past_files import write
from broker.store.state import StateStore
from tests.clocks import CountingIds, ManualClock
from tests.unit.serve.conftest import OFFER
from tests.unit.store import rows

NOW = 1_790_000_000_000


@pytest.fixture
def history(tmp_path, monkeypatch, cli):
    """A daemon's history, open; the CLI works beside it."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    store = HistoryStore.open(tmp_path / "state" / "history.db")
    yield store
    store.close()


def put(history, *days: int) -> None:
    for day in days:
        at_ms = NOW - (100 - day) * DAY_S * MS
        history.ingest([Quote(OFFER, 20_000_000 + day, at_ms, at_ms, "aws:spot_history")])


def prices(history, key=OFFER.key):
    return [point.price_micro_usd_h for point in history.points(key, 0, 10**15)]


@pytest.mark.parametrize("name", ["market.parquet", "market.csv"])
def test_out_and_in_again_elsewhere(history, cli, tmp_path, monkeypatch, name):
    put(history, 1, 2, 3)
    code, out, err = cli("market", "export", tmp_path / name)
    assert (code, out) == (0, "")
    assert f"changes of price in {tmp_path / name}: 3" in err
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "elsewhere"))
    word = "file" if name.endswith(".csv") else "auto"
    code, _, err = cli("market", "import", tmp_path / name, "--observed-at", word)
    assert (
        code,
        "imported: 3; rows that said nothing new: 0; known since: as the file says" in err,
    ) == (0, True)
    other = HistoryStore.open(tmp_path / "elsewhere" / "history.db")
    try:
        assert other.points(OFFER.key, 0, 10**15) == history.points(OFFER.key, 0, 10**15)
        assert other.now() == {}
    finally:
        other.close()


def test_since_and_cloud(history, cli, tmp_path):
    put(history, 1, 2, 3)
    since = to_iso(NOW - 97 * DAY_S * MS - DAY_S * MS // 2)
    assert json.loads(cli("market", "export", tmp_path / "m.csv", "--since", since, "--json")[1])["rows"] == 2
    assert json.loads(cli("market", "export", tmp_path / "m.csv", "--cloud", "gcp", "--json")[1])["rows"] == 0
    assert cli("market", "export", tmp_path / "m.csv", "--cloud", "gpc")[0] == 2
    assert cli("market", "export", tmp_path / "m.csv", "--since", "ever")[0] == 2
    assert cli("market", "export", tmp_path / "m.txt")[0] == 2
    assert not (tmp_path / "m.txt").exists()


def test_without_a_history_there_is_nothing_to_export(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "nowhere"))
    assert cli("market", "export", tmp_path / "m.csv")[0] == 3
    assert not (tmp_path / "nowhere").exists()


def test_a_csv_of_others_is_known_since_now(history, cli, tmp_path):
    put(history, 1, 2)
    cli("market", "export", tmp_path / "m.csv")
    history.close()
    (tmp_path / "state" / "history.db").unlink()
    code, _, err = cli("market", "import", tmp_path / "m.csv")
    assert (code, "known since: now" in err) == (0, True)
    fresh = HistoryStore.open(tmp_path / "state" / "history.db")
    try:
        first, second = fresh.points(OFFER.key, 0, 10**15)
        assert first.effective_at_ms == NOW - 99 * DAY_S * MS
        assert first.observed_at_ms == second.observed_at_ms > NOW - 99 * DAY_S * MS
        assert first.source == "import:aws:spot_history"
    finally:
        fresh.close()


class TestWrongRows:
    @pytest.fixture
    def file(self, history, cli, tmp_path):
        put(history, 1, 2, 3)
        cli("market", "export", tmp_path / "m.csv")
        with open(tmp_path / "m.csv", encoding="utf-8", newline="") as source:
            lines = list(csv.reader(source))
        at = lines[0].index("price_micro_usd_h")
        lines[2][at] = "0"
        lines[1][lines[0].index("zone")] = "use1-az9"
        lines[3][lines[0].index("zone")] = "use1-az9"
        with open(tmp_path / "m.csv", "w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows(lines)
        return tmp_path / "m.csv"

    def test_one_imports_nothing_and_is_told_with_its_number(self, history, cli, file):
        code, _, err = cli("market", "import", file)
        assert code == 2
        assert "row 2: price_micro_usd_h: 0 is not between 1 and" in err
        assert "1 of 3 rows are wrong; nothing is imported" in err
        assert prices(history, OFFER.key.replace("az6", "az9")) == []

    def test_with_skip_bad_the_others_are_imported(self, history, cli, file):
        code, out, err = cli("market", "import", file, "--skip-bad", "--json")
        assert code == 0
        assert json.loads(out) == {
            "rows": 3,
            "wrong": 1,
            "points": 2,
            "known": 0,
            "newer": 0,
            "rebilled": 0,
            "observed_at": "import",
        }
        assert "row 2" in err
        assert prices(history, OFFER.key.replace("az6", "az9")) == [20_000_001, 20_000_003]

    def test_other_mistakes(self, cli, history, tmp_path, file):
        assert cli("market", "import", tmp_path / "none.csv")[0] == 2
        assert cli("market", "import", file, "--observed-at", "yesterday")[0] == 2
        (tmp_path / "few.csv").write_text("cloud,region\n")
        code, _, err = cli("market", "import", tmp_path / "few.csv")
        assert (code, "no column zone, instance_type" in err) == (2, True)


def test_what_contradicts_the_price_now_is_told(history, cli, tmp_path):
    put(history, 1, 2, 3)
    cli("market", "export", tmp_path / "m.parquet")
    text = cli("market", "import", tmp_path / "m.parquet")[2]
    assert "imported: 0; rows that said nothing new: 3" in text
    history.close()
    (tmp_path / "state" / "history.db").unlink()
    store = HistoryStore.open(tmp_path / "state" / "history.db")
    try:
        at_ms = NOW - 98 * DAY_S * MS
        store.ingest([Quote(OFFER, 5_000_000, at_ms, at_ms, "aws:spot_history")])
        text = cli("market", "import", tmp_path / "m.parquet")[2]
        assert "imported: 1;" in text
        assert "newer than the price that their offer has now, and left out: 2" in text
        assert store.now()[OFFER.key].price_micro_usd_h == 5_000_000
    finally:
        store.close()


def test_a_price_that_nobody_could_have_paid_gets_in_by_no_door(history, cli, tmp_path):
    put(history, 1)
    cli("market", "export", tmp_path / "m.csv")
    text = (tmp_path / "m.csv").read_text()
    (tmp_path / "m.csv").write_text(text.replace("20000001", "900000000000"))
    code, _, err = cli("market", "import", tmp_path / "m.csv")
    assert code == 2
    assert "row 1: $900000.00/h is outside what 8 x H100-SXM5-80GB spot can cost" in err
    assert prices(history) == [20_000_001]


class TestBills:
    """A node of ours ran from day 10 to day 20, while a daemon has both databases open."""

    def day(self, number: int) -> int:
        return NOW - (100 - number) * DAY_S * MS

    @pytest.fixture(autouse=True)
    def ran(self, history, tmp_path):
        put(history, 5, 15, 30)
        store = StateStore.open(tmp_path / "state" / "state.db", ManualClock(NOW), CountingIds())
        with store.write() as tx:
            tx.save(rows.job())
            tx.save(replace(rows.placement(), offer=OFFER))
            tx.save(rows.node(billed_from_ms=self.day(10), ended_at_ms=self.day(20)))
        yield
        store.close()

    @pytest.fixture
    def bring(self, cli, tmp_path):
        def bring(points, *options, offer=OFFER):
            quotes = [Quote(offer, price, self.day(at), self.day(at), "s") for at, price in points]
            write(tmp_path / "m.csv", quotes, NOW)
            return cli("market", "import", tmp_path / "m.csv", *options)

        return bring

    def test_a_price_that_changes_one_is_told_and_refused(self, history, bring):
        code, _, err = bring([(1, 18_000_000), (12, 19_000_000), (17, 21_000_000), (25, 22_000_000)])
        assert code == 6
        assert (
            f"{OFFER.key}: nodes of yours ran at 2 of its prices, {to_iso(self.day(12))} to {to_iso(self.day(17))}"
            in err
        )
        assert "2 prices would change what nodes of yours have cost; nothing is imported" in err
        assert prices(history) == [20_000_005, 20_000_015, 20_000_030]

    def test_on_your_word_it_is_imported_and_told_all_the_same(self, history, bring):
        code, out, err = bring([(12, 19_000_000)], "--rebill", "--json")
        assert (code, json.loads(out)["points"], json.loads(out)["rebilled"]) == (0, 1, 1)
        assert "nodes of yours ran at 1 of its prices" in err
        assert prices(history) == [20_000_005, 19_000_000, 20_000_015, 20_000_030]

    @pytest.mark.parametrize(
        "points",
        [
            [(1, 18_000_000)],  # until day 5
            [(25, 22_000_000)],
            [(12, 20_000_005)],  # what held then
            [(5, 20_000_005), (15, 20_000_015)],
        ],
    )
    def test_what_changes_none_is_imported(self, bring, points):
        assert bring(points)[0] == 0

    def test_what_held_when_it_began_changes_it(self, bring):
        assert bring([(7, 18_000_000)])[0] == 6

    def test_another_offer_changes_none(self, bring):
        assert bring([(12, 18_000_000)], offer=replace(OFFER, zone="use1-az9"))[0] == 0
