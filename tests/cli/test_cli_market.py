"""`broker prices`, `history`, `market`, `quarantine`: what is shown, what is drawn, and exit codes."""

import json
import re
import sys
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from broker.cli.curve_plots import in_terminal
from broker.cli.obtainability import words
from broker.cli.output import show_table
from broker.core.availability import Availability, Signal
from broker.core.offer import MarketSnapshot, Quote, RawQuote
from broker.core.time import DAY_S, MS, to_iso
from broker.store.history import Poll, PollKind
from tests.unit.serve.conftest import OFFER

SMALL = replace(OFFER, zone="use1-az2", instance_type="p5.4xlarge", gpus=1)


def on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setenv("NO_COLOR", "1")


def put(daemon, offer, usd_h, days_ago=0.0):
    at_ms = daemon.clock.now_ms() - round(days_ago * DAY_S * MS)
    daemon.history.ingest([Quote(offer, round(usd_h * 1e6), at_ms, at_ms, "aws:spot_history")])


@pytest.mark.parametrize(
    ("signal", "low", "high", "said"),
    [
        (Signal.PLACEMENT_SCORE, 8, 8, "score 8/10"),
        (Signal.PLACEMENT_RANK, 3, 3, "chance high"),
        (Signal.OBTAINABILITY, 0.7, 0.7, "70 %"),
        (Signal.PREEMPTION_RATE, 0.25, 0.25, "preempted 25 %"),
        (Signal.EVICTION_RATE, 0.05, 0.1, "evicted 5–10 %/h"),
        (Signal.LISTED, 1, 1, "listed"),
        (Signal.LISTED, 0, 0, "none listed"),
        ("weather", 1, 2, "weather 1–2"),
    ],
)
def test_obtainability_in_words(signal, low, high, said):
    assert words([{"signal": str(signal), "low": low, "high": high}]) == said


def test_no_signal_is_without_words():
    for signal in Signal:
        assert words([{"signal": signal.value, "low": 1, "high": 1}]) != f"{signal.value} 1"


def test_a_table_of_160_columns_cuts_no_cell_and_has_no_column_that_says_nothing(monkeypatch, capsys):
    on_a_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "160")
    columns = ("OFFER", "GPU", "COUNT", "$/H", "$/GPU/H", "LIST", "AGE", "SOURCE", "OBTAIN", "LINK", "REGION")
    row = (
        *("gcp/us-central1-a/a3-highgpu-1g/spot", "H100-SXM5-80GB", 1, "$2.95", "$2.95", None, "3m42s"),
        *("gcp:capacity_history", "90 % · preempted 12 %", "gpudirect", "us-central1"),
    )
    show_table(columns, [row, row])
    head, *lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert "LIST" not in head
    assert max(map(len, lines)) <= 160
    first = next(line for line in lines if row[0] in line)
    for cell in ("H100-SXM5-80GB", "gcp:capacity_history", "90 % · preempted", "gpudirect", "us-central1"):
        assert cell in first


