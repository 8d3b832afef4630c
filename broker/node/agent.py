"""The agent: says what is true, hears what is wanted, and lets the other parts do it.

Only this thread talks to the daemon about state. It never waits for work: a directive is handed over and the next
beat tells how far it has come. Silence of the daemon changes nothing until the run lease is nearly over.
"""

import json
import os
import platform
import secrets
import signal
import threading
from typing import Any, Dict, Mapping, Optional

from broker.node import processes
from broker.node.config import Home, NodeConfig, find_home, load_config, write_atomically
from broker.node.job import JobKeeper
from broker.node.lease import RUN_MARK, RunLease, boot_s, kill_marked, postpone_death
from broker.node.link import Link, LinkDown, LinkRefused
from broker.node.log import say
from broker.node.logs import LogShipper
from broker.node.notices import NoticeWatch
from broker.node.probe.run import run_probe
from broker.node.state import NodeState
from broker.node.wishes import Stop, at_once
from broker.wire import messages as wire
from broker.wire.messages import Beat, Directive, Notice, ProbeOrder

_SHORTEST_BEAT_S, _LONGEST_BEAT_S = 0.05, 60.0
_HELLO_PAUSE_S, _HELLO_MAX_PAUSE_S = 1.0, 30.0
_LEASE_TICK_S = 0.25
_EXIT_WAIT_S = 20.0
_LAST_WORDS_S = 5.0
# After a drain's time to save, how long the upload of what was saved may go on.
_DRAIN_COMMIT_S = 600.0


