import csv
import json
from pathlib import Path

import pytest

from broker.cli.app import main
from tests.unit.backtest.made import FOLDER, WEST

ROOT = Path(__file__).parents[3]
SMALL = [
    "policy",
    "backtest",
    "--grid",
    "--trace",
    str(FOLDER),
    "--work=20h",
    "--deadline=30h",
    "--windows=3",
]


def test_the_usual_baselines_beside_the_optimum(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SMALL) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == [
        "optimum",
        "on_demand",
        "spot_else_on_demand",
        "eager",
        "uniform_progress",
    ]
    assert rows[0][2] == "1.000"
    assert all(float(row[2]) >= 1 for row in rows)
    assert all(row[6] == "0 of 3" for row in rows[1:])


def test_json_has_the_sums_and_every_window(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--baseline", "eager", "--baseline", "cheapest", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ticks"] == {"work": 120, "deadline": 180, "start": 1, "cross": 0, "first": 432}
    assert [window["start_tick"] for window in answer["windows"]] == [432, 702, 972]
    assert answer["windows"][0]["start"] == "2026-01-04T00:00:00Z"
    assert [entry["name"] for entry in answer["entries"]] == ["eager", "cheapest"]
    for entry in answer["entries"]:
        assert entry["score"]["usd"] == pytest.approx(sum(window["usd"] for window in entry["windows"]))
        best = [window["optimum_usd"] for window in answer["windows"]]
        ratios = [one["usd"] / usd for one, usd in zip(entry["windows"], best, strict=True)]
        assert ratios == pytest.approx([one["ratio"] for one in entry["windows"]])


def test_options_change_the_terms(capsys: pytest.CaptureFixture[str]) -> None:
    def usd(*options: str) -> float:
        assert main([*SMALL, "--baseline=on_demand", "--json", *options]) == 0
        score = json.loads(capsys.readouterr().out)["entries"][0]["score"]
        return float(score["usd"])

    # 120 ticks of ten minutes at 2.90 $/h, and one of start-up, three times.
    assert usd() == pytest.approx(3 * 121 / 6 * 2.9)
    assert usd("--startup=40m") == pytest.approx(3 * 124 / 6 * 2.9)
    assert usd("--gang=2") == pytest.approx(2 * usd())
    assert usd(f"--only={WEST.name}") == pytest.approx(3 * 121 / 6 * 3.0)


def test_a_log_of_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "moves.csv"
    assert main([*SMALL, "--baseline=uniform_progress", "--log", str(log)]) == 0
    with open(log, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["action"] for row in rows if row["window"] == "2"][::-1][0] == "stop"
    assert {row["window"] for row in rows} == {"0", "1", "2"}
    capsys.readouterr()


RIDE = str(ROOT / "policies/ride-the-spot.yaml")


def test_policies_come_before_baselines_and_the_log_is_of_the_one_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "moves.csv"
    assert main([*SMALL, RIDE, "--log", str(log), "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert [entry["name"] for entry in entries][:2] == ["ride-the-spot", "on_demand"]
    with open(log, newline="") as file:
        launches = [row for row in csv.DictReader(file) if row["action"] == "launch"]
    assert len(launches) == sum(window["launches"] for window in entries[0]["windows"])
    assert len(launches) != sum(window["launches"] for window in entries[1]["windows"])


def test_a_wrong_policy_is_told_as_a_check_tells_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("policy: wrong\nobjectiv: cheapest\n")
    assert main([*SMALL, str(file)]) == 2
    assert f"{file}:2:1: " in capsys.readouterr().err


WRONG = [
    (["--baseline=best"], "no baseline 'best'\nhint: there are on_demand,"),
    ([RIDE, RIDE], "the name ride-the-spot is taken"),
    ([RIDE, RIDE, "--log=x.csv"], "a log holds one way to run the jobs"),
    (["--log=x.csv"], "a log holds one way to run the jobs"),
    (["--baseline=eager", "--log=nowhere/x.csv"], "cannot write nowhere/x.csv: No such file"),
    (["--work=long"], "--work: 'long' is not a duration"),
    (["--work=1m"], "the work is less than half a tick of 10m"),
    (["--work=30h"], "cannot be done within the deadline"),
    (["--history=90d"], "no window fits"),
    (["--shock=twice"], "--shock: 'twice' is no shock"),
    (["--shock=1.9@31"], "the shock is not within the window"),
    (["--only=aws/mars"], "has no placement aws/mars"),
    (["--windows=0"], "Invalid value"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_mistake_is_told(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, *options]) == 2
    assert words in capsys.readouterr().err


def test_without_the_grid_there_is_nothing_yet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "backtest", "--trace", str(FOLDER)]) == 2
    assert "say --grid" in capsys.readouterr().err