class TestPrices:
    def test_a_line_holds_what_decides(self, daemon, cli):
        now_ms = daemon.clock.now_ms()
        snapshot = MarketSnapshot(
            now_ms,
            daemon.history.now(),
            hints={OFFER.key: (Availability(OFFER.key, Signal.PLACEMENT_SCORE, 8, 8, now_ms, "x"),)},
            quarantined={OFFER.key: "jumped"},
            list_micro_usd_h={OFFER.key: 48_000_000},
        )
        object.__setattr__(daemon.services, "snapshot", lambda: snapshot)
        code, out, _ = cli("prices", "--gpu", "H100", "--count", "8", "--market", "spot", "--per-flop")
        assert code == 0
        (cells,) = [line.split("\t") for line in out.splitlines()]
        assert cells == [
            OFFER.key,
            OFFER.gpu,
            "8",
            "$24.00",
            "$3.00",
            "$3.793",
            "$48.00",
            "30s",
            "aws:spot_history",
            "score 8/10",
            "pcie/ethernet",
            "us-east-1",
            "newest reading in quarantine: jumped",
        ]

    def test_counts_and_prices_narrow(self, daemon, cli):
        put(daemon, SMALL, 2.5)
        shown = {
            "8": [OFFER.key],
            "1-4": [SMALL.key],
            "1+": [SMALL.key, OFFER.key],
        }
        for count, keys in shown.items():
            out = cli("prices", "--gpu", "H100", "--count", count)[1]
            assert [line.split("\t")[0] for line in out.splitlines()] == keys, count
        out = cli("prices", "--gpu", "H100", "--max-usd", "2.50")[1]
        assert [line.split("\t")[0] for line in out.splitlines()] == [SMALL.key]
        code, out, err = cli("prices", "--vram", "641", "--gpu", "H100")
        assert (code, out) == (0, "")
        assert "no accepted quote matches" in err

    def test_what_the_limit_leaves_out_is_said_and_json_has_all(self, daemon, cli):
        for zone in range(59):
            put(daemon, replace(SMALL, zone=f"use1-az{zone:02}"), 2 + zone / 100)
        code, out, err = cli("prices", "--gpu", "H100")
        assert (code, out.count("\n")) == (0, 50)
        assert "50 of 60 shown; -n N for more" in err.splitlines()
        answer = json.loads(cli("prices", "--gpu", "H100", "--json")[1])
        assert (len(answer["items"]), answer["total"], answer["truncated"]) == (60, 60, False)
        code, out, err = cli("prices", "--gpu", "H100", "--json", "-n", "2")
        answer = json.loads(out)
        assert (len(answer["items"]), answer["total"], answer["truncated"]) == (2, 60, True)
        assert "2 of 60 shown; -n N for more" in err.splitlines()
        assert "shown" not in cli("prices", "--gpu", "H100", "-n", "60")[2]

    def test_an_answer_without_rows_says_what_is_in_the_way(self, daemon, cli):
        put(daemon, SMALL, 2.5)
        code, out, err = cli("prices", "--gpu", "H100", "--count", "3")
        assert (code, out) == (0, "")
        assert err.splitlines()[0] == "no accepted quote matches: H100 is sold with 1 and 8"
        err = cli("prices", "--gpu", "H100", "--market", "reserved")[2]
        assert err.splitlines()[0] == "no accepted quote matches: no cloud's reserved prices are read"

    @pytest.mark.parametrize(
        ("option", "value", "hint"),
        [
            ("--count", "8x", "write 8, 4-8 or 4+"),
            ("--count", "8-4", "write 8, 4-8 or 4+"),
            ("--count", "0", "write 8, 4-8 or 4+"),
            ("--max-usd", "cheap", "write 40 or 2.50"),
            ("--max-usd", "-1", "write 40 or 2.50"),
            ("--market", "foo", "write owned, spot, on_demand or reserved"),
        ],
    )
    def test_a_wrong_option_is_said_with_what_to_write(self, cli, option, value, hint):
        code, out, err = cli("prices", option, value)
        assert (code, out) == (2, "")
        assert err.startswith(f"error: {option}: ")
        assert hint in err

    def test_a_market_is_understood_as_people_write_it(self, daemon, cli):
        assert cli("prices", "--market", "Spot", "--gpu", "H100")[1].split("\t")[0] == OFFER.key
        assert cli("history", "H100", "--market", "on-demand")[0] == 0
        code, _, err = cli("history", "H100", "--market", "foo")
        assert (code, err.splitlines()[0]) == (2, "error: --market: there is no 'foo'")

    def test_what_is_missing_is_said_beside_the_answer(self, daemon, cli):
        now_ms = daemon.clock.now_ms()
        azure = replace(OFFER, cloud="azure", region="eastus", zone="eastus", instance_type="Standard_ND96")
        put(daemon, azure, 40)
        daemon.history.record_poll(Poll("aws", now_ms - 720_000, 0, True, 1000, 7))
        daemon.history.record_poll(Poll("aws", now_ms - 120_000, 0, False, error="timed out"))
        code, out, err = cli("prices", "--gpu", "H100", "--region", "US-*")
        assert (code, out.count("\n")) == (0, 1)
        assert err.splitlines() == [
            "aws: prices are 12m old: the last poll has failed: timed out",
            "azure: not configured",
            "local: not configured",
            "azure: 1 offer, and no region like 'US-*'; its own are named like eastus",
        ]
        code, out, err = cli("prices", "--cloud", "coreweave")
        assert (code, out) == (0, "")
        assert "coreweave: not configured" in err.splitlines()
        answer = json.loads(cli("prices", "--json", "--region", "US-*", "--gpu", "H100")[1])
        assert [cloud["cloud"] for cloud in answer["unread"]] == ["aws", "azure", "local"]
        assert answer["elsewhere"] == [{"cloud": "azure", "offers": 1, "region": "eastus"}]

    def test_the_age_of_a_list_with_a_date_is_beside_that_of_the_poll(self, daemon, cli):
        now_ms = daemon.clock.now_ms()
        coreweave = replace(OFFER, cloud="coreweave", zone="US-EAST-04A")
        day = to_iso(now_ms - 71 * DAY_S * MS)[:10]
        source = f"coreweave:price_list:{day}"
        daemon.history.ingest([Quote(coreweave, 40_000_000, now_ms - DAY_S * MS, now_ms - 30_000, source)])
        (cells,) = [line.split("\t") for line in cli("prices", "--cloud", "coreweave")[1].splitlines()]
        assert re.fullmatch(r"30s, list 71d(\d+h)?", cells[6])

    def test_an_estimated_speed_is_marked(self, daemon, cli):
        put(daemon, replace(SMALL, gpu="H200-SXM-141GB"), 3)
        code, out, err = cli("prices", "--market", "spot", "--per-flop")
        assert code == 0
        assert [line.split("\t")[5] for line in out.splitlines()] == ["$3.793", "~$4.333"]
        assert "~ by an estimated speed" in err
        assert "~" not in cli("prices", "--gpu", "H100", "--per-flop")[2], "nothing is estimated there"

    def test_json_is_what_the_api_says(self, daemon, cli):
        (item,) = json.loads(cli("prices", "--gpu", "H100", "--json")[1])["items"]
        assert (item["micro_usd_per_gpu_h"], item["hints"], item["prices_only"]) == (3_000_000, [], False)


