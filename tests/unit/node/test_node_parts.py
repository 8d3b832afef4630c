"""Small parts of the agent: metrics lines, source archives, signals, the lease, configuration, the language level."""

import ast
import hashlib
import io
import json
import math
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

import broker.node
import broker.wire
from broker.node import processes
from broker.node.config import Home, load_config
from broker.node.job import JobKeeper
from broker.node.lease import RunLease, boot_s
from broker.node.link import Link
from broker.node.metrics import MetricsReader
from broker.node.source import BadSource, unpack_source
from broker.node.state import NodeState
from broker.node.wishes import Interrupted, Stop, Wishes, at_once
from broker.wire import messages as wire
from broker.wire.messages import JOB_EXITED, PHASE_STOPPED, RunOrder, StoreAccess


def test_the_node_side_is_python_3_9_and_stands_alone() -> None:
    roots = [Path(module.__file__).parent for module in (broker.node, broker.wire) if module.__file__]
    files = [path for root in roots for path in root.rglob("*.py") if path.name != "bundle.py"]
    assert len(files) > 30
    for path in files:
        tree = ast.parse(path.read_text(), feature_version=(3, 9))
        for item in ast.walk(tree):
            names = [alias.name for alias in item.names] if isinstance(item, ast.Import) else []
            names += [item.module or ""] if isinstance(item, ast.ImportFrom) else []
            for name in names:
                top = name.split(".")[0]
                fine = top in sys.stdlib_module_names or name.startswith(("broker.node", "broker.wire"))
                assert fine or (top == "torch" and path.name == "torch_child.py"), (
                    f"{path.name} imports {name}"
                )


def test_metrics_are_followed_by_offset(tmp_path: Path) -> None:
    now_s = 0.0
    file = tmp_path / "metrics.jsonl"
    reader = MetricsReader(file, lambda: now_s)
    assert reader.read() is None
    file.write_text('{"step": 10, "total_steps": 100, "loss": 2.0, "lr": 0.1}\n{"step": 20, "lo')
    note = reader.read()
    assert note is not None
    assert (note.step, note.total_steps, note.loss, note.metrics) == (10, 100, 2.0, {"lr": 0.1})
    assert note.steps_per_s is None
    now_s = 5.0
    with file.open("a") as more:
        more.write('ss": 1.5}\nnot json\n{"val_loss": 3}\n')
    note = reader.read()
    assert note is not None
    assert (note.step, note.loss, note.steps_per_s) == (20, 1.5, 2.0)
    assert note.metrics == {"lr": 0.1, "val_loss": 3.0}
    assert reader.bad_lines == 1
    assert reader.read() is None
    now_s = 6.0
    with file.open("a") as more:
        more.write('{"step": 12, "loss": NaN}\n')
    note = reader.read()
    assert note is not None
    assert note.step == 12
    assert note.steps_per_s is None, "resumed from an earlier step: the old speed says nothing"
    assert note.loss is not None
    assert math.isnan(note.loss)


