"""state.db: what goes in comes out, one moment at a time, under one epoch."""

import json
import os
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from broker.core.errors import AlreadyRunning, BrokerError, Conflict, DiskFull, LeaseLost, NotFound
from broker.core.model import (
    Alternative,
    Commit,
    Decision,
    DecisionKind,
    EndedBy,
    Event,
    JobState,
    NodeState,
    PlacementState,
    Progress,
    Reason,
    Segment,
    Verdict,
)
from broker.decision.subject import Hold
from broker.store.access import PAUSED, REPORT_ONLY, Role
from broker.store.memory import ProbeReport
from broker.store.migrate import migrate
from broker.store.state import StateStore
from tests.clocks import CountingIds, ManualClock
from tests.unit.store.rows import OFFER, job, node, placement

FULL_JOB = job(
    state=JobState.RUNNING,
    progress=Progress(7, step=3, metrics={"val_loss": 0.5}),
    commit=Commit(1, 2, "m", "s", None, 4, 9),
    idempotency_key="k",
    active_placement_id="p1",
)


def save(store: StateStore, *values: object) -> None:
    with store.write() as tx:
        for value in values:
            tx.save(value)  # type: ignore[arg-type]


def test_values_come_back_as_they_went_in(store: StateStore):
    rows = (
        FULL_JOB,
        placement(state=PlacementState.ACTIVE, verdict=Verdict.DEGRADED, last_step=5),
        node(report={"phase": "running", "n": [1, {"x": None}]}, ended_by=EndedBy.CLOUD),
    )
    save(store, *reversed(rows))  # in any order: references are checked at commit
    with store.read() as tx:
        assert (tx.job("j1"), tx.placement("p1"), tx.node("bk-a-0")) == rows
        assert (tx.jobs(), tx.placements(), tx.nodes()) == tuple([row] for row in rows)
        assert (tx.job("x"), tx.placement("x"), tx.node("x")) == (None, None, None)


def test_a_transaction_sees_its_own_writes(store: StateStore):
    with store.write() as tx:
        tx.save(job())
        assert tx.job("j1") == job()
        tx.save(replace(job(), generation=1))
        assert tx.jobs() == [tx.job("j1")] == [replace(job(), generation=1)]


def test_saving_again_replaces_the_row(store: StateStore):
    save(store, FULL_JOB)
    save(store, replace(FULL_JOB, progress=None, generation=2))
    with store.read() as tx:
        assert tx.jobs() == [replace(FULL_JOB, progress=None, generation=2)]


def test_open_rows_are_those_to_which_something_may_happen(store: StateStore):
    save(
        store,
        job("j1"),
        job("j2", state=JobState.FAILED),
        placement("p1"),
        placement("p2", attempt=2, state=PlacementState.GONE),
        node("bk-a-0"),
        node("bk-a-1", rank=1, state=NodeState.GONE),
    )
    with store.read() as tx:
        assert [row.id for row in tx.jobs(open_only=True)] == ["j1"]
        assert [row.id for row in tx.jobs()] == ["j1", "j2"]
        assert [row.id for row in tx.placements(open_only=True)] == ["p1"]
        assert [row.token for row in tx.nodes(open_only=True)] == ["bk-a-0"]
        assert len(tx.nodes(placement_id="p1")) == 2
        assert tx.jobs(project_id="other") == []


def test_an_error_leaves_nothing(store: StateStore):
    def fail() -> None:
        with store.write() as tx:
            tx.save(job())
            tx.emit(Event("job.submitted", 1))
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    with store.read() as tx:
        assert (tx.jobs(), tx.last_seq()) == ([], 0)


def test_a_placement_without_its_job_is_refused(store: StateStore):
    with pytest.raises(DBAPIError, match="FOREIGN KEY"):
        save(store, placement())
    save(store, job(), placement())  # the store still works


def test_reading_cannot_write(store: StateStore):
    with pytest.raises(DBAPIError, match="readonly"), store.read() as tx:
        tx.emit(Event("x.y", 1))


def test_a_read_sees_one_moment(store: StateStore):
    save(store, job("j1"))
    with store.read() as tx:
        assert len(tx.jobs()) == 1
        save(store, job("j2"))
        assert len(tx.jobs()) == 1
    with store.read() as tx:
        assert len(tx.jobs()) == 2


