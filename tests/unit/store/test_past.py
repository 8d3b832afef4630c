"""History out and in: the same points come back, the past never looks like now, and wrong rows are told."""

import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.errors import BrokerError, UsageError
from broker.core.offer import Market, Offer, Quote
from broker.core.time import to_iso
from broker.store import past_files
from broker.store.history import HistoryStore
from broker.store.past import Added, PastStore
from broker.store.past_files import read, write
from broker.store.past_rows import COLUMNS, Observed, quote_of
from tests.unit.store.rows import OFFER

NOW = 1_790_000_000_000
MINUTE = 60_000
FRESH = count()
CLOUDS = ("aws", "gcp")
OTHER = replace(OFFER, cloud="gcp", zone="us-central1-a", market=Market.ON_DEMAND)


def at(
    minute: int, price: int, observed: int | None = None, offer: Offer = OFFER, source: str = "s"
) -> Quote:
    seen = minute if observed is None else observed
    return Quote(offer, price, NOW + (minute - 1000) * MINUTE, NOW + (seen - 1000) * MINUTE, source)


@pytest.fixture
def past(history: HistoryStore, tmp_path: Path):
    store = PastStore.open(tmp_path / "history.db")
    yield store
    store.close()


@pytest.fixture
def elsewhere(tmp_path: Path):
    store = PastStore.open(tmp_path / "elsewhere" / "history.db")
    yield store
    store.close()


def held(points: list[Quote], moment_ms: int, known_ms: int) -> int | None:
    """The price of a moment, by what was known then."""
    seen = [p for p in points if p.effective_at_ms <= moment_ms and p.observed_at_ms <= known_ms]
    return max(seen, key=lambda p: (p.effective_at_ms, p.observed_at_ms)).price_micro_usd_h if seen else None


def quotes_in(file: Path, observed: Observed = Observed.FILE) -> list[Quote]:
    return [quote_of(row, NOW, observed, CLOUDS) for batch in read(file).batches() for row in batch]


class TestOut:
    @pytest.mark.parametrize("name", ["market.parquet", "market.csv"])
    def test_what_is_written_is_read_again(self, history, past, tmp_path, name):
        history.ingest([at(1, 10), at(5, 12, observed=7), at(5, 13, observed=9), at(2, 99, offer=OTHER)])
        file = tmp_path / name
        assert write(file, past.quotes(), NOW) == 4
        assert quotes_in(file) == list(past.quotes())
        assert read(file).ours is (name == "market.parquet")
        assert list(tmp_path.glob(".*partial")) == []

    def test_since_begins_with_what_held_and_a_cloud_is_alone(self, history, past):
        history.ingest([at(1, 10), at(5, 12), at(9, 14), at(2, 99, offer=OTHER)])
        since = at(7, 1).effective_at_ms
        assert list(past.quotes(since, "aws")) == [at(5, 12), at(9, 14)]
        assert list(past.quotes(at(5, 1).effective_at_ms, "aws")) == [at(5, 12), at(9, 14)]
        assert list(past.quotes(0, "gcp")) == [at(2, 99, offer=OTHER)]

    def test_parquet_says_its_units(self, history, past, tmp_path):
        history.ingest([at(1, 10)])
        write(tmp_path / "m.parquet", past.quotes(), NOW)
        schema = pyarrow.parquet.read_schema(tmp_path / "m.parquet")
        assert schema.names == list(COLUMNS)
        assert schema.field("effective_at").type == pyarrow.timestamp("ms", tz="UTC")
        assert schema.metadata[b"broker.format"] == b"price-points/1"

    def test_it_is_written_in_row_groups(self, tmp_path, monkeypatch):
        monkeypatch.setattr(past_files, "ROW_GROUP", 100)
        many = (at(1, price) for price in range(1, 202))
        assert write(tmp_path / "m.parquet", many, NOW) == 201
        about = pyarrow.parquet.ParquetFile(tmp_path / "m.parquet").metadata
        assert [about.row_group(n).num_rows for n in range(about.num_row_groups)] == [100, 100, 1]

    def test_a_file_of_another_kind_or_place_is_refused(self, tmp_path):
        with pytest.raises(UsageError, match=r"name it \.parquet or \.csv"):
            write(tmp_path / "m.xlsx", [], NOW)
        with pytest.raises(BrokerError, match="cannot write"):
            write(tmp_path / "nowhere" / "m.csv", [], NOW)


