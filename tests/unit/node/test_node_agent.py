"""Whole agents as processes: what they tell, what they do, what they survive."""

import hashlib
import io
import json
import signal
import sys
import tarfile
import time
from pathlib import Path

import pytest
import trustme

from broker.wire import messages as wire
from broker.wire.messages import ProbeOrder
from tests.unit.node.small import SmallDaemon, SmallNode, drain, eventually, order

pytestmark = pytest.mark.process

# A trainer in a few lines: saves when asked to, and resumes from what it is given.
TRAINER = f"""exec {sys.executable} -u - <<'END'
import json, os, signal, sys, time, zipfile
folder, start = os.environ["BROKER_CHECKPOINT_DIR"], os.environ["BROKER_RESUME_FROM"]
step = int(start.rsplit("-", 1)[1].split(".")[0]) if start else 0
print("from", step, flush=True)
def save():
    with zipfile.ZipFile(folder + "/.new", "w") as file:
        file.writestr("step", str(step))
    os.rename(folder + "/.new", folder + "/step-" + str(step) + ".pt")
def asked(*_):
    save(); print("saved", step, flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, asked)
while True:
    time.sleep(0.02); step += 1
    with open(os.environ["BROKER_METRICS"], "a") as file:
        file.write(json.dumps(dict(step=step, total_steps=9000, loss=1 / step)) + "\\n")
    if step % 25 == 0: save()
END
"""


def processes_with(mark: bytes) -> int:
    """How many processes have that in their environment."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            count += mark in (folder / "environ").read_bytes()
        except OSError:
            continue
    return count


def test_hello_comes_first_and_its_secret_survives_a_restart(daemon: SmallDaemon, node: SmallNode) -> None:
    first = node.start()
    daemon.until(lambda beat: beat["phase"] == "idle")
    first.kill()
    first.wait()
    node.start()
    eventually(lambda: len(daemon.hellos) == 2)
    assert daemon.hellos[0]["secret"] == daemon.hellos[1]["secret"]
    assert len(daemon.hellos[0]["secret"]) >= 32
    assert (node.home / "secret").stat().st_mode & 0o077 == 0


def test_a_daemon_with_another_authority_hears_nothing(daemon: SmallDaemon, node: SmallNode) -> None:
    node.config(ca_pem=trustme.CA().cert_pem.bytes().decode())
    node.start()
    eventually(lambda: "hello.failed" in node.agent_log())
    assert "CERTIFICATE_VERIFY_FAILED" in node.agent_log()
    assert not daemon.hellos


def test_a_job_trains_commits_saves_when_drained_and_goes_on_elsewhere(
    daemon: SmallDaemon, node: SmallNode, tmp_path: Path
) -> None:
    daemon.fence(1)
    daemon.directive = daemon.run_order(TRAINER, checkpoint_dir="ckpt")
    node.start()
    daemon.until_job("running")
    trained = daemon.until(lambda beat: beat["commit"] is not None)
    assert trained["commit"]["step"] % 25 == 0
    told = daemon.until(lambda beat: beat["job"]["handles_term"] is True and beat["progress"] is not None)
    assert told["progress"]["total_steps"] == 9000
    daemon.directive = drain()
    stopped = daemon.until_job("stopped")
    assert stopped["job"]["saved"]
    eventually(lambda: b"saved" in daemon.log)
    last = int(daemon.log.decode().rsplit("saved ", 1)[1].split()[0])
    assert stopped["commit"]["step"] == last

    daemon.fence(2)
    daemon.beats.clear()
    daemon.directive = daemon.run_order(TRAINER, generation=2, checkpoint_dir="ckpt")
    other = SmallNode(tmp_path / "other", daemon)
    daemon.log.clear()
    try:
        other.start()
        running = daemon.until_job("running")
        assert running["job"]["restore"]["step"] == last
        eventually(lambda: f"from {last}".encode() in daemon.log)
    finally:
        other.close()


def test_what_a_job_writes_about_itself_neither_ends_it_nor_its_commits(
    daemon: SmallDaemon, node: SmallNode
) -> None:
    script = f"""exec {sys.executable} -u - <<'END'
