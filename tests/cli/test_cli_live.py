"""Commands that talk to a daemon."""

import json
import re
import stat
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from broker.cli import doctor
from broker.core.model import Alternative, Commit, Decision, DecisionKind, JobState, Progress, Reason
from broker.core.ports import Check
from broker.store.access import REPORT_ONLY
from tests.unit.serve.conftest import OFFER

JOB_FILE = """\
name: train
resources:
  gpus: {type: H100, count: 8}
source: .
run: python train.py
checkpoint: {dir: checkpoints}
"""


def test_login_is_kept_for_its_owner_alone(daemon, cli, tmp_path):
    file = tmp_path / "config" / "broker" / "login.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = json.loads(file.read_text())
    assert set(kept) == {"url", "token", "ca"}
    code, _, err = cli("login", kept["url"], "--token", kept["token"], "--ca", kept["ca"])
    assert code == 0
    assert kept["token"] not in err
    assert cli("login", kept["url"], "--token", "brk_wrong", "--ca", kept["ca"])[0] == 4
    assert cli("login", "http://x")[0] == 2


def test_the_environment_outranks_the_login(daemon, cli, monkeypatch):
    monkeypatch.setenv("BROKER_TOKEN", "brk_wrong")
    code, _, err = cli("jobs")
    assert code == 4
    assert "unknown or revoked" in err


def test_tokens(daemon, cli):
    code, out, err = cli("token", "create", "--role", "engineer", "--name", "ann")
    assert code == 0
    assert out.startswith("brk_")
    assert "ann: engineer" in err
    assert cli("token", "create", "--role", "engineer", "--name", "ann")[0] == 5
    assert cli("token", "create", "--role", "king")[0] == 2
    names = [line.split("\t")[0] for line in cli("token", "list")[1].splitlines()]
    assert "ann" in names
    assert cli("token", "revoke", "ann")[0] == 0
    assert cli("token", "revoke", "nobody")[0] == 3
    states = {line.split("\t")[0]: line.split("\t")[-1] for line in cli("token", "list")[1].splitlines()}
    assert states["ann"] == "revoked"