class TestIn:
    def test_it_is_no_price_now(self, history, past):
        assert past.add([at(1, 10), at(2, 12)], confirmed=False) == Added(points=2)
        assert history.now() == {}
        assert [p.price_micro_usd_h for p in history.points(OFFER.key, 0, NOW)] == [10, 12]
        history.ingest([at(5, 14)])
        assert history.now()[OFFER.key] == at(5, 14)

    def test_what_contradicts_the_price_now_is_left_out(self, history, past):
        history.ingest([at(5, 14, observed=9)])
        added = past.add([at(1, 10), at(5, 13), at(7, 20), at(8, 14)], confirmed=True)
        assert added == Added(points=1, known=1, newer=2)
        assert history.now()[OFFER.key] == at(5, 14, observed=9)
        assert [p.price_micro_usd_h for p in history.points(OFFER.key, 0, NOW)] == [10, 14]

    def test_again_is_nothing_new(self, past):
        rows = [at(1, 10), at(2, 12), at(2, 13, observed=4), at(3, 12)]
        assert past.add(rows, confirmed=True).points == 4
        assert past.add(rows, confirmed=True) == Added(known=4)

    def test_what_another_broker_knew_earlier_is_known_earlier(self, past):
        past.add([at(5, 10, observed=9)], confirmed=True)
        assert past.add([at(5, 10, observed=6)], confirmed=True) == Added(points=1)
        assert past.add([at(5, 10, observed=6)], confirmed=True) == Added(known=1)
        assert [
            held(list(past.quotes()), at(5, 1).effective_at_ms, at(m, 1).effective_at_ms) for m in (5, 6, 9)
        ] == [None, 10, 10]

    def test_a_price_that_is_written_down_every_hour_is_one_point(self, past):
        hourly = [at(minute, 10, observed=900) for minute in range(0, 600, 60)]
        assert past.add(hourly, confirmed=False) == Added(points=1, known=9)
        confirmed = [replace(quote, offer=OTHER) for quote in hourly]
        assert past.add(confirmed, confirmed=True) == Added(points=10)

    def test_an_offer_keeps_the_shape_that_polls_gave_it(self, history, past):
        history.ingest([at(5, 14)])
        past.add([at(1, 10, offer=replace(OFFER, vcpus=1, gpus=1))], confirmed=False)
        assert {p.offer for p in history.points(OFFER.key, 0, NOW)} == {OFFER}
        assert history.now()[OFFER.key].offer == OFFER

    def test_a_price_of_an_imported_offer_is_seen_by_who_holds_the_offers(self, history, past):
        history.ingest([at(5, 14)])
        assert len(history.now()) == 1
        past.add([at(1, 10, offer=OTHER)], confirmed=False)
        assert [known.offer for known in history.offers([OTHER.gpu], cloud="gcp")] == [OTHER]

    @given(
        st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3), st.integers(0, 6)), max_size=9),
        st.integers(1, 9),
    )
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
    def test_an_export_brought_elsewhere_in_pieces_says_the_same_at_any_moment(
        self, history, past, elsewhere, rows, size
    ):
        offer = replace(OFFER, zone=f"z{next(FRESH)}")
        for minute, price, late in rows:
            history.ingest([at(minute, price, minute + late, offer)])
        exported = [quote for quote in past.quotes() if quote.offer == offer]
        for start in range(0, len(exported), size):
            elsewhere.add(exported[start : start + size], confirmed=True)
        brought = [quote for quote in elsewhere.quotes() if quote.offer == offer]
        moments = [at(minute, 1).effective_at_ms for minute in range(20)]
        for known in moments:
            for moment in moments:
                assert held(brought, moment, known) == held(exported, moment, known)

    def test_a_database_of_another_release_is_left_alone(self, tmp_path, history, past):
        with history._engines.writer.begin() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
        with pytest.raises(BrokerError, match="another release"):
            PastStore.open(tmp_path / "history.db")