def test_no_update_is_lost_between_threads(store: StateStore):
    save(store, job())

    def add_one() -> None:
        for _ in range(25):
            with store.write() as tx:
                row = tx.job("j1")
                assert row is not None
                tx.save(replace(row, generation=row.generation + 1))
                tx.emit(Event("job.counted", 1))

    threads = [threading.Thread(target=add_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.read() as tx:
        assert tx.jobs()[0].generation == 100
        assert [event.seq for event in tx.events()] == list(range(1, 101))


def test_a_write_inside_a_write_is_a_bug_that_shows_at_once(store: StateStore):
    with pytest.raises(AssertionError, match="a write inside a write"), store.write(), store.write():
        pass
    save(store, job())


# -- the lease ------------------------------------------------------------------------------------------------------------


def test_a_second_daemon_is_told_who_holds_the_first(store: StateStore, tmp_path: Path, clock: ManualClock):
    with pytest.raises(
        AlreadyRunning, match=rf"is in use by process {os.getpid()} on .* since 2026-05-28T20:26:40Z"
    ):
        StateStore.open(tmp_path / "state.db", clock, CountingIds())


def test_a_stale_epoch_changes_nothing(store: StateStore, tmp_path: Path):
    save(store, job())
    with sqlite3.connect(tmp_path / "state.db") as other:
        other.execute("UPDATE lease SET epoch = epoch + 1, holder = 'process 7 on b'")
    with pytest.raises(LeaseLost, match="replaced by process 7 on b"):
        save(store, job("j2"))
    with store.read() as tx:
        assert [row.id for row in tx.jobs()] == ["j1"]


def test_reopening_takes_a_new_epoch_and_keeps_the_name(tmp_path: Path, clock: ManualClock):
    first = StateStore.open(tmp_path / "state.db", clock, CountingIds(1))
    first.close()
    second = StateStore.open(tmp_path / "state.db", clock, CountingIds(9))
    second.close()
    assert (first.epoch, second.epoch) == (1, 2)
    assert first.installation_id == second.installation_id == "bi-aaaaaaaaaaaaaaab"


def test_files_are_their_owners_alone(store: StateStore, tmp_path: Path):
    save(store, job())
    modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir()}
    assert {"state.db", "state.lock", "state.db-wal"} <= modes.keys()
    assert not any(modes.values())
    assert json.loads((tmp_path / "state.lock").read_text())["pid"] == os.getpid()


# -- events, decisions, segments --------------------------------------------------------------------------------------------


def test_events_are_numbered_and_told_of(store: StateStore):
    told: list[int] = []
    store.on_commit(told.append)
    store.on_commit(lambda _: 1 / 0)  # a listener that fails undoes nothing
    with store.write() as tx:
        assert tx.emit(Event("job.submitted", 1, job_id="j1", data={"n": 1})) == 1
        assert tx.emit(Event("job.queued", 2, job_id="j2", project_id="default")) == 2
        assert told == []
    save(store, job())
    assert told == [2]
    with store.read() as tx:
        assert tx.events(after=1) == [Event("job.queued", 2, job_id="j2", project_id="default", seq=2)]
        assert [event.seq for event in tx.events(job_id="j1")] == [1]
        assert [event.seq for event in tx.events(limit=1)] == [1]
        assert [event.seq for event in tx.events(project_id="default")] == [2]
        assert tx.last_seq() == 2


def test_a_number_is_never_given_twice(store: StateStore, tmp_path: Path):
    with store.write() as tx:
        tx.emit(Event("a.b", 1))
    with sqlite3.connect(tmp_path / "state.db") as other:
        other.execute("DELETE FROM event")
    with store.write() as tx:
        assert tx.emit(Event("a.b", 1)) == 2


def decision(decision_id: str, at_ms: int, kind: DecisionKind = DecisionKind.STAY) -> Decision:
    return Decision(
        decision_id,
        "j1",
        "default",
        "p",
        "0" * 64,
        at_ms,
        kind,
        acted=False,
        summary="stays",
        reasons=(Reason("migrate.min_saving: 20%", None, "no price"),),
        alternatives=(Alternative(OFFER, 5, 1.5, refused="empty"),),
        saving=0.25,
    )


def test_decisions_keep_the_quotes_they_saw(store: StateStore):
    save(store, job())
    rows = [decision("d1", 1), decision("d2", 2, DecisionKind.MOVE), decision("d3", 3)]
    with store.write() as tx:
        for row in rows:
            tx.save_decision(row)
    with store.read() as tx:
        assert tx.decision("d2") == rows[1]
        assert tx.decision("x") is None
        assert tx.decisions("j1") == rows[::-1]
        assert tx.decisions(limit=1) == [rows[2]]
        assert tx.decisions(since_ms=3) == [rows[2]]


def test_segments_are_nodes_whose_meter_has_run(store: StateStore):
    save(
        store,
        job(),
        placement(),
        node("bk-a-0"),
        node("bk-a-1", rank=1, billed_from_ms=20, ended_at_ms=30, ended_by=EndedBy.CLOUD),
        node("bk-a-2", rank=2, billed_from_ms=10),
    )
    with store.read() as tx:
        assert tx.segments(job_id="j1") == [
            Segment("bk-a-2", "p1", "j1", "default", OFFER, 10, None, None),
            Segment("bk-a-1", "p1", "j1", "default", OFFER, 20, 30, EndedBy.CLOUD),
        ]
        assert tx.segments(job_id="j2") == tx.segments(project_id="other") == []


# -- memory ---------------------------------------------------------------------------------------------------------------


def test_holds_are_remembered_by_job_and_policy(store: StateStore):
    save(store, job())
    hold = Hold("aws/x/y/spot", 5, 7)
    with store.write() as tx:
        assert tx.hold("j1", "p") is None
        tx.save_hold("j1", "p", hold)
    with store.write() as tx:
        assert Hold(*(tx.hold("j1", "p") or ())) == hold
        assert tx.hold("j1", "other") is None
        tx.save_hold("j1", "p", None)
        assert tx.hold("j1", "p") is None


def test_pools_are_empty_for_a_while(store: StateStore, clock: ManualClock):
    with store.write() as tx:
        tx.mark_empty("a", clock.now_ms() + 1000, "out of capacity")
        tx.mark_empty("b", clock.now_ms() + 9000, "out of capacity")
        tx.mark_empty("b", clock.now_ms() + 5000, "out of quota")
    with store.read() as tx:
        assert tx.pools() == {"a": clock.now_ms() + 1000, "b": clock.now_ms() + 5000}
    clock.advance(1)
    with store.read() as tx:
        assert list(tx.pools()) == ["b"]


def test_launches(store: StateStore):
    with store.write() as tx:
        tx.record_launch(1, OFFER, True)
        tx.record_launch(2, OFFER, False, "out_of_capacity")
    with store.read() as tx:
        assert [(row.at_ms, row.ok, row.error) for row in tx.launches(0)] == [
            (1, True, ""),
            (2, False, "out_of_capacity"),
        ]
        assert [row.at_ms for row in tx.launches(2)] == [2]


def test_probe_reports(store: StateStore):
    save(store, job(), placement(), node())
    report = ProbeReport("bk-a-0", "p1", 5, Verdict.INCONCLUSIVE, {"schema": "gpu-probe/1", "gpus": []})
    with store.write() as tx:
        tx.save_probe_report(report)
    with store.read() as tx:
        assert tx.probe_reports(node_token="bk-a-0") == tx.probe_reports(placement_id="p1") == [report]
        assert tx.probe_reports(placement_id="p2") == []


# -- access ---------------------------------------------------------------------------------------------------------------


def test_tokens(store: StateStore, clock: ManualClock):
    with store.write() as tx:
        token = tx.add_token("ann", Role.ENGINEER, "default", "ab" * 32, created_by="root")
        with pytest.raises(Conflict, match="'ann' already"):
            tx.add_token("ann", Role.VIEWER, "default", "cd" * 32, created_by="root")
        with pytest.raises(NotFound, match="no project 'x'"):
            tx.add_token("bob", Role.VIEWER, "x", "cd" * 32, created_by="root")
    clock.advance(1)
    with store.write() as tx:
        tx.touch_token("ann")
        assert tx.token_by_sha256("ab" * 32) == replace(token, last_used_at_ms=clock.now_ms())
        assert tx.revoke_token("ann", "root").revoked_at_ms == clock.now_ms()
        assert tx.token_by_sha256("ab" * 32) is None
        assert [row.name for row in tx.tokens()] == ["ann"]
        with pytest.raises(NotFound):
            tx.revoke_token("bob", "root")
        assert [event.kind for event in tx.events()] == ["token.created", "token.revoked"]
        assert "ab" * 32 not in str(tx.events())


def test_roles_are_ordered():
    assert Role.OPERATOR.covers(Role.VIEWER)
    assert Role.ENGINEER.covers(Role.ENGINEER)
    assert not Role.ENGINEER.covers(Role.AUTHOR)


def test_projects(store: StateStore):
    with store.write() as tx:
        tx.add_project("nlp", "root")
        with pytest.raises(Conflict):
            tx.add_project("nlp", "root")
        assert [project.id for project in tx.projects()] == ["default", "nlp"]


def test_switches_say_who_and_why(store: StateStore):
    with store.write() as tx:
        assert tx.switch(PAUSED) is False
        assert tx.set_switch(PAUSED, True, by="ann", reason="too dear") is True
        assert tx.set_switch(PAUSED, True, by="bob") is False
    with store.read() as tx:
        assert (tx.switch(PAUSED), tx.switch(REPORT_ONLY)) == (True, False)
        assert [(row.name, row.value, row.set_by, row.reason) for row in tx.switches()] == [
            (PAUSED, True, "ann", "too dear")
        ]
        assert [(event.kind, event.actor) for event in tx.events()] == [("switch.set", "ann")]


@pytest.mark.parametrize("damage", ["truncated", "overwritten"])
@pytest.mark.parametrize("name", ["state", "history"])
def test_a_damaged_file_is_named_with_a_way_out(tmp_path, name, damage):
    path = tmp_path / f"{name}.db"
    migrate(path, name)
    whole = path.read_bytes()
    path.write_bytes(whole[:20_000] if damage == "truncated" else bytes(range(256)) * 200)
    with pytest.raises(BrokerError, match=f"{name}.db is damaged .*backup"):
        migrate(path, name)


def test_a_full_disk_is_told_as_such_and_undoes_the_whole_transaction(store: StateStore):
    save(store, job())
    limit = "PRAGMA max_page_count={}"
    with store._engines.writer.begin() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(limit.format(pages))
    with pytest.raises(DiskFull, match=r"no room left for .*state\.db"):
        save(store, *(job(f"more-{number}") for number in range(500)))
    with store._engines.writer.begin() as connection:
        connection.exec_driver_sql(limit.format(1 << 30))
    with store.read() as tx:
        assert len(tx.jobs()) == 1
    save(store, job("more"))
