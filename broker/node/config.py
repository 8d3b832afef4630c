"""What user-data tells an agent, and where things lie on a node."""

import json
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Mapping

HOME_VARIABLE = "BROKER_NODE_HOME"
DEFAULT_HOME = "/var/lib/gpu-broker"
# Nothing of the agent's own configuration is for the job's eyes.
PRIVATE_PREFIX = "BROKER_NODE_"


@dataclass(frozen=True)
class NodeConfig:
    """Settings of one node. Each may also come from ``BROKER_NODE_<NAME>`` in the environment, which wins.

    Attributes:
        url: The daemon's ``public_url``.
        token: One-time token of this node; it stays its name afterwards.
        ca_pem: What to trust; empty trusts the system's authorities.
        cloud: Which notices to watch: ``aws``, ``gcp``, ``azure``, or anything else for none.
        notice_s: How much notice this cloud gives where its announcement does not say, in node seconds.
        notice_poll_s: Interval of asking.
        first_dead_man_s: Until the first beat: the node ends itself after this without one.
        shutdown: Command line that ends the node, found by PATH.
    """

    url: str
    token: str
    ca_pem: str = ""
    cloud: str = ""
    notice_s: float = 30.0
    notice_poll_s: float = 5.0
    first_dead_man_s: float = 2700.0
    shutdown: str = "shutdown -P now"


@dataclass(frozen=True)
class Home:
    """Paths under ``BROKER_NODE_HOME``; one object so that no module spells a file name twice."""

    root: Path

    @property
    def config(self) -> Path:
        """Written by user-data, mode 0600."""
        return self.root / "config.json"

    @property
    def secret(self) -> Path:
        """Random, made before the first call; proves later calls come from the same node."""
        return self.root / "secret"

    @property
    def agent(self) -> Path:
        """The agent's process, for the dead-man switch."""
        return self.root / "agent.process"

    @property
    def deadline(self) -> Path:
        """When the dead-man switch acts, on the node's boot clock."""
        return self.root / "deadline"

    @property
    def job_note(self) -> Path:
        """How the last job ended here, so that a restarted agent does not run it again."""
        return self.root / "job.json"

    @property
    def run_id(self) -> Path:
        """The mark in the environment of every process of the job."""
        return self.root / "job.run_id"

    @property
    def probe(self) -> Path:
        """Folder of the last probe."""
        return self.root / "probe"

    @property
    def work(self) -> Path:
        """Working directory of the job: its unpacked source."""
        return self.root / "work"

    @property
    def log(self) -> Path:
        """The job's output, setup included."""
        return self.root / "job.log"

    @property
    def metrics(self) -> Path:
        """``$BROKER_METRICS``."""
        return self.root / "metrics.jsonl"

    @property
    def snapshots(self) -> Path:
        """Frozen copies of checkpoints on their way to the store."""
        return self.root / "snapshots"

    @property
    def prefetched(self) -> Path:
        """Chunks that came before the hand-over."""
        return self.root / "chunks"


def find_home(environ: Mapping[str, str]) -> Home:
    """The node's home directory."""
    return Home(Path(environ.get(HOME_VARIABLE) or DEFAULT_HOME))


def load_config(home: Home, environ: Mapping[str, str]) -> NodeConfig:
    """Read ``config.json`` and the environment.

    Raises:
        ValueError: no URL or no token, or a value that is no number.
    """
    document = json.loads(home.config.read_text()) if home.config.exists() else {}
    values = {}
    for entry in fields(NodeConfig):
        value = environ.get(PRIVATE_PREFIX + entry.name.upper(), document.get(entry.name))
        if value is not None:
            values[entry.name] = float(value) if entry.name.endswith("_s") else str(value)
    missing = [name for name in ("url", "token") if not values.get(name)]
    if missing:
        raise ValueError(f"{home.config}: {' and '.join(missing)} missing; user-data should have written it")
    return NodeConfig(**values)  # type: ignore[arg-type]


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file so that a reader, or a restart after a power cut, sees the old or the new one whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