ROW = {
    "cloud": "aws",
    "region": "us-east-1",
    "zone": "use1-az6",
    "instance_type": "p5.48xlarge",
    "market": "spot",
    "gpu": "H100-SXM5-80GB",
    "gpus": "8",
    "vcpus": "192",
    "memory_gib": "2048",
    "interconnect": "nvlink",
    "fabric": "efa",
    "price_micro_usd_h": "24000000",
    "effective_at": to_iso(NOW - 5 * MINUTE),
    "observed_at": to_iso(NOW - 3 * MINUTE),
    "source": "aws:spot_history",
}


class TestRows:
    def test_when_it_was_known(self):
        by_file = quote_of(ROW, NOW, Observed.FILE, CLOUDS)
        assert (by_file.effective_at_ms, by_file.observed_at_ms) == (NOW - 5 * MINUTE, NOW - 3 * MINUTE)
        assert by_file.source == "aws:spot_history"
        by_import = quote_of(ROW, NOW, Observed.IMPORT, CLOUDS)
        assert (by_import.effective_at_ms, by_import.observed_at_ms) == (NOW - 5 * MINUTE, NOW)
        assert by_import.source == "import:aws:spot_history"

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"cloud": "asw"}, "cloud: 'asw' is not known; did you mean aws?"),
            ({"cloud": ""}, "cloud: empty"),
            ({"zone": "a/b"}, "zone: 'a/b' has a slash"),
            ({"region": "us\n"}, "cannot be seen"),
            ({"market": "cheap"}, "market: 'cheap' is not one of owned, spot"),
            ({"gpu": "H100"}, "gpu: 'H100' is not known"),
            ({"gpus": "0"}, "gpus: 0 is not between 1 and 1024"),
            ({"gpus": "8.0"}, "gpus: '8.0' is no whole number"),
            ({"gpus": True}, "no whole number"),
            ({"zone": ["a"]}, "neither text nor a number"),
            ({"price_micro_usd_h": "0"}, "price_micro_usd_h: 0 is not between"),
            ({"price_micro_usd_h": "-5"}, "price_micro_usd_h: -5 is not between"),
            ({"price_micro_usd_h": 1e6}, "no whole number"),
            ({"effective_at": "2026-09-01"}, "effective_at: '2026-09-01' has no time zone"),
            ({"effective_at": NOW // 1000}, "is before there was a cloud"),
            ({"effective_at": NOW * 1000}, "is no moment"),
            ({"effective_at": None}, "effective_at: empty"),
            ({"effective_at": to_iso(NOW + 1)}, "is still to come"),
            ({"observed_at": to_iso(NOW - 9 * MINUTE)}, "observed_at: known before it was so"),
            ({"observed_at": None}, "observed_at: empty"),
            ({"source": ""}, "source: empty"),
        ],
    )
    def test_what_is_wrong(self, change, words):
        with pytest.raises(ValueError, match=r".") as caught:
            quote_of(ROW | change, NOW, Observed.FILE, CLOUDS)
        assert words in str(caught.value)


