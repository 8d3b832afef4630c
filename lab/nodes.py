"""Machines with a life: each running machine of the world is a real process in a private root.

A node boots for the scenario's `boot_s`, then runs its user-data as cloud-init would, with a metadata server of its
own. When the machine's end begins, every process of the node gets SIGTERM, a short grace, SIGKILL; then the root goes.
The console output stays in the lab's folder, as clouds keep it.
"""

import logging
import secrets
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

from lab import processes
from lab.machines import EndedBy, Happening, Machine
from lab.metadata import Metadata
from lab.roots import Root, Roots
from lab.serving import HttpServer
from lab.world import World

MARK = "LAB_NODE"  # on every process of a node: LAB/MACHINE, since two labs of one seed make the same ids
RUN_MARK = "LAB_RUN"  # on everything that a lab starts; `lab.warden` sweeps by it
LONGEST_GRACE_S = 5.0
_log = logging.getLogger("lab.nodes")


@dataclass
class _Node:
    machine: Machine
    number: int
    metadata: Metadata
    ending: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    root: Root | None = None


class NodeRunner:
    """Runs the nodes of a world; subscribes to it.

    Args:
        folder: Console outputs go to ``folder/console``.
        run_id: Of this lab, for the warden; one of its own when empty.
    """

    def __init__(self, world: World, folder: Path, run_id: str = "") -> None:
        self._world = world
        self._run_id = run_id or secrets.token_hex(8)
        self._console = folder / "console"
        self._console.mkdir(parents=True, exist_ok=True)
        self._roots = Roots()
        self._nodes: dict[str, _Node] = {}
        self._lock = threading.Lock()
        self._made = 0
        self._closed = False
        world.subscribe(self._hear)

    @property
    def isolation(self) -> str:
        """``uid``, ``shielded-root`` or ``private-root``; see `lab.roots`."""
        return self._roots.isolation

    @property
    def parent(self) -> Path:
        """Where the roots are."""
        return self._roots.parent

    def mark(self, machine_id: str) -> str:
        """What every process of the node carries in its environment, and no other lab's does."""
        return f"{MARK}={self._run_id}/{machine_id}"

    def console(self, machine_id: str) -> str:
        """What the node's user-data has printed so far; empty when it has not started."""
        path = self._console / f"{machine_id}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def root(self, machine_id: str) -> Path | None:
        """The node's root while it lives."""
        node = self._nodes.get(machine_id)
        return node.root.path if node and node.root else None

    def close(self) -> None:
        """End every node, and leave nothing behind."""
        with self._lock:
            self._closed = True
            nodes = list(self._nodes.values())
        for node in nodes:
            node.ending.set()
        for node in nodes:
            if node.thread is not None:
                node.thread.join(timeout=LONGEST_GRACE_S + 10)
        self._roots.remove()

    def _hear(self, what: Happening, machine: Machine) -> None:
        if what is Happening.RUNNING and not machine.request.never_boots:
            self._begin(machine)
            return
        node = self._nodes.get(machine.id)
        if node is not None and what is Happening.NOTICED:
            node.metadata.noticed(machine)
        elif node is not None and what is Happening.STOPPING:
            node.ending.set()

    def _begin(self, machine: Machine) -> None:
        with self._lock:
            if self._closed:
                return
            self._made += 1
            metadata = Metadata(self._world, machine, lambda: self._end_from_inside(machine.id))
            node = self._nodes[machine.id] = _Node(machine, self._made, metadata)
            if machine.interruption is not None:  # announced while it was pending
                metadata.noticed(machine)
            node.thread = threading.Thread(target=self._live, args=(node,), name=machine.id, daemon=True)
            node.thread.start()

    def _end_from_inside(self, machine_id: str) -> None:
        _log.info("%s shuts itself down", machine_id)
        self._world.terminate(machine_id, EndedBy.NODE)

    def _live(self, node: _Node) -> None:
        server = HttpServer(node.metadata.handle).start()
        process: subprocess.Popen[bytes] | None = None
        try:
            if not node.ending.wait(self._boot_s(node.machine)):
                node.root = self._roots.make(node.number)
                process = self._boot(node, node.root, server)
                node.ending.wait()
        except Exception:  # noqa: BLE001 - one node that cannot start must not take its neighbours down
            _log.exception("%s could not start", node.machine.id)
            node.ending.wait()
        finally:
            self._bury(node, process, server)

    def _boot_s(self, machine: Machine) -> float:
        """Real seconds from now to user-data."""
        clock = self._world.clock
        since_s = clock.now_ms() / 1000 - (machine.running_s or 0)
        return max(0.0, self._world.scenario.boot_s.get(machine.cloud, 0.0) - since_s) / clock.rate

    def _boot(self, node: _Node, root: Root, server: HttpServer) -> subprocess.Popen[bytes]:
        image = self._world.scenario.image(node.machine.offer_key)
        script = root.furnish(node.machine.request.user_data, server.port, image.python)
        where = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url}
        if node.machine.cloud == "gcp":
            where = {"GCE_METADATA_HOST": f"127.0.0.1:{server.port}"}
        with (self._console / f"{node.machine.id}.log").open("ab") as console:
            process = subprocess.Popen(
                [*self._roots.shield, script],
                cwd=root.home,
                env=root.environment(
                    {**image.env, **where, MARK: f"{self._run_id}/{node.machine.id}", RUN_MARK: self._run_id}
                ),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                umask=0o077,
                user=root.uid,
                group=root.uid,
                extra_groups=[] if root.uid is not None else None,
            )
        _log.info("%s boots in %s as pid %s", node.machine.id, root.path, process.pid)
        return process

    def _bury(self, node: _Node, process: subprocess.Popen[bytes] | None, server: HttpServer) -> None:
        machine, uid = node.machine, node.root.uid if node.root else None
        grace_s = min(LONGEST_GRACE_S, 0.8 * self._world.scenario.stop_s / self._world.clock.rate)
        if process is not None and not processes.end(self.mark(machine.id), uid, grace_s):
            _log.error("%s has processes that will not die", machine.id)
        node.metadata.close()
        server.stop()
        if process is not None:
            process.wait()
        if node.root is not None:
            node.root.remove()
        self._nodes.pop(machine.id, None)
        _log.info("%s is gone", machine.id)