def test_readings_are_counted_by_name(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    reader = MetricsReader(file)
    file.write_text('{"step": 1, "loss": 2, "epoch": 0.1}\n{"step": 2, "loss": 2}\n{"val_loss": NaN}\n')
    note = reader.read()
    assert note is not None
    assert note.readings == {"loss": 2, "val_loss": 1}
    with file.open("a") as more:
        more.write('{"step": 3, "val_loss": 1.0}\n')
    note = reader.read()
    assert note is not None
    assert note.readings == {"loss": 2, "val_loss": 2}


@pytest.mark.parametrize("step", ["1e30", "-1", "NaN", "Infinity", "9007199254740992", "1" * 30])
def test_a_step_that_is_none_makes_its_line_a_bad_one(tmp_path: Path, step: str) -> None:
    file = tmp_path / "metrics.jsonl"
    reader = MetricsReader(file)
    file.write_text(f'{{"step": 5, "total_steps": -1}}\n{{"step": {step}, "loss": 3}}\n')
    note = reader.read()
    assert note is not None
    assert (note.step, note.total_steps, note.loss, reader.bad_lines) == (5, None, None, 1)


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"x": 1' + "0" * 400 + "}", '{"x": ' + "1" * 5000 + "}", "\x00", '{"x": "\\ud8']
)
def test_a_line_that_no_reader_can_take_is_a_bad_one(tmp_path: Path, line: str) -> None:
    file = tmp_path / "metrics.jsonl"
    reader = MetricsReader(file)
    file.write_text(f'{line}\n{{"step": 6}}\n')
    note = reader.read()
    assert note is not None
    assert (note.step, reader.bad_lines) == (6, 1)


def test_names_of_metrics_can_be_sent(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    reader = MetricsReader(file)
    file.write_text(json.dumps({"\ud800": 1, "x" * 5000: 2}) + "\n")
    note = reader.read()
    assert note is not None
    assert [len(name.encode()) < 300 for name in note.metrics] == [True, True]


def archive_of(*members: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return packed.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = kind, link, mode
    entry.size = 1 if kind == tarfile.REGTYPE else 0
    return entry


def unpack(data: bytes, into: Path) -> None:
    unpack_source(hashlib.sha256(data).hexdigest(), lambda _, file: file.write_bytes(data) and None, into)


def test_a_source_is_unpacked(tmp_path: Path) -> None:
    link = member("lib/link", tarfile.SYMTYPE, "../code/train.py")
    unpack(archive_of(member("code/train.py", mode=0o4755), member("./a"), link), tmp_path / "work")
    assert (tmp_path / "work/lib/link").read_bytes() == b"x"
    assert (tmp_path / "work/code/train.py").stat().st_mode & 0o7777 == 0o755
    unpack(archive_of(member("b")), tmp_path / "work")
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["b"]
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


@pytest.mark.parametrize(
    "members",
    [
        [member("../evil")],
        [member("/tmp/evil")],
        [member("a/../../evil")],
        [member("l", tarfile.SYMTYPE, "/etc")],
        [member("l", tarfile.SYMTYPE, "../..")],
        [member("l", tarfile.LNKTYPE, "../evil")],
        [member("p", tarfile.FIFOTYPE)],
        [member("d", tarfile.CHRTYPE)],
        [member("in", tarfile.SYMTYPE, "."), member("in/l", tarfile.SYMTYPE, ".."), member("in/l/evil")],
    ],
)
def test_a_source_never_leaves_its_folder(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    (tmp_path / "deep").mkdir()
    with pytest.raises(BadSource):
        unpack(archive_of(*members), tmp_path / "deep/work")
    assert [path.name for path in tmp_path.rglob("*")] == ["deep"], "nothing is left, inside or outside"


def test_a_source_with_another_hash_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSource, match="expected 000000000000"):
        unpack_source("0" * 64, lambda _, file: file.write_bytes(b"x") and None, tmp_path / "work")


def test_which_processes_handle_sigterm() -> None:
    python = (
        f"exec {sys.executable} -c 'import signal, time; signal.signal(15, lambda *_: None); time.sleep(60)'"
    )
    shell = subprocess.Popen(
        ["bash", "-c", f"sleep 60 & ({python}) & sleep 60; true"], start_new_session=True
    )
    try:
        deadline = time.monotonic() + 5
        found: list[int] = []
        while not found and time.monotonic() < deadline:
            found = processes.term_handlers(shell.pid)
            time.sleep(0.02)
        assert len(found) == 1
        assert b"signal.signal" in Path(f"/proc/{found[0]}/cmdline").read_bytes()
        assert not processes.handles(shell.pid, 15)
    finally:
        os.killpg(shell.pid, 9)
        shell.wait()


def test_a_process_is_not_taken_for_a_later_one_of_its_number() -> None:
    me = processes.identify(os.getpid())
    assert me is not None
    assert me.alive
    assert processes.parse(str(me)) == me
    assert not processes.ProcessId(me.pid, me.started + 1).alive
    assert processes.parse("12 x") is None


def test_a_lease_counts_from_when_the_beat_was_sent() -> None:
    lease = RunLease()
    assert lease.left_s == math.inf
    lease.renew(boot_s() - 8, lease_s=10)
    assert 1.5 < lease.left_s < 2.1
    assert lease.farewell_s == 1.0


def test_wishes_to_stop_add_up_to_the_sternest() -> None:
    drained = Stop(wire.JOB_STOPPED, save=True, kill_at_s=50, commit_until_s=90, linger=True)
    fenced = Stop(wire.JOB_FENCED, save=False, kill_at_s=0, commit_until_s=0)
    assert drained.and_also(fenced) == fenced.and_also(drained) == fenced
    sooner = Stop(wire.JOB_STOPPED, save=True, kill_at_s=20, commit_until_s=95)
    assert drained.and_also(sooner) == Stop(wire.JOB_STOPPED, save=True, kill_at_s=20, commit_until_s=90)


def test_configuration_comes_from_file_and_environment(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config.write_text(json.dumps({"url": "https://a", "token": "t", "notice_s": 7}))
    config = load_config(home, {"BROKER_NODE_URL": "https://b", "BROKER_NODE_NOTICE_POLL_S": "0.5"})
    assert (config.url, config.token, config.notice_s, config.notice_poll_s) == ("https://b", "t", 7.0, 0.5)
    home.config.write_text("{}")
    with pytest.raises(ValueError, match="url and token missing"):
        load_config(home, {})


def run_order(generation: int, setup: str = "") -> RunOrder:
    store = StoreAccess(kind="folder", prefix="jobs/a", path=f"/keys-{generation}")
    return RunOrder(job_id="a", generation=generation, run="true", store=store, setup=setup)


def test_an_order_is_taken_up_once_and_a_newer_generation_again() -> None:
    wishes = Wishes()
    wishes.order(run_order(0))
    wishes.done(wishes.take())
    wishes.order(run_order(0))
    wishes.order(run_order(3))
    taken = wishes.take()
    assert taken.generation == 3
    wishes.order(run_order(0))
    assert wishes.store.path == "/keys-3", "an older order changes nothing"
    wishes.done(taken)
    wishes.order(run_order(3))
    wishes.order(run_order(4))
    assert wishes.take().generation == 4


def test_a_newer_generation_fences_the_one_that_runs() -> None:
    wishes = Wishes()
    wishes.order(run_order(1))
    wishes.take()
    wishes.check()
    wishes.order(run_order(2))
    assert wishes.stopping == at_once(wire.JOB_FENCED)
    with pytest.raises(Interrupted):
        wishes.check()


def test_a_stop_also_meets_an_order_that_nobody_has_taken_up_yet() -> None:
    wishes = Wishes()
    wishes.order(run_order(0))
    preparing = wishes.take()
    wishes.order(run_order(1))
    assert wishes.stop(at_once(wire.JOB_STOPPED))
    wishes.done(preparing)
    wishes.order(run_order(1))
    wishes.order(run_order(2))
    assert wishes.take().generation == 2


def test_a_closed_node_stops_what_is_ordered_before_it_starts() -> None:
    wishes = Wishes()
    wishes.close()
    wishes.order(run_order(1))
    wishes.take()
    assert wishes.stopping == at_once(wire.JOB_STOPPED)


@pytest.mark.process
def test_a_fault_of_ours_after_a_job_has_ended_is_not_told_as_a_job_that_did_not_start(
    tmp_path: Path,
) -> None:
    class Faulty(JobKeeper):
        def _after_exit(self, *_: object) -> None:
            raise RecursionError("ours")

    home = Home(tmp_path)
    state = NodeState(facts={})
    link = Link("https://127.0.0.1:1", "token", "secret")
    keeper = Faulty(home, state, link, lambda: None)
    store = StoreAccess("folder", "jobs/x", path=str(tmp_path / "store"))
    keeper.wish(RunOrder("train-x", 1, "exit 3", store))
    deadline = time.monotonic() + 20
    while state.read().phase != PHASE_STOPPED:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    note = state.read().job
    assert (note.state, note.exit_code, note.started) == (JOB_EXITED, 3, True)
    assert "RecursionError" in note.error
