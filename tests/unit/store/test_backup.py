"""A copy of the state folder: whole, private, latched, and taken beside a daemon that writes."""

import sqlite3
import stat
import threading
from contextlib import closing

import pytest

from broker.core.errors import BrokerError, Conflict, NotFound
from broker.core.model import Event
from broker.store import backup
from broker.store.access import REPORT_ONLY
from broker.store.backup import back_up
from broker.store.history import HistoryStore
from broker.store.state import StateStore
from tests.clocks import CountingIds, ManualClock


@pytest.fixture
def folder(tmp_path):
    """A daemon's state folder, with the databases open."""
    clock = ManualClock()
    where = tmp_path / "state"
    state = StateStore.open(where / "state.db", clock, CountingIds())
    history = HistoryStore.open(where / "history.db")
    (where / "tls").mkdir()
    (where / "tls" / "ca.key").write_text("secret")
    (where / "sources").mkdir()
    (where / "sources" / "ab.tar.gz").write_bytes(b"x" * 10)
    (where / "sources" / ".cd.partial").write_bytes(b"half")
    (where / "operator.token").write_text("brk_x\n")
    (where / "logs").mkdir()
    yield where, state, clock
    history.close()
    state.close()


def opened(copy, clock):
    return StateStore.open(copy / "state.db", clock, CountingIds(900))


def test_a_copy_is_a_state_folder_that_is_latched_from_within(folder, tmp_path):
    where, state, clock = folder
    sizes = dict(back_up(where, tmp_path / "copy", clock))
    assert set(sizes) == {"state.db", "history.db", "operator.token", "tls", "sources"}
    assert sizes["sources"] == 10
    names = {path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*")}
    assert names == {
        "state.db", "history.db", "operator.token", "tls", "tls/ca.key", "sources", "sources/ab.tar.gz",
    }  # fmt: skip
    with state.read() as tx:
        assert not tx.switch(REPORT_ONLY)
    copy = opened(tmp_path / "copy", clock)
    with copy.read() as tx:
        (switch,) = tx.switches()
    copy.close()
    assert (switch.name, switch.value) == (REPORT_ONLY, True)
    assert switch.reason == "restored from the backup of 2026-05-28T20:26:40Z"
    assert copy.installation_id == state.installation_id


def test_a_backup_that_ends_later_replaces_none_and_claims_no_later_time(folder, tmp_path, monkeypatch):
    where, state, clock = folder
    copy_database, later = backup._copy_database, []

    def slow(source, target):
        copy_database(source, target)
        if source.name == "state.db" and not later:
            later.append(True)
            clock.advance(3600)
            with state.write() as tx:
                tx.emit(Event("since.then", clock.now_ms()))
            if target.parent.name.startswith(".today."):
                back_up(where, tmp_path / "today", clock)

    monkeypatch.setattr(backup, "_copy_database", slow)
    with pytest.raises(Conflict, match="has appeared meanwhile"):
        back_up(where, tmp_path / "today", clock)
    newer = opened(tmp_path / "today", clock)
    with newer.read() as tx:
        assert [event.kind for event in tx.events()][-2:] == ["since.then", "switch.set"]
    newer.close()
    later.clear()
    back_up(where, tmp_path / "slow", clock)
    copy = opened(tmp_path / "slow", clock)
    with copy.read() as tx:
        (switch,) = tx.switches()
    copy.close()
    assert switch.reason == "restored from the backup of 2026-05-28T21:26:40Z", (
        "not of when the copying ended"
    )
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_only_its_owner_may_read_it(folder, tmp_path):
    where, _, clock = folder
    back_up(where, tmp_path / "copy", clock)
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "copy" / "state.db").stat().st_mode) == 0o600


def test_it_is_of_one_moment_while_the_daemon_writes(folder, tmp_path):
    where, state, clock = folder
    done = threading.Event()

    def write():
        while not done.is_set():
            with state.write() as tx:  # always two at once
                tx.emit(Event("one", 0))
                tx.emit(Event("two", 0))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            back_up(where, tmp_path / f"copy-{number}", clock)
    finally:
        done.set()
        writer.join()
    for number in range(5):
        with closing(sqlite3.connect(tmp_path / f"copy-{number}" / "state.db")) as copy:
            kinds = dict(copy.execute("SELECT kind, count(*) FROM event GROUP BY kind"))
        assert kinds.get("one", 0) == kinds.get("two", 0)
        assert kinds["switch.set"] == 1


def test_it_works_when_no_daemon_runs(folder, tmp_path):
    where, state, clock = folder
    state.close()
    back_up(where, tmp_path / "copy", clock)
    opened(tmp_path / "copy", clock).close()


def test_it_is_whole_or_not_at_all(folder, tmp_path):
    where, _, clock = folder
    with pytest.raises(NotFound, match=r"no state\.db"):
        back_up(tmp_path / "nowhere", tmp_path / "copy", clock)
    (tmp_path / "copy").mkdir()
    with pytest.raises(Conflict, match="exists"):
        back_up(where, tmp_path / "copy", clock)
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokerError, match="no backup was made"):
        back_up(where, tmp_path / "file" / "copy", clock)
    (where / "history.db").unlink()
    (where / "history.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(BrokerError, match="no backup was made"):
        back_up(where, tmp_path / "other", clock)
    assert {path.name for path in tmp_path.iterdir()} == {"state", "copy", "file"}


def test_events_go_on_above_what_was_left_out(folder):
    _, state, _ = folder
    with state.write() as tx:
        assert tx.caught_up_to() == 0
        first = tx.emit(Event("one", 0))
        assert tx.catch_up(first + 100, "alan") == first + 100
        assert tx.catch_up(first, "alan") == first + 101, "an event of its own, whatever the number"
        assert tx.emit(Event("two", 0)) == first + 102
    with state.read() as tx:
        assert [(e.kind, e.actor) for e in tx.events(first)] == [
            ("log.caught_up", "alan"), ("log.caught_up", "alan"), ("two", "broker"),
        ]  # fmt: skip
        assert (tx.caught_up_to(), tx.last_seq()) == (first + 101, first + 102)
        assert [(event := tx.event(n)) and event.kind for n in (first, first + 50, first + 102)] == [
            "one", None, "two",
        ]  # fmt: skip