class TestHistory:
    def test_in_a_pipe_every_change_is_a_line(self, daemon, cli):
        put(daemon, SMALL, 2.0, days_ago=2)
        put(daemon, SMALL, 2.5)
        code, out, _ = cli("history", "H100", "--count", "1")
        assert code == 0
        rows = [line.split("\t") for line in out.splitlines()]
        assert [(row[0], row[2], row[3], row[5]) for row in rows] == [
            (SMALL.key, "$2.00", "$2.00", "aws:spot_history"),
            (SMALL.key, "$2.50", "$2.50", "aws:spot_history"),
        ]
        assert rows[0][1] < rows[1][1]

    def test_on_a_terminal_a_plot_and_a_line_an_offer(self, daemon, cli, monkeypatch):
        on_a_terminal(monkeypatch)
        put(daemon, SMALL, 2.0, days_ago=2)
        put(daemon, SMALL, 2.5)
        code, out, _ = cli("history", "H100", "--since", "3d")
        assert code == 0
        drawn = [line for line in out.splitlines() if any("⠀" < letter <= "⣿" for letter in line)]
        assert drawn, "braille"
        assert "\x1b" not in "".join(drawn), "no colour"
        assert re.search(r"^ +(\d+\.\d\d)? \|.*1", out, re.M), "a curve ends in the number of its row"
        assert "$/GPU/h" in out
        assert re.findall(r"^ +(\d+\.\d\d) \|", out, re.M) == ["5.00", "4.00", "3.00", "2.00", "1.00", "0.00"]
        (row,) = [line for line in out.splitlines() if SMALL.key in line]
        assert row.split()[4:8] == ["$2.50", "$2.00", "$2.50", "2"]

    @pytest.mark.parametrize(
        ("days", "first", "between_days", "dates"),
        [
            (400, "11 Dec 2024", 58, r"\d\d \w{3} 20\d\d"),
            (30, "23 Oct", 7, r"\d\d \w{3}"),
            (6, "14 Nov", 1, r"\d\d \w{3}"),
            (2, "18 Nov 00:00", 0.5, r"\d\d \w{3} [01][02]:00"),
            (1, "18 Nov 18:00", 0.25, r"\d\d \w{3} [012]\d:00"),
            (0.1, "19 Nov 13:00", 0.0208333, r"\d\d \w{3} [012]\d:[03]0"),
        ],
    )
    def test_the_axis_of_time_has_whole_days_or_hours_of_utc(
        self, monkeypatch, days, first, between_days, dates
    ):
        monkeypatch.setenv("COLUMNS", "120")
        now_ms = 1_763_564_400_000  # 2025-11-19T15:00:00Z
        point = {"effective_at_ms": now_ms - round(days * DAY_S * MS), "price_micro_usd_h": 3_000}
        curve = {"points": [point | {"observed_at_ms": 0}], "last_seen_ms": now_ms, "offer": {"gpus": 1}}
        *_, marks, labels = in_terminal([curve], point["effective_at_ms"], now_ms).splitlines()
        assert labels.startswith("      UTC ")
        found = list(re.finditer(dates, labels))
        assert found[0][0] == first
        assert [match.start() for match in found] == [match.start() for match in re.finditer(r"\|", marks)]
        columns = [later.start() - one.start() for one, later in pairwise(found)]
        assert columns
        assert all(abs(width - between_days / days * 107) <= 1 for width in columns)
        assert max(map(len, (marks, labels))) < 120

    def test_an_svg_has_a_curve_and_its_name(self, daemon, cli, tmp_path):
        put(daemon, SMALL, 2.0, days_ago=2)
        put(daemon, SMALL, 2.5)
        code, _, err = cli("history", "H100", "--every", "--svg", tmp_path / "h100.svg")
        assert (code, "drawn into" in err) == (0, True)
        root = ElementTree.parse(tmp_path / "h100.svg").getroot()
        assert root.tag.endswith("svg")
        text = "".join(root.itertext())
        assert SMALL.key in text
        assert OFFER.key in text
        assert len([e for e in root.iter() if e.tag.endswith("path")]) >= 2
        words = [element.text for element in root.iter() if element.tag.endswith("text")]
        assert {"UTC", "$/GPU/h", "3.00"} <= set(words)
        assert any(re.fullmatch(r"\d\d \w{3} \d\d:\d\d", word or "") for word in words), (
            "days with their month"
        )

    def test_what_nobody_knows_is_not_drawn(self, daemon, cli, tmp_path, monkeypatch):
        on_a_terminal(monkeypatch)
        code, out, err = cli("history", "B200", "--svg", tmp_path / "b200.svg")
        assert (code, out) == (0, "")
        assert "no price of such an offer is known" in err
        assert "nothing to draw" in err
        assert not (tmp_path / "b200.svg").exists()

    def test_mistakes_have_their_exit_codes(self, daemon, cli, tmp_path):
        assert cli("history", "H101")[0] == 2
        assert cli("history", "H100", "--since", "soon")[0] == 2
        assert cli("history", "H100", "--since", "1_3h")[0] == 2
        assert cli("history", "H100", "--svg", tmp_path)[0] == 1

    def test_a_moment_will_do_for_since(self, daemon, cli):
        put(daemon, SMALL, 2.0, days_ago=400)
        put(daemon, SMALL, 2.5, days_ago=390)
        put(daemon, SMALL, 3.0)
        assert len(cli("history", "H100", "--count", "1")[1].splitlines()) == 2
        assert (
            len(cli("history", "H100", "--count", "1", "--since", "1990-01-01T00:00:00Z")[1].splitlines())
            == 3
        )