class Agent:
    """One node's agent.

    Args:
        environ: For metadata endpoints and the probe's faults.
    """

    def __init__(self, home: Home, config: NodeConfig, environ: Mapping[str, str]) -> None:
        self._home = home
        self._config = config
        self._environ = environ
        self._state = NodeState(facts=_facts())
        self._link = Link(config.url, config.token, _secret(home), config.ca_pem)
        self._lease = RunLease()
        self._logs = LogShipper(self._link, home.log)
        self._keeper = JobKeeper(home, self._state, self._link, lambda: self._logs.catch_up(_LAST_WORDS_S))
        self._probe_order: Optional[ProbeOrder] = None
        self._probe_mark = ""
        self._beat_s = 1.0
        self._over = threading.Event()

    def run(self) -> int:
        """Until the daemon says exit, or the node's end after a SIGTERM."""
        write_atomically(self._home.agent, str(processes.identify(os.getpid())).encode())
        self._adopt_probe()
        self._listen()
        self._hello()
        self._logs.start()
        while not self._over.is_set():
            self._state.news.clear()
            self._beat()
            self._over.wait(_SHORTEST_BEAT_S)  # events in a burst make one beat
            self._state.news.wait(self._beat_s)
        self._leave()
        return 0

    def _listen(self) -> None:
        config = self._config
        NoticeWatch(config.cloud, self._environ, config.notice_s, config.notice_poll_s, self._heard).start()
        threading.Thread(target=self._watch_lease, name="lease", daemon=True).start()
        _on_sigterm(self._terminated)

    # -- the daemon --------------------------------------------------------------------------------------------

    def _hello(self) -> None:
        pause_s = _HELLO_PAUSE_S
        while not self._over.is_set():
            try:
                welcome = self._link.hello(self._state.read().facts)
                self._beat_s = _bounded(welcome.beat_s)
                say("hello.answered", protocol=welcome.protocol)
                return
            except LinkDown as error:
                say("hello.failed", error=error)
            self._over.wait(pause_s)
            pause_s = min(2 * pause_s, _HELLO_MAX_PAUSE_S)

    def _beat(self) -> None:
        asked_at_s = boot_s()
        try:
            directive = self._link.beat(self._state.next_beat())
            lease_s, dead_man_s = float(directive.run_lease_s), float(directive.dead_man_s)
            self._beat_s = _bounded(directive.beat_s)
        except (LinkDown, TypeError, ValueError) as error:
            say("beat.failed", error=error)
            if isinstance(error, LinkRefused) and error.status in (401, 403):
                # A daemon with another database: nothing renews us, so the lease and the switch decide.
                self._beat_s = _LONGEST_BEAT_S / 4
            return
        self._lease.renew(asked_at_s, lease_s)
        postpone_death(self._home, lease_s + dead_man_s)
        try:
            self._obey(directive)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            say("directive.bad", order=directive.order, error=f"{type(error).__name__}: {error}")

    def _obey(self, directive: Directive) -> None:
        """Hand the wish over. It is repeated with every beat, so each part takes only what is new to it."""
        if directive.order == wire.ORDER_PROBE and directive.probe is not None:
            self._probe(directive.probe)
        elif directive.order in (wire.ORDER_PREPARE, wire.ORDER_RUN) and directive.run is not None:
            wanted = directive.run.generation
            if (directive.order == wire.ORDER_RUN) != (wanted > 0):
                raise ValueError(f"generation {wanted} in a {directive.order} order")
            self._keeper.wish(directive.run)
        elif directive.order == wire.ORDER_DRAIN and directive.drain is not None:
            within_s = float(directive.drain.within_s) if directive.drain.save else 0.0
            kill_at_s = boot_s() + within_s
            self._drain(directive.drain.save, kill_at_s)
        elif directive.order == wire.ORDER_EXIT:
            self._over.set()
        elif directive.order != wire.ORDER_WAIT:
            say("directive.ignored", order=directive.order)

    def _drain(self, save: bool, kill_at_s: float) -> None:
        self._keeper.stop(Stop(wire.JOB_STOPPED, save, kill_at_s, kill_at_s + _DRAIN_COMMIT_S))

    def _leave(self) -> None:
        """Stop everything here, say so if somebody listens, and end. The dead-man switch stays."""
        self._keeper.close()
        now_s = boot_s()
        if not self._keeper.idle:
            self._keeper.stop(at_once(wire.JOB_STOPPED))
        kill_marked(self._probe_mark, within_s=2.0)
        while not self._keeper.idle and boot_s() < now_s + _EXIT_WAIT_S:
            threading.Event().wait(0.05)
        self._logs.finish(_LAST_WORDS_S)
        try:
            self._link.beat(self._state.next_beat())
        except LinkDown:
            pass  # it has told us to go, or is gone itself
        say("agent.ended")

    # -- the end of the lease, and of the node -----------------------------------------------------------------

    def _watch_lease(self) -> None:
        """In a thread of its own: the beat loop may be waiting for an answer just when the lease ends."""
        warned = False
        while True:
            threading.Event().wait(_LEASE_TICK_S)
            left_s = self._lease.left_s
            if left_s > self._lease.farewell_s:
                warned = False
            elif not warned and not self._keeper.idle:
                warned = True
                say("lease.ending", left_s=round(left_s, 1))
                end_s = boot_s() + max(0.0, left_s)
                self._keeper.stop(Stop(wire.JOB_LEASE_LOST, True, end_s, end_s + self._lease.farewell_s))

    def _heard(self, notice: Notice) -> None:
        """Save what can be saved, at once and without asking: the daemon may be slower than the cloud."""
        if not self._state.notice(notice):
            return
        say("notice.heard", source=notice.source, seconds_left=notice.seconds_left)
        self._keeper.close()
        left_s = max(0.0, notice.seconds_left)
        end_s = boot_s() + left_s
        handles_term = self._state.read().job.handles_term
        if handles_term:
            # Keep back what the upload of the last checkpoint took, and never more than half.
            reserve_s = min(0.5 * left_s, max(0.2 * left_s, 1.5 * self._keeper.commit_s + 1))
            stop = Stop(wire.JOB_STOPPED, True, end_s - reserve_s, end_s)
        else:
            stop = Stop(wire.JOB_STOPPED, True, end_s - min(5.0, 0.15 * left_s), end_s, linger=True)
        if not self._keeper.idle:
            self._keeper.stop(stop)

    def _terminated(self) -> None:
        """SIGTERM to the agent: the machine is going down, or somebody wants us to end. Both end us."""
        self._heard(Notice("shutdown", self._config.notice_s))
        deadline_s = boot_s() + self._config.notice_s
        while not self._keeper.idle and boot_s() < deadline_s:
            threading.Event().wait(0.05)
        self._over.set()
        self._state.news.set()

    # -- the probe ---------------------------------------------------------------------------------------------

    def _probe(self, order: ProbeOrder) -> None:
        if self._probe_order == order:
            return
        self._probe_order = order
        self._state.phase(wire.PHASE_PROBING)
        threading.Thread(target=self._run_probe, args=(order,), name="probe", daemon=True).start()

    def _run_probe(self, order: ProbeOrder) -> None:
        self._probe_mark = secrets.token_hex(8)
        env = {**self._environ, RUN_MARK: self._probe_mark}
        try:
            report = run_probe(order, self._home.probe, environ=env)
        except Exception as error:  # noqa: BLE001  silence would leave the daemon waiting for its deadline
            report = {
                "schema": "gpu-probe/1",
                "verdict": "inconclusive",
                "checks": [],
                "hardware_verified": False,
            }
            report["reasons"] = [f"the probe itself failed: {type(error).__name__}: {error}"]
        say("probe.finished", verdict=report["verdict"])
        write_atomically(self._home.probe / "report.json", json.dumps([vars(order), report]).encode())

        def change(beat: Beat) -> None:
            beat.probe = report
            beat.phase = wire.PHASE_IDLE

        self._state.update(change)

    def _adopt_probe(self) -> None:
        """After a restart: a probe that has finished need not be repeated."""
        try:
            order, report = json.loads((self._home.probe / "report.json").read_text())
            self._probe_order = wire.decode(ProbeOrder, order)
        except (OSError, ValueError):
            return

        def change(beat: Beat) -> None:
            beat.probe = report

        self._state.update(change)


def _bounded(beat_s: object) -> float:
    return min(_LONGEST_BEAT_S, max(_SHORTEST_BEAT_S, float(beat_s)))  # type: ignore[arg-type]


def _secret(home: Home) -> str:
    """Made and synced to disk before the first call: an answer lost half-way must not lock us out."""
    try:
        return home.secret.read_text().strip()
    except FileNotFoundError:
        secret = secrets.token_urlsafe(32)
        write_atomically(home.secret, secret.encode())
        return secret


def _facts() -> Dict[str, Any]:
    return {
        "host": platform.node(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
    }


def _on_sigterm(act: Any) -> None:
    """Call `act` in a thread when SIGTERM comes.

    A handler runs between two instructions of the main thread, which may hold any lock; so ours does nothing, and
    the interpreter's wake-up byte in a pipe tells the thread. Blocking the signal instead would be inherited by
    the job, which could then not be asked to save.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def listen() -> None:
        while True:
            if signal.SIGTERM in os.read(reader, 64):
                act()

    threading.Thread(target=listen, name="sigterm", daemon=True).start()


def main(environ: Mapping[str, str]) -> int:
    """``agent.pyz``."""
    home = find_home(environ)
    home.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Agent(home, load_config(home, environ), environ).run()
