"""`broker audit`, `broker nodes --unowned`, `broker backup`: answers, messages and exit codes."""

import json
import sys

import pytest

from broker.core.audit import Act, Asked, Audit, Discrepancy, Kind
from broker.store.access import PAUSED, REPORT_ONLY

ORPHAN = Discrepancy(
    "aws/i-1", Kind.UNKNOWN, Act.END, "bk-a-0", "aws", "us-east-1/use1-az6", "i-1", "running, 2h old"
)
YOUNG = Discrepancy(
    "aws/i-2", Kind.UNKNOWN, Act.WAIT, "bk-b-0", "aws", "us-east-1/use1-az6", "i-2", "20s old"
)
STRAY = Discrepancy("store/lost/stray", Kind.STRAY, Act.PERSON, "lost", detail="no row knows")
AWS, STORE, GCP = Asked("aws", 3, 1), Asked("store", 2), Asked("gcp", unasked="timed out")


@pytest.mark.parametrize(
    ("asked", "found", "code"),
    [
        ((AWS, STORE), (), 0),
        ((AWS, STORE), (ORPHAN,), 8),
        ((AWS, STORE), (YOUNG,), 8),
        ((AWS, STORE), (STRAY,), 0),
        ((AWS, STORE), (STRAY, YOUNG), 8),
        ((AWS, GCP, STORE), (STRAY,), 7),
        ((AWS, GCP, STORE), (), 7),
        ((AWS, GCP, STORE), (ORPHAN,), 7),
    ],
)
def test_exit_codes(daemon, cli, asked, found, code):
    daemon.audit = Audit(0, None, asked, found)
    assert cli("audit")[0] == code
    answer = cli("audit", "--json")
    assert answer[0] == code
    assert [d["id"] for d in json.loads(answer[1])["discrepancies"]] == [d.id for d in found]
    assert ("gcp could not be asked" in answer[2]) is (code == 7)


def test_a_daemon_that_does_not_answer_is_another_code(cli, monkeypatch):
    monkeypatch.setenv("BROKER_URL", "https://127.0.0.1:9")
    monkeypatch.setenv("BROKER_TOKEN", "brk_x")
    assert cli("audit")[0] == 1


def test_what_is_said(daemon, cli):
    daemon.audit = Audit(0, None, (AWS, GCP, STORE), (ORPHAN, YOUNG))
    _, out, err = cli("audit")
    assert out.splitlines() == [
        "unknown\taws/us-east-1/use1-az6\tbk-a-0\ti-1\tend it\trunning, 2h old",
        "unknown\taws/us-east-1/use1-az6\tbk-b-0\ti-2\twait\t20s old",
    ]
    assert "aws: 3 machines of ours, 1 of other installations" in err
    assert "gcp: UNKNOWN, could not be asked in full: timed out" in err
    assert "store: 2 jobs" in err
    code, shown, err = cli("nodes", "--unowned")
    assert (code, shown) == (7, out)
    assert "gcp could not be asked" in err


def test_what_an_older_database_does_about_newer_machines(daemon, cli):
    newer = Discrepancy(
        "aws/i-3", Kind.NEWER, Act.LATCH, "bk-c-0", "aws", "us-east-1/use1-az6", "i-3", "event 9"
    )
    daemon.audit = Audit(0, "restored", (AWS, STORE), (newer,))
    assert cli("audit")[1].split("\t")[4] == "nothing while report-only"


def test_what_was_never_listed_is_not_called_well(daemon, cli, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    daemon.audit = Audit(
        600_000, None, (Asked("aws", at_ms=420_000), Asked("gcp", unasked="not listed yet")), ()
    )
    code, _, err = cli("nodes", "--unowned")
    assert code == 7
    assert "nothing disagrees" not in err
    assert "aws: last listed 3m ago" in err
    assert "gcp: UNKNOWN, could not be asked in full: not listed yet" in err
    daemon.audit = Audit(600_000, None, (Asked("aws", at_ms=420_000),), ())
    code, _, err = cli("nodes", "--unowned")
    assert (code, "nothing disagrees" in err) == (0, True)


def test_apply_asks_for_what_was_shown_as_such_and_for_nothing_else(daemon, cli):
    daemon.audit = Audit(0, None, (AWS, STORE), (ORPHAN, YOUNG))
    code, _, err = cli("audit", "--apply")
    assert (code, "1 done, 0 failed" in err) == (0, True)
    assert [ids for ids, _ in daemon.applied] == [["aws/i-1"]]
    code, out, _ = cli("audit", "--apply", "--json")
    assert [d["id"] for d in json.loads(out)["applied"]["done"]] == ["aws/i-1"]


def test_the_latch_is_said_and_its_clearing_names_who_could_not_be_asked(daemon, cli):
    daemon.audit = Audit(0, "restored from a backup", (GCP, STORE), ())
    with daemon.store.write() as tx:
        tx.set_switch(REPORT_ONLY, True, reason="restored from a backup")
    assert "report-only is latched: restored from a backup" in cli("audit")[2]
    code, _, err = cli("resume", "--report-only")
    assert code == 0
    assert "report-only is cleared" in err
    assert "gcp could not be asked" in err
    assert "paused" not in err
    with daemon.store.read() as tx:
        assert not tx.switch(REPORT_ONLY)


def test_clearing_says_what_is_ended_and_leaves_the_pause(daemon, cli):
    daemon.audit = Audit(0, None, (AWS, STORE), (ORPHAN, YOUNG))
    assert cli("pause", "-m", "looking")[0] == 0
    with daemon.store.write() as tx:
        tx.set_switch(REPORT_ONLY, True, reason="restored")
    code, _, err = cli("resume", "--report-only")
    assert (code, "1 will be ended now, 1 once past their grace" in err) == (0, True)
    assert "still paused: nothing is rented until `broker resume`" in err
    code, _, err = cli("resume", "--report-only")
    assert (code, "was not latched: nothing has changed" in err) == (0, True)
    with daemon.store.read() as tx:
        assert tx.switched_on() == {PAUSED}


def test_resuming_says_that_report_only_stays(daemon, cli):
    assert "was not paused: nothing has changed" in cli("resume")[2]
    assert cli("pause")[0] == 0
    with daemon.store.write() as tx:
        tx.set_switch(REPORT_ONLY, True, reason="restored")
    code, _, err = cli("resume")
    assert (code, "the pause has ended" in err) == (0, True)
    assert "nothing is rented until `broker resume --report-only`" in err
    with daemon.store.read() as tx:
        assert tx.switched_on() == {REPORT_ONLY}


def test_a_backup_beside_the_daemon(daemon, cli, tmp_path):
    code, out, err = cli("backup", tmp_path / "copy")
    assert code == 0, err
    assert {line.split("\t")[0] for line in out.splitlines()} >= {
        "state.db",
        "history.db",
        "operator.token",
        "tls",
    }
    assert (tmp_path / "copy" / "operator.token").read_text().startswith("brk_")
    assert cli("backup", tmp_path / "copy")[0] == 5