def test_feeds(daemon, cli):
    now_ms = daemon.clock.now_ms()
    for poll in (
        Poll("aws", now_ms - 600_000, 0, True, 1000, 7),
        Poll("aws", now_ms - 300_000, 0, False, error="timed out"),
        Poll("aws", now_ms - 10_000, 0, False, error="denied"),
        Poll("aws", now_ms - 60_000, 0, True, 4000, kind=PollKind.HISTORY),
        Poll("gcp", now_ms - 90_000, 0, True, 20, 1),
    ):
        daemon.history.record_poll(poll)
    rows = [line.split("\t") for line in cli("market")[1].splitlines()]
    assert rows == [
        [
            "aws",
            "10m",
            "1000",
            "7",
            "failed 10s ago, 2 in a row: denied",
            "2/3",
            "0",
            "4000 prices read 1m ago",
            "",
        ],
        ["gcp", "1m30s", "20", "1", "ok 1m30s ago", "0/1", "0", "not asked yet", "not configured any more"],
    ]
    assert cli("market", "polls")[1] == cli("market")[1]
    assert cli("market", "--json")[1] == cli("market", "polls", "--json")[1]
    assert json.loads(cli("market", "polls", "--json")[1])["items"][0]["failed_in_row"] == 2


class TestQuarantine:
    def doubt(self, daemon, price="900"):
        daemon.history.quarantine(
            RawQuote(OFFER, price, "USD", None, "aws:spot_history"), daemon.clock.now_ms(), "jumped"
        )

    def test_list_confirm(self, daemon, cli):
        self.doubt(daemon)
        daemon.clock.advance(60)
        self.doubt(daemon)
        (row,) = [line.split("\t") for line in cli("quarantine", "list")[1].splitlines()]
        assert row == [OFFER.key, "900 USD", "$24.00", "1m", "0s", "2", "never", "aws:spot_history", "jumped"]
        code, out, err = cli("quarantine", "confirm", OFFER.key, "--price", "900")
        assert (code, out) == (0, "")
        assert f"{OFFER.key} is $900.00/h from now on, was $24.00/h" in err
        assert cli("quarantine", "list")[1] == ""
        assert cli("prices", "--gpu", "H100")[1].split("\t")[3] == "$900.00"
        assert "quote.confirmed" in cli("events")[1]

    def test_drop(self, daemon, cli):
        self.doubt(daemon)
        assert json.loads(cli("quarantine", "drop", OFFER.key, "--json")[1])["price_text"] == "900"
        assert cli("quarantine", "list")[1] == ""
        assert cli("prices", "--gpu", "H100")[1].split("\t")[3] == "$24.00"

    def test_exit_codes(self, daemon, cli, monkeypatch):
        assert cli("quarantine", "confirm", OFFER.key)[0] == 3
        assert cli("quarantine", "confirm", "p5.48xlarge")[0] == 2
        self.doubt(daemon, "0")
        assert cli("quarantine", "confirm", OFFER.key)[0] == 6
        assert cli("quarantine", "drop", OFFER.key, "--price", "1")[0] == 5
        secret = daemon.token("viewer")["Authorization"].removeprefix("Bearer ")
        monkeypatch.setenv("BROKER_TOKEN", secret)
        assert cli("quarantine", "list")[0] == 0
        assert cli("quarantine", "confirm", OFFER.key)[0] == 4


class TestPoll:
    def test_a_poll_that_somebody_asks_for_tells_what_it_read(self, daemon, cli):
        code, out, err = cli("market", "poll", "aws")
        assert (code, out.strip().split("\t")) == (0, ["aws", "12", "3", "2s", "ok"]), err

    def test_without_a_name_every_configured_cloud_is_polled(self, daemon, cli):
        daemon.history.record_poll(Poll("gcp", daemon.clock.now_ms(), 0, True, 5))
        assert cli("market", "poll")[0] == 0
        assert daemon.polled == ["aws"], "gcp is not configured any more"

    def test_one_that_fails_says_why_and_exits_as_a_clouds_refusal(self, daemon, cli):
        daemon.poll_error = "aws: expired token"
        code, out, _ = cli("market", "poll", "aws", "--json")
        assert code == 7
        assert json.loads(out)["items"][0]["error"] == "aws: expired token"