import json, os, time, zipfile
folder = os.environ["BROKER_CHECKPOINT_DIR"]
lines = ["[" * 100_000, '{{"x": 1' + "0" * 400 + "}}", '{{"step": 1e30}}', '{{"\\\\ud800": 1, "step": 4}}']
with open(os.environ["BROKER_METRICS"], "a") as file:
    file.write("\\n".join(lines) + "\\n")
with zipfile.ZipFile(folder + "/.new", "w") as file:
    file.writestr("x", "y")
os.rename(folder + "/.new", folder + "/ckpt-20261130172859132243.pt")
while not os.path.exists(folder + "/../enough"): time.sleep(0.1)
END
"""
    daemon.fence(1)
    daemon.directive = daemon.run_order(script, checkpoint_dir="ckpt")
    node.start()
    committed = daemon.until(lambda beat: beat["commit"] is not None and beat["progress"] is not None)
    assert committed["job"]["state"] == "running"
    assert (committed["progress"]["step"], committed["commit"]["step"]) == (4, None)
    assert list(committed["progress"]["metrics"]) == ["\ufffd"]


def test_a_job_that_does_not_handle_sigterm_is_never_sent_it(daemon: SmallDaemon, node: SmallNode) -> None:
    # The shell is what a careless stop would hit: it would die of it and leave the trainer behind.
    script = f"{sys.executable} -c 'import time\nwhile True: time.sleep(0.1)'\necho exit $?\n"
    daemon.directive = daemon.run_order(script)
    node.start()
    daemon.until(lambda beat: beat["job"]["handles_term"] is False)
    daemon.directive = drain(within_s=8.0)
    began = time.monotonic()
    stopped = daemon.until_job("stopped")
    assert time.monotonic() - began < 6, "nobody could be asked, so there was nothing to wait for"
    assert stopped["job"]["exit_code"] == 128 + signal.SIGKILL
    assert b"exit" not in daemon.log


def test_the_trainer_behind_a_shell_is_asked_and_not_the_shell(daemon: SmallDaemon, node: SmallNode) -> None:
    script = f"""true
{sys.executable} -u -c '
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("asked", flush=True), sys.exit(0)))
print("ready", flush=True)
while True: time.sleep(0.1)
' | cat
echo "after $?"
"""
    daemon.directive = daemon.run_order(script)
    node.start()
    eventually(lambda: b"ready" in daemon.log)
    daemon.directive = drain(within_s=10.0)
    daemon.until_job("stopped")
    eventually(lambda: b"asked" in daemon.log and b"after 0" in daemon.log)


def test_workers_in_sessions_of_their_own_die_with_the_job(daemon: SmallDaemon, node: SmallNode) -> None:
    script = "setsid sleep 987 & setsid bash -c 'trap : TERM; while true; do sleep 1; done' & wait"
    daemon.directive = daemon.run_order(script)
    node.start()
    daemon.until_job("running")
    mark = (node.home / "job.run_id").read_text().encode()
    eventually(lambda: processes_with(mark) >= 3)
    daemon.directive = drain(within_s=0.5)
    daemon.until_job("stopped")
    assert processes_with(mark) == 0


def test_exit_is_told_and_saved_once_it_is_in_the_store(daemon: SmallDaemon, node: SmallNode) -> None:
    daemon.fence(1)
    daemon.directive = daemon.run_order(
        "mkdir -p ckpt/step-5; echo x > ckpt/step-5/w.bin", checkpoint_dir="ckpt"
    )
    node.start()
    done = daemon.until(lambda beat: beat["job"]["state"] == "exited" and beat["job"]["saved"])
    assert done["job"]["exit_code"] == 0
    assert done["commit"]["step"] == 5
    count = len(daemon.beats)
    eventually(lambda: len(daemon.beats) > count + 2)
    assert daemon.head_seq() == 1, "an order that is repeated must not run the job again"


def test_a_failing_job_tells_its_exit_code(daemon: SmallDaemon, node: SmallNode) -> None:
    daemon.directive = daemon.run_order("echo oh; false | cat; echo never")
    node.start()
    assert daemon.until_job("exited")["job"]["exit_code"] == 1
    eventually(lambda: bytes(daemon.log) == b"oh\n")


def test_a_fenced_copy_is_killed(daemon: SmallDaemon, node: SmallNode) -> None:
    daemon.fence(1)
    daemon.directive = daemon.run_order(TRAINER, checkpoint_dir="ckpt")
    node.start()
    daemon.until(lambda beat: beat["commit"] is not None)
    daemon.fence(2)
    seq = daemon.head_seq()
    fenced = daemon.until_job("fenced")
    assert not fenced["job"]["saved"]
    assert fenced["job"]["exit_code"] == 128 + signal.SIGKILL
    assert daemon.head_seq() == seq
    assert b"saved" not in daemon.log, "there was nothing that it could have saved for"


def test_silence_is_survived_until_the_run_lease_is_over(daemon: SmallDaemon, node: SmallNode) -> None:
    daemon.fence(1)
    daemon.directive = daemon.run_order(TRAINER, checkpoint_dir="ckpt")
    daemon.directive.run_lease_s = 6.0
    node.start()
    daemon.until(lambda beat: beat["commit"] is not None)
    seq, silent_at = daemon.head_seq(), time.monotonic()
    daemon.silent = True
    eventually(lambda: daemon.head_seq() > seq, 5.0)  # it trains and commits on
    eventually(lambda: "lease.ending" in node.agent_log())
    assert 4.5 < time.monotonic() - silent_at < 8
    daemon.silent = False
    lost = daemon.until_job("lease_lost")
    assert lost["job"]["saved"], "it was asked to save while the lease lasted"
    count = len(daemon.beats)
    eventually(lambda: len(daemon.beats) > count + 2)
    assert daemon.beats[-1]["job"]["state"] == "lease_lost", "the same order must not start it again"


def test_sigterm_to_the_agent_is_a_notice(daemon: SmallDaemon, node: SmallNode) -> None:
    daemon.fence(1)
    node.config(notice_s=8.0)
    daemon.directive = daemon.run_order(TRAINER, checkpoint_dir="ckpt")
    agent = node.start()
    daemon.until(lambda beat: beat["job"]["handles_term"] is True)
    agent.terminate()
    notice = daemon.until(lambda beat: beat["notice"] is not None)
    assert notice["notice"]["source"] == "shutdown"
    assert agent.wait(12) == 0
    assert daemon.beats[-1]["job"]["state"] == "stopped"
    assert daemon.beats[-1]["job"]["saved"]


def directive_json(**changes: object) -> bytes:
    return json.dumps({"order": "wait", "beat_s": 0.1, "run_lease_s": 9, "dead_man_s": 9} | changes).encode()


def test_bad_directives_change_nothing(daemon: SmallDaemon, node: SmallNode) -> None:
    node.start()
    daemon.until(lambda beat: True)
    unarmed = {"job_id": "x", "generation": 0, "run": "true", "store": {"kind": "folder", "prefix": "x"}}
    for bad in (
        b"no json",
        b"[]",
        b'{"order": "run"}',
        directive_json(order="dance"),
        directive_json(order="run"),
        directive_json(order="run", beat_s="x", run_lease_s=None),
        directive_json(order="drain", drain={"reason": 1, "within_s": "soon"}),
        directive_json(order="run", run=unarmed),
        directive_json(order="probe", probe={"gpu": 5}),
    ):
        daemon.raw_answer = bad
        count = len(daemon.beats)
        eventually(lambda count=count: len(daemon.beats) > count + 1)
    daemon.raw_answer = None
    daemon.directive = daemon.run_order("echo fine")
    assert daemon.until_job("exited")["job"]["exit_code"] == 0


def test_logs_go_on_where_the_daemon_left_off(daemon: SmallDaemon, node: SmallNode) -> None:
    daemon.directive = daemon.run_order("echo one; echo two")
    agent = node.start()
    # Its end is on the disk: the next agent must not run it again.
    daemon.until(lambda beat: beat["phase"] == "stopped")
    assert bytes(daemon.log) == b"one\ntwo\n"
    agent.kill()
    agent.wait()
    daemon.log[4:] = b""  # what the daemon had not kept when it crashed
    with (node.home / "job.log").open("ab") as log:
        log.write(b"three\n")
    node.start()
    eventually(lambda: bytes(daemon.log) == b"one\ntwo\nthree\n")


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("true", 0)])
def test_the_last_words_of_a_job_come_before_its_end(
    daemon: SmallDaemon, node: SmallNode, script: str, code: int
) -> None:
    daemon.directive = daemon.run_order(f"echo last words; {script}")
    node.start()
    end = daemon.until(lambda beat: beat["job"]["state"] == "exited" and beat["job"]["saved"])
    assert end["job"]["exit_code"] == code
    heard = daemon.heard[daemon.beats.index(end)]
    assert heard == b"last words\n", "a daemon that has the node deleted now has read everything"


def test_source_setup_and_environment(daemon: SmallDaemon, node: SmallNode) -> None:
    text, archive = b"echo $GREETING > greeting\n", io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        entry = tarfile.TarInfo("code/train.sh")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    sha256 = hashlib.sha256(archive.getvalue()).hexdigest()
    daemon.sources[sha256] = archive.getvalue()
    parts = {
        "setup": "echo setup; touch was-set-up",
        "source_sha256": sha256,
        "env": {"GREETING": "hello", "BROKER_GPUS_PER_NODE": "8"},
        "nodes": 2,
        "rank": 1,
        "node_addresses": ["10.0.0.1", "10.0.0.2"],
    }
    script = (
        "test -f was-set-up; bash code/train.sh; cat greeting; env | grep -E '^(BROKER|SKYPILOT)'; echo end"
    )
    daemon.directive = daemon.run_order(script, generation=0, **parts)
    node.start(BROKER_NODE_SECRET_THING="for-the-agent-alone")
    daemon.until(lambda beat: beat["phase"] == "ready")
    assert (node.home / "job.log").read_bytes() == b"setup\n"
    daemon.directive = daemon.run_order(script, **parts)
    assert daemon.until_job("exited")["job"]["exit_code"] == 0
    eventually(lambda: daemon.log.endswith(b"end\n"))
    said = daemon.log.decode()
    assert said.count("setup\n") == 1, "prepared once"
    for line in ("hello", "BROKER_NODE_RANK=1", "BROKER_HEAD_IP=10.0.0.1", "SKYPILOT_NUM_GPUS_PER_NODE=8"):
        assert line in said
    assert "for-the-agent-alone" not in said


def test_a_failing_setup_says_so(daemon: SmallDaemon, node: SmallNode) -> None:
    daemon.directive = daemon.run_order("echo never", setup="exit 7")
    node.start()
    assert "exit code 7" in daemon.until_job("failed")["job"]["error"]


def test_a_store_that_fails_does_not_stop_the_training(daemon: SmallDaemon, node: SmallNode) -> None:
    daemon.fence(1)
    daemon.directive = daemon.run_order(TRAINER, checkpoint_dir="ckpt")
    node.start()
    daemon.until(lambda beat: beat["commit"] is not None)
    store, away = Path(daemon.access.path), Path(daemon.access.path + ".away")
    store.rename(away)
    store.write_text("not a folder")
    daemon.until(lambda beat: beat["store_error"] != "")
    assert daemon.beats[-1]["job"]["state"] == "running"
    store.unlink()
    away.rename(store)
    seq = daemon.head_seq()
    daemon.until(lambda beat: beat["store_error"] == "" and beat["commit"]["seq"] > seq)


def test_a_half_written_checkpoint_is_set_aside_before_the_start(
    daemon: SmallDaemon, node: SmallNode
) -> None:
    half = node.work / "out/checkpoint-200"
    half.mkdir(parents=True)
    (half / "model.safetensors").write_bytes(b"cut short")
    daemon.fence(1)
    daemon.directive = daemon.run_order("ls out; echo resume=$BROKER_RESUME_FROM.", checkpoint_dir="out")
    node.start()
    daemon.until_job("exited")
    eventually(lambda: bytes(daemon.log) == b"resume=.\n")
    assert (node.work / "out/.set-aside/checkpoint-200/model.safetensors").exists()


def test_an_agent_that_comes_back_does_not_run_a_finished_job_again(
    daemon: SmallDaemon, node: SmallNode
) -> None:
    daemon.directive = daemon.run_order("echo once")
    agent = node.start()
    daemon.until(lambda beat: beat["job"]["state"] == "exited" and beat["job"]["saved"])
    agent.kill()
    agent.wait()
    daemon.beats.clear()
    node.start()
    eventually(lambda: len(daemon.beats) > 3)
    assert daemon.beats[0]["job"]["state"] == "exited"
    assert (node.home / "job.log").read_bytes() == b"once\n"


def test_exit_ends_the_agent_and_the_job(daemon: SmallDaemon, node: SmallNode) -> None:
    daemon.directive = daemon.run_order("sleep 987")
    agent = node.start()
    daemon.until_job("running")
    daemon.directive = order(wire.ORDER_EXIT)
    assert agent.wait(10) == 0
    assert processes_with((node.home / "job.run_id").read_text().encode()) == 0


def test_an_order_of_a_newer_generation_starts_the_job_anew(daemon: SmallDaemon, node: SmallNode) -> None:
    daemon.directive = daemon.run_order("sleep 987")
    node.start()
    daemon.until_job("running")
    daemon.directive = daemon.run_order("echo again", generation=2)
    done = daemon.until_job("exited")
    assert done["job"]["generation"] == 2


def test_a_probe_that_hangs_does_not_outlive_its_agent(daemon: SmallDaemon, node: SmallNode) -> None:
    wanted = ProbeOrder("quick", "H100-SXM5-80GB", 1, "NVIDIA H100 80GB HBM3", 81559, "9.0")
    daemon.directive = order(wire.ORDER_PROBE, probe=wanted)
    agent = node.start(BROKER_PROBE_HANG_IN="exact")
    assert daemon.until(lambda beat: beat["phase"] == "probing")["probe"] is None
    eventually(lambda: processes_with(b"BROKER_PROBE_HANG_IN=exact") == 2)
    daemon.directive = order(wire.ORDER_EXIT)
    assert agent.wait(10) == 0
    assert processes_with(b"BROKER_PROBE_HANG_IN=exact") == 0


def test_a_probe_is_reported_once_it_is_done(daemon: SmallDaemon, node: SmallNode) -> None:
    wanted = ProbeOrder("quick", "H100-SXM5-80GB", 1, "NVIDIA H100 80GB HBM3", 81559, "9.0")
    daemon.directive = order(wire.ORDER_PROBE, probe=wanted)
    node.start()
    report = daemon.until(lambda beat: beat["probe"] is not None, 40.0)["probe"]
    assert report["schema"] == "gpu-probe/1"
    assert report["verdict"] == "inconclusive"
    assert not report["hardware_verified"]
    assert daemon.beats[-1]["phase"] == "idle"
