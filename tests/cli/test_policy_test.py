"""`broker policy test` and `broker policy new`, as people and programs call them."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scaffold(cli, tmp_path):
    """A folder with a new policy and its test."""
    code, _, err = cli("policy", "new", "nights", "--dir", "mine")
    assert code == 0
    assert err.split() == ["mine/nights.yaml", "mine/nights.test.yaml", "broker", "policy", "test", "mine"]
    return tmp_path / "mine"


def broken(folder: Path) -> Path:
    """The scaffold's test with one expectation that is not met."""
    test = folder / "nights.test.yaml"
    test.write_text(test.read_text().replace("at: 70m, decision: move", "at: 65m, decision: move"))
    return test


def test_a_new_policy_is_well_and_its_test_passes(cli, scaffold):
    assert cli("policy", "check", "mine")[0] == 0
    code, out, _ = cli("policy", "test", "mine")
    assert code == 0
    assert out.splitlines()[0] == "mine/nights.test.yaml"
    assert out.endswith("4 cases, 0 failed\n")


def test_nothing_is_overwritten(cli, scaffold):
    before = (scaffold / "nights.yaml").read_text()
    code, _, err = cli("policy", "new", "nights", "--dir", "mine")
    assert code == 2
    assert "mine/nights.yaml is there already" in err
    (scaffold / "nights.yaml").unlink()
    assert cli("policy", "new", "nights", "--dir", "mine")[0] == 2
    assert not (scaffold / "nights.yaml").exists()
    assert before


@pytest.mark.parametrize("name", ["Nights", "a b", "../x", "a: b", "", "x" * 64, "-a"])
def test_a_name_that_no_policy_may_have_writes_nothing(cli, tmp_path, name):
    code, _, err = cli("policy", "new", "--dir", "mine", "--", name)
    assert code == 2
    assert "is no name for a policy" in err
    assert not (tmp_path / "mine").exists()


def test_a_failure_exits_1_and_says_where_what_and_why(cli, scaffold):
    test = broken(scaffold)
    line = next(n for n, text in enumerate(test.read_text().splitlines(), 1) if "65m, decision: move" in text)
    code, out, _ = cli("policy", "test", test)
    assert code == 1
    assert f"{test}:{line}:9: at 1h5m: expected move to gcp/*; the answer is stay" in out
    assert "no       migrate.hold: 10m" in out
    assert out.endswith("4 cases, 1 failed\n")


def test_json_has_every_case_and_the_exit_code_stays(cli, scaffold):
    broken(scaffold)
    code, out, _ = cli("policy", "test", "mine", "--json")
    document = json.loads(out)
    assert code == 1
    assert [case["passed"] for case in document["cases"]] == [False, True, True, True]
    assert document["cases"][0]["failures"][0]["answer"]["reasons"]


def test_a_wrong_file_exits_2_and_nothing_is_played(cli, scaffold):
    test = scaffold / "nights.test.yaml"
    test.write_text(test.read_text().replace("32.0x1h 61.0x7m 32.0", "32.0x1h 61.0 32.0"))
    (scaffold / "other.test.yaml").write_text("policy: nights.yaml\n")
    code, out, err = cli("policy", "test", "mine")
    assert (code, out) == (2, "")
    assert "only the last value may go on for ever: write 61.0x30m" in err
    assert "cases is missing" in err
    assert "2 mistakes; nothing was played" in err


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere.test.yaml", "cannot read nowhere.test.yaml"),
        ("mine/nights.yaml", "mine/nights.yaml: not a test"),
        ("empty", "empty: no tests (*.test.yaml) in this folder"),
    ],
)
def test_what_cannot_be_played_exits_2(cli, scaffold, tmp_path, path, message):
    (tmp_path / "empty").mkdir()
    code, _, err = cli("policy", "test", path)
    assert code == 2
    assert message in err


def test_a_policy_of_the_folder_without_a_test_is_named(cli, scaffold):
    (scaffold / "bare.yaml").write_text("policy: bare\n")
    code, out, _ = cli("policy", "test", "mine")
    assert code == 0
    assert "no test: mine/bare.yaml" in out
    assert out.endswith("4 cases, 0 failed, 1 policy without a test\n")
    # Files that are named say nothing about the others of their folder.
    assert "without a test" not in cli("policy", "test", "mine/nights.test.yaml")[1]
