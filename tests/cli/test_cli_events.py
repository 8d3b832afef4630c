"""`broker events`: what is shown of the log, and a connection that is lost."""

import json

from broker.cli import events
from broker.cli.client import Client, DaemonDown
from broker.core.model import Event


def emit(daemon, kind, **fields):
    with daemon.store.write() as tx:
        return tx.emit(Event(kind, daemon.clock.now_ms(), project_id="default", **fields))


def kinds(out):
    return [line.split("\t")[2] for line in out.splitlines()]


def test_the_last_hour_of_all_and_the_whole_life_of_a_job(daemon, cli):
    job = daemon.job()
    emit(daemon, "job.submitted", job_id=job.id, actor="ann")
    emit(daemon, "job.other", job_id="other-aaaaa")
    daemon.clock.advance(2 * 3600)
    seq = emit(
        daemon,
        "node.created",
        job_id=job.id,
        node_token="bk-a-0",
        data={"offer": "aws/x", "rank": 0, "a": None},
    )
    code, out, _ = cli("events")
    assert (code, kinds(out)) == (0, ["node.created"])
    assert out.split("\t")[0] == str(seq)
    assert out.rstrip("\n").split("\t")[3:] == ["bk-a-0", "broker", "offer=aws/x rank=0"]
    assert kinds(cli("events", "--since", "1d")[1])[-3:] == ["job.submitted", "job.other", "node.created"]
    for name in ("train", job.id):
        assert kinds(cli("events", name)[1]) == ["job.submitted", "node.created"]
    assert kinds(cli("events", "train", "--since", "1h")[1]) == ["node.created"]
    lines = [json.loads(line) for line in cli("events", "train", "--json")[1].splitlines()]
    assert [event["kind"] for event in lines] == ["job.submitted", "node.created"]
    assert lines[0]["actor"] == "ann"
    daemon.clock.advance(2 * 3600)
    assert cli("events") == (0, "", "no events; try a longer --since\n")


def test_what_is_wrong_is_told(daemon, cli):
    assert cli("events", "nothing")[0] == 3
    code, _, err = cli("events", "--since", "yesterday")
    assert (code, "--since: 'yesterday' is not a duration; write 90s" in err) == (2, True)


def test_an_engineer_sees_the_events_of_the_project(daemon, cli, monkeypatch):
    with daemon.store.write() as tx:
        tx.emit(Event("job.foreign", daemon.clock.now_ms(), project_id="vision"))
    emit(daemon, "job.mine")
    monkeypatch.setenv("BROKER_TOKEN", daemon.token("viewer")["Authorization"].split()[1])
    seen = kinds(cli("events")[1])
    assert "job.mine" in seen
    assert "job.foreign" not in seen


def test_followed_over_a_restart_nothing_is_missed_and_nothing_shown_twice(daemon, cli, monkeypatch):
    real, tries = Client.events, []
    emit(daemon, "job.one")

    def cut(self, query, last):
        tries.append(last)
        if len(tries) == 4:
            raise KeyboardInterrupt
        if len(tries) == 2:
            emit(daemon, "job.two")  # while nobody listens
            raise DaemonDown("restarting")
        yield from real(self, {**query, "follow": "false"}, last)

    monkeypatch.setattr(Client, "events", cut)
    monkeypatch.setattr(events.time, "sleep", lambda seconds: None)
    code, out, _ = cli("events", "--follow")
    assert code == 130
    assert kinds(out)[-2:] == ["job.one", "job.two"]
    assert out.count("job.one") == out.count("job.two") == 1
    assert tries[0] is None
    assert tries[1] == tries[2] == tries[3] - 1