class TestFiles:
    def csv(self, tmp_path, *lines: str) -> Path:
        (tmp_path / "m.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path / "m.csv"

    def test_columns_that_may_be_left_out(self, tmp_path):
        names = [
            name for name in COLUMNS if name not in ("vcpus", "memory_gib", "fabric", "observed_at", "source")
        ]
        file = self.csv(
            tmp_path,
            ",".join((*names, "note")),
            ",".join((*(ROW[n] for n in names), "x")).replace("nvlink", ""),
        )
        assert read(file).unknown == ("note",)
        (quote,) = quotes_in(file, Observed.IMPORT)
        assert (quote.offer.interconnect, quote.offer.vcpus, quote.source) == ("pcie", 0, "import")

    def test_a_column_that_is_needed_is_named(self, tmp_path):
        with pytest.raises(UsageError, match="no column gpus, effective_at"):
            read(self.csv(tmp_path, ",".join(n for n in COLUMNS if n not in ("gpus", "effective_at"))))

    def test_a_column_that_is_there_twice_is_named_and_none_of_them_is_believed(self, tmp_path):
        names = (*COLUMNS, "note", "gpus")
        cells = (*(str(ROW[n]) for n in COLUMNS), "x", "1")
        with pytest.raises(UsageError, match=r"m.csv: the column gpus twice, at 7 and 17"):
            read(self.csv(tmp_path, ",".join(names), ",".join(cells)))
        arrays = [pyarrow.array([cell]) for cell in cells]
        pyarrow.parquet.write_table(
            pyarrow.Table.from_arrays(arrays, names=list(names)), tmp_path / "m.parquet"
        )
        with pytest.raises(UsageError, match=r"m.parquet: the column gpus twice, at 7 and 17"):
            read(tmp_path / "m.parquet")

    def test_what_is_no_such_file(self, tmp_path):
        for name, content in (("m.parquet", b"PAR0"), ("m.csv", b"\xff\xfe"), ("m.txt", b"")):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(UsageError):
                read(tmp_path / name)
        with pytest.raises(UsageError, match="cannot read"):
            read(tmp_path / "nowhere.csv")

    @pytest.mark.parametrize("kind", [pyarrow.int64(), pyarrow.timestamp("ms")])
    def test_a_parquet_time_without_unit_or_zone_is_refused(self, tmp_path, kind):
        columns = {name: pyarrow.array([ROW[name]]) for name in COLUMNS}
        columns["effective_at"] = pyarrow.array([NOW], kind)
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "m.parquet")
        with pytest.raises(UsageError, match="effective_at is"):
            read(tmp_path / "m.parquet")

    def test_parquet_of_others_may_have_text_and_other_units(self, tmp_path):
        columns = {name: pyarrow.array([ROW[name]]) for name in COLUMNS}
        columns["observed_at"] = pyarrow.array([NOW * 1_000_000], pyarrow.timestamp("ns", tz="Europe/Berlin"))
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "m.parquet")
        assert not read(tmp_path / "m.parquet").ours
        (quote,) = quotes_in(tmp_path / "m.parquet")
        assert (quote.effective_at_ms, quote.observed_at_ms) == (NOW - 5 * MINUTE, NOW)

    def test_without_pyarrow_the_extra_is_named(self, tmp_path, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
        with pytest.raises(UsageError, match=r"'\.\[parquet\]' in the checkout"):
            write(tmp_path / "m.parquet", [], NOW)
        assert write(tmp_path / "m.csv", [], NOW) == 0


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("put", "words"),
    [
        (os.mkfifo, "it is a pipe"),
        (Path.mkdir, "it is a folder"),
        (lambda place: place.symlink_to("/dev/zero"), "it is a device"),
        (lambda place: None, "No such file"),
    ],
)
def test_what_is_no_file_is_refused_and_not_waited_for(
    tmp_path: Path, put: Callable[[Path], None], words: str, ending: str
) -> None:
    file = tmp_path / f"history.{ending}"
    put(file)
    with pytest.raises(UsageError, match=f"cannot read .*history.{ending}: {words}"):
        read(file)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_two_exports_into_one_name_leave_one_of_them_whole(tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"m.{ending}"

    def slow():
        yield at(1, 10)
        assert write(path, [at(2, 20)], NOW) == 1
        yield at(3, 30)

    assert write(path, slow(), NOW) == 2
    rows = [row["price_micro_usd_h"] for batch in read(path).batches() for row in batch]
    assert list(map(int, rows)) == [10, 30]
    assert os.listdir(tmp_path) == [path.name]


def test_a_line_without_an_end_is_not_read_whole(tmp_path):
    file = tmp_path / "m.csv"
    with open(file, "wb") as out:
        out.write(",".join(COLUMNS).encode() + b"\n")
        out.truncate(400 << 20)
    tracemalloc.start()
    with pytest.raises(UsageError, match="line 2 is longer than 100000 characters"):
        list(read(file).batches())
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()
    os.truncate(file, 0)
    with open(file, "wb") as out:
        out.truncate(400 << 20)
    with pytest.raises(UsageError, match="line 1 is longer than 100000 characters"):
        read(file)