def test_submit_show_cancel(daemon, cli, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text("print(1)\n")
    (work / "train.yaml").write_text(JOB_FILE)
    code, out, err = cli("submit", work / "train.yaml")
    assert code == 0, err
    job_id = out.strip()
    with daemon.store.read() as tx:
        source = tx.job(job_id).spec.source
    assert (daemon.services.source_dir / f"{source.sha256}.tar.gz").stat().st_size == source.size_bytes
    assert cli("jobs")[1].split("\t")[0] == job_id
    code, out, _ = cli("show", "train")
    assert (code, f"job\t{job_id}" in out) == (0, True)
    assert json.loads(cli("show", "train", "--json")[1])["job"]["state"] == "queued"
    assert cli("cancel", "train")[0] == 0
    assert cli("show", "nothing")[0] == 3


def test_a_wrong_job_file_is_told_with_its_place(daemon, cli, tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("name: train\nresources:\n  gpu: {type: H100}\nrun: echo\n")
    code, out, err = cli("submit", file)
    assert (code, out) == (2, "")
    assert f"error: {file}:3:3" in err
    assert "^" in err
    assert "Traceback" not in err


def test_check_shows_offers_and_refusals(daemon, cli, tmp_path):
    file = tmp_path / "train.yaml"
    file.write_text("name: train\nresources: {gpus: {type: H100}}\nrun: echo\n")
    code, _, err = cli("jobs", "check", file)
    assert code == 6
    assert "no offer for train" in err
    dear = replace(OFFER, cloud="gcp", zone="us-central1-a")

    def preview(spec, project_id):
        target = Alternative(OFFER, 24_000_000, 30, cost_micro_usd=48_000_000, hours=2.0)
        refused = Alternative(dear, 99_000_000, 30, refused="above max_usd_per_hour")
        at_ms = daemon.clock.now_ms()
        return Decision(
            "d", "", project_id, "default", "0" * 64, at_ms, DecisionKind.PLACE, False, "cheapest",
            alternatives=(refused, target), target=target,
        )  # fmt: skip

    object.__setattr__(daemon.services, "preview", preview)
    code, out, err = cli("jobs", "check", file)
    assert code == 0, err
    assert out.split("\t")[1:] == [
        OFFER.key,
        "8x H100-SXM5-80GB",
        "$24.00",
        "30s",
        "2.0",
        "$48.00",
        "<- chosen\n",
    ]
    assert "cost to finish $48.00 to $48.00" in err
    assert "refused gcp/us-central1-a/p5.48xlarge/spot at $99.00/h: above max_usd_per_hour" in err


def test_check_groups_what_is_refused_by_cloud_and_reason(daemon, cli, tmp_path):
    file = tmp_path / "train.yaml"
    file.write_text("name: train\nresources: {gpus: {type: H100}}\nrun: echo\n")
    azure, gcp = (replace(OFFER, cloud=cloud, zone="z0") for cloud in ("azure", "gcp"))
    only_prices = "only the prices of azure are read; nothing can be rented there"
    refused = [
        *(Alternative(replace(azure, zone=f"z{at}"), (30 + at) * 10**6, 30, refused=only_prices) for at in range(6)),
        *(
            Alternative(replace(gcp, zone=f"z{at}"), (20 + at) * 10**6, 30, refused=f"its price was last seen {at}m ago")
            for at in range(2)
        ),
        Alternative(gcp, 90_000_000, 30, refused="above max_usd_per_hour"),
    ]  # fmt: skip

    def preview(spec, project_id):
        return Decision(
            "d", "", project_id, "default", "0" * 64, daemon.clock.now_ms(), DecisionKind.PLACE, False, "cheapest",
            alternatives=tuple(refused),
        )  # fmt: skip

    object.__setattr__(daemon.services, "preview", preview)
    _, out, err = cli("jobs", "check", file)
    assert out == ""
    assert [line for line in err.splitlines() if line.startswith("refused")] == [
        "refused gcp/z0/p5.48xlarge/spot at $20.00/h and 1 more of gcp: its price was last seen 0m ago",
        f"refused azure/z0/p5.48xlarge/spot at $30.00/h and 5 more of azure: {only_prices}",
        "refused gcp/z0/p5.48xlarge/spot at $90.00/h: above max_usd_per_hour",
    ]
    refused += [Alternative(gcp, 95_000_000, 30, refused=f"reason {letter}") for letter in "abcdefghijk"]
    err = cli("jobs", "check", file)[2]
    assert "refused for 6 other reasons; `--json` has them" in err
    assert "20 of the nearest misses are kept" in err


def test_logs_end_with_the_jobs_outcome(daemon, cli):
    log = daemon.services.log_dir / "job.train-aaaaa.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"step 1\n\xff\n")
    for state, code in ((JobState.SUCCEEDED, 0), (JobState.FAILED, 100), (JobState.CANCELLED, 103)):
        daemon.job(state=state)
        found, out, err = cli("logs", "-f", "train")
        assert (found, err) == (code, f"job {state}\n")
        assert out.startswith("step 1\n")
    daemon.job(state=JobState.RUNNING)
    assert cli("logs", "train")[0] == 0


def test_why(daemon, cli):
    job = daemon.job()
    assert "no policy has been asked yet" in cli("why", "train")[2]
    decision = Decision(
        "d1", job.id, "default", "ride", "0" * 64, daemon.clock.now_ms(), DecisionKind.STAY, False, "saving too small",
        reasons=(Reason("migrate.min_saving: 20%", False, "saving is 3.0 %", "ride.yaml:9"),),
        alternatives=(Alternative(OFFER, 24_000_000, 30, cost_micro_usd=48_000_000, hours=2.0),),
    )  # fmt: skip
    with daemon.store.write() as tx:
        tx.save_decision(decision)
    code, out, _ = cli("why", "train")
    assert code == 0
    assert "ride: saving too small" in out
    assert "no\tmigrate.min_saving: 20%\tsaving is 3.0 %\tride.yaml:9" in out
    assert json.loads(cli("why", "train", "--json")[1])["items"][0]["id"] == "d1"


def test_why_a_job_failed(daemon, cli):
    daemon.job(state=JobState.FAILED, reason="exit code 1")
    code, out, _ = cli("why", "train")
    assert code == 0
    assert out.startswith("train-aaaaa failed ")
    assert out.endswith(" ago: exit code 1\n")


def test_a_policy_that_is_not_there_is_refused_before_the_job_waits(daemon, cli, tmp_path):
    file = tmp_path / "train.yaml"
    file.write_text("name: train\nresources: {gpus: {type: H100}}\nrun: echo\npolicy: defualt\n")
    for command in (("jobs", "check"), ("submit",)):
        code, out, err = cli(*command, file)
        assert (code, out) == (2, "")
        assert "policy: there is no policy named defualt\nhint: did you mean default?" in err
    assert cli("jobs")[1] == ""


def test_a_daemon_that_is_started_again_gets_the_job_once(daemon, cli, tmp_path, monkeypatch):
    from broker.cli.client import Client, DaemonDown

    file = tmp_path / "train.yaml"
    file.write_text("name: train\nresources: {gpus: {type: H100}}\nrun: echo\n")
    waited, lost = [], iter([True, False])
    monkeypatch.setattr("time.sleep", waited.append)
    answered = Client.call

    def call(self, method, *arguments, **more):
        answer = answered(self, method, *arguments, **more)
        if method == "POST" and next(lost):
            raise DaemonDown("the answer was lost")
        return answer

    monkeypatch.setattr(Client, "call", call)
    code, _, err = cli("submit", file)
    assert code == 0, err
    assert waited == [1]
    assert len(cli("jobs")[1].splitlines()) == 1


def test_show_tells_progress_and_money(daemon, cli):
    now_ms = daemon.clock.now_ms()
    job = daemon.job(
        state=JobState.RUNNING,
        progress=Progress(now_ms, 100, 1000, 2.0, loss=0.5),
        commit=Commit(1, 7, "m", "s", 90, 1, now_ms - 60_000),
    )
    daemon.node(job, billed_from_ms=now_ms - 3_600_000, ended_at_ms=now_ms)
    fields = dict(
        line.split("\t", 1) for line in cli("show", "train")[1].splitlines() if line.count("\t") == 1
    )
    assert (fields["step"], fields["left"], fields["checkpoint"]) == (
        "100 of 1000",
        "7m30s",
        "#7 at step 90, 1m ago",
    )
    assert fields["paid"].startswith("$")


def test_market_and_nodes(daemon, cli):
    daemon.node()
    lines = cli("prices")[1].splitlines()
    assert [line.split("\t")[0] for line in lines] == ["local/here/box/owned", OFFER.key]
    assert lines[1].split("\t")[3:5] == ["$24.00", "$3.00"]
    code, out, err = cli("prices", "--gpu", "H900")
    assert (code, out, "gpu: there is no 'H900'" in err) == (2, "", True)
    code, _, err = cli("prices", "--cloud", "awz")
    assert (code, "cloud: there is no 'awz'" in err, "did you mean aws?" in err) == (2, True, True)
    assert cli("prices", "--cloud", "azure")[:2] == (0, "")
    assert cli("prices", "--cloud", "AWS")[1].count("\n") == 1
    assert cli("prices", "--gpu", "H100")[1].count("\n") == 1
    assert json.loads(cli("prices", "--json")[1])["items"][0]["offer"]["gpus"] == 1
    assert cli("nodes")[1].split("\t")[1] == "train-aaaaa"


@pytest.mark.parametrize("columns", [40, 80, 100, 160])
@pytest.mark.parametrize("command", ["jobs", "nodes"])
def test_an_id_is_whole_on_a_terminal_of_any_width(daemon, cli, monkeypatch, columns, command):
    job = daemon.job(
        "a-name-as-long-as-names-may-well-be-abcde", state=JobState.RUNNING, reason="waits for " * 9
    )
    node = daemon.node(job)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    out = re.sub(r"\x1b\[[0-9;]*m", "", cli(command)[1])
    assert job.id in out
    assert (node.token in out) is (command == "nodes")
    ids = len(job.id) + len(node.token) + 2
    assert max(map(len, out.splitlines())) <= max(columns, ids)
    assert "running" in out, "no word is broken either"


def test_pause_doctor_resume(daemon, cli):
    assert cli("pause", "-m", "bill")[0] == 0
    code, out, err = cli("doctor")
    assert code == 1
    assert "FAIL\taws\tcredentials\tno key: set AWS_ACCESS_KEY_ID" in out
    assert re.search(r"\?\tdaemon\tpaused\tbill \(by \S+, 0s ago\); `broker resume` ends it", out)
    assert f"ok\tdaemon\tinstallation\t{daemon.store.installation_id}:" in out
    assert "1 failed" in err
    assert cli("resume")[0] == 0


def test_doctor_tells_a_cause_once_however_many_checks_of_a_cloud_it_fails(daemon, cli):
    lost = "Unable to locate credentials"
    found = [
        ("aws", Check("aws: credentials", False, f"aws: asking who we are: {lost}")),
        ("aws", Check("aws: pricing:GetProducts", False, f"aws: reading the price list: {lost}")),
        ("aws", Check("aws: image", None, "not looked up")),
        ("aws", Check("aws: ec2:DescribeInstances", False, f"aws: a dry run in us-east-1: {lost}")),
        ("aws", Check("aws: quotas", False, "aws: reading quotas: too many calls")),
        ("gcp", Check("gcp: credentials", False, f"gcp: loading credentials: {lost}")),
    ]
    object.__setattr__(daemon.services, "checks", lambda: found)
    _, out, err = cli("doctor")
    assert [line for line in out.splitlines() if "\taws\t" in line or "\tgcp\t" in line] == [
        f"FAIL\taws\taws: credentials\taws: asking who we are: {lost}",
        "FAIL\taws\tand 2 more\tfor the same reason: pricing:GetProducts, ec2:DescribeInstances",
        "?\taws\taws: image\tnot looked up",
        "FAIL\taws\taws: quotas\taws: reading quotas: too many calls",
        f"FAIL\tgcp\tgcp: credentials\tgcp: loading credentials: {lost}",
    ]
    assert "5 failed" in err
    assert len([item for item in json.loads(cli("doctor", "--json")[1])["items"] if item["ok"] is False]) == 5


def test_doctor_says_why_report_only_is_latched_and_where_to_read_on(daemon, cli):
    with daemon.store.write() as tx:
        tx.set_switch(REPORT_ONLY, True, reason="aws runs nodes that are newer")
    daemon.clock.advance(180)
    code, out, _ = cli("doctor")
    (line,) = [line for line in out.splitlines() if "report only" in line]
    assert line.startswith("FAIL\tdaemon\treport only\taws runs nodes that are newer (by broker, 3m ago); ")
    page, anchor = line.split("blob/main/")[1].split("#")
    headings = re.findall(r"^## (.+)$", (Path(__file__).parents[2] / page).read_text(), re.MULTILINE)
    assert (code, anchor in [heading.lower().replace(" ", "-") for heading in headings]) == (1, True)


def test_doctor_tells_when_the_daemon_cannot_finish_its_checks(daemon, cli, monkeypatch):
    never = threading.Event()
    object.__setattr__(daemon.services, "checks", lambda: [] * never.wait(20))
    monkeypatch.setattr(doctor, "_CHECKS_S", 0.5)
    code, out, _ = cli("doctor")
    never.set()
    assert code == 1
    assert "ok\tdaemon\treachable" in out, "what is known is shown"
    assert "FAIL\tdaemon\tchecks\tno answer from https://127.0.0.1" in out


def test_no_answer_is_told_without_a_traceback(cli, monkeypatch):
    monkeypatch.setenv("BROKER_URL", "https://127.0.0.1:9")
    monkeypatch.setenv("BROKER_TOKEN", "brk_x")
    code, out, err = cli("jobs")
    assert (code, out) == (1, "")
    assert "no answer from https://127.0.0.1:9" in err
    assert "Traceback" not in err
