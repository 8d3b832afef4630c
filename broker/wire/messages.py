"""Messages of ``/agent/v1``. The agent dials out; the daemon answers with what it wants to be true.

    POST /agent/v1/hello   Hello  -> Welcome      one-time token for a session, idempotent for the same secret
    POST /agent/v1/beat    Beat   -> Directive    level-triggered: the directive is the whole wish, every time
    POST /agent/v1/logs?offset=N   bytes -> {"size": M}   append-only; M is what the daemon has
    GET  /agent/v1/agent.pyz?sha256=SHA256   the agent itself, pinned by hash in user-data; without it today's
    GET  /agent/v1/source/SHA256   the job's files

After hello, calls carry ``Authorization: Bearer TOKEN:SECRET``. Durations are seconds of the *node's* clock:
the daemon has already divided by its clock's rate. Unknown keys are ignored, so that a newer peer can add some;
a missing key takes its default. What a node tells is kept within bounds, by both sides: `broker.wire.bounds`.
"""

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Type, TypeVar

from broker.wire.bounds import bounded

PROTOCOL_MIN = 1
PROTOCOL_MAX = 1

# What the agent is doing.
PHASE_IDLE = "idle"
PHASE_PROBING = "probing"
PHASE_PREPARING = "preparing"
PHASE_READY = "ready"
PHASE_RESTORING = "restoring"
PHASE_RUNNING = "running"
PHASE_DRAINING = "draining"
PHASE_STOPPED = "stopped"

# What the daemon wants.
ORDER_WAIT = "wait"
ORDER_PROBE = "probe"
ORDER_PREPARE = "prepare"
ORDER_RUN = "run"
ORDER_DRAIN = "drain"
ORDER_EXIT = "exit"

# What became of the job on this node.
JOB_NONE = "none"
JOB_RUNNING = "running"
JOB_EXITED = "exited"  # by itself; exit_code says how
JOB_STOPPED = "stopped"  # because we asked, or on notice
JOB_FENCED = "fenced"  # HEAD carries a newer generation: this copy must not train
JOB_LEASE_LOST = "lease_lost"  # the daemon was silent for a run lease
JOB_FAILED = "failed"  # could not be started: setup, restore or source failed; `error` says why

M = TypeVar("M")


def decode(kind: Type[M], document: Mapping[str, Any]) -> M:
    """A message from its JSON object; unknown keys are ignored. What a node tells is within bounds.

    Raises:
        ValueError: a required key is missing or out of bounds, or the document is no object.
    """
    if not isinstance(document, Mapping):
        raise ValueError(f"{kind.__name__}: expected an object, got {type(document).__name__}")
    known = {f.name: document[f.name] for f in fields(kind) if f.name in document}  # type: ignore[arg-type]
    for name, nested in getattr(kind, "NESTED", {}).items():
        if known.get(name) is not None:
            known[name] = decode(nested, known[name])
    try:
        message = kind(**known)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from error
    return bounded(message) if kind in (Hello, Beat, JobNote) else message


def encode(message: Any) -> bytes:
    """A message as JSON bytes, keys sorted."""
    return json.dumps(asdict(message), sort_keys=True, separators=(",", ":")).encode()


@dataclass
class Hello:
    """First call of an agent."""

    token: str
    secret: str
    protocol_min: int = PROTOCOL_MIN
    protocol_max: int = PROTOCOL_MAX
    facts: Dict[str, Any] = field(default_factory=dict)


@dataclass
class Welcome:
    """Answer to hello."""

    protocol: int
    beat_s: float


@dataclass
class StoreAccess:
    """How a node reaches the checkpoint store: short-lived keys for one job's prefix where the store mints them.

    Attributes:
        kind: ``s3`` or ``folder``.
        prefix: Key prefix of the job, no slash at the end: ``jobs/train-x7k2p``.
        endpoint: ``https://host[:port]``; path-style addressing.
        path: Directory, for ``folder``.
        expires_in_s: Left of the keys' life; None when they do not expire.
    """

    kind: str
    prefix: str
    endpoint: str = ""
    region: str = "us-east-1"
    bucket: str = ""
    access_key: str = ""
    secret_key: str = ""
    session_token: str = ""
    path: str = ""
    ca_pem: str = ""
    expires_in_s: Optional[float] = None


@dataclass
class ProbeOrder:
    """What was bought, for the probe to compare with.

    Attributes:
        profile: ``quick``, ``standard``.
        gpu: SKU; gpus: how many per node.
        nvml_name, nvml_memory_mib: What the driver should say.
        baseline_tflops: Sustained bf16 to compare with, or None.
        min_speed: Share of the baseline below which a node is rejected, e.g. 0.9 degrades, see the probe.
        timeout_s: Hard cap for all of it.
    """

    profile: str
    gpu: str
    gpus: int
    nvml_name: str
    nvml_memory_mib: int
    compute_capability: str
    baseline_tflops: Optional[float] = None
    min_speed: float = 0.9
    timeout_s: float = 120.0


@dataclass
class RunOrder:
    """Everything to prepare and run a job on one node.

    Attributes:
        generation: The right to commit; 0 in a prepare order, where none is given yet.
        run, setup: Shell text (``bash -euo pipefail``).
        env: The job's own variables and the ``BROKER_*`` ones that the daemon knows.
        source_sha256: Tarball to fetch, or None.
        checkpoint_dir: As in the job file, or None when the job declares none.
        keep_metric: Metric of ``keep_best`` with its mode, or None.
    """

    job_id: str
    generation: int
    run: str
    store: StoreAccess
    setup: Optional[str] = None
    env: Dict[str, str] = field(default_factory=dict)
    source_sha256: Optional[str] = None
    checkpoint_dir: Optional[str] = None
    checkpoint_every_s: float = 600.0
    keep_last: int = 3
    keep_metric: Optional[str] = None
    keep_mode: str = "min"
    rank: int = 0
    nodes: int = 1
    node_addresses: List[str] = field(default_factory=list)

    NESTED: ClassVar[Dict[str, Any]] = {"store": StoreAccess}


@dataclass
class DrainOrder:
    """Stop the job here.

    Attributes:
        reason: For the log.
        save: Let the job save if it handles SIGTERM, then commit; False when HEAD is fenced already.
        within_s: Kill what is left after this.
    """

    reason: str
    save: bool = True
    within_s: float = 60.0


@dataclass
class Directive:
    """The daemon's whole wish for a node."""

    order: str
    beat_s: float
    run_lease_s: float
    dead_man_s: float
    probe: Optional[ProbeOrder] = None
    run: Optional[RunOrder] = None
    drain: Optional[DrainOrder] = None

    NESTED: ClassVar[Dict[str, Any]] = {"probe": ProbeOrder, "run": RunOrder, "drain": DrainOrder}


@dataclass
class Notice:
    """The cloud has announced the end of this node.

    Attributes:
        source: ``aws:instance-action``, ``gcp:preempted``, ``shutdown`` ...
        seconds_left: When it came, seconds until the end as the cloud promises.
    """

    source: str
    seconds_left: float
    action: str = "terminate"


@dataclass
class CommitNote:
    """A commit that HEAD names."""

    generation: int
    seq: int
    manifest: str
    manifest_sha256: str
    step: Optional[int]
    bytes: int


@dataclass
class RestoreNote:
    """What was restored before the start.

    Attributes:
        seq: Of the commit; 0 when there was none to restore.
        fell_back: Manifests that were skipped for damage, newest first, each with why.
    """

    seq: int
    step: Optional[int] = None
    manifest: Optional[str] = None
    fell_back: List[str] = field(default_factory=list)


@dataclass
class ProgressNote:
    """The last of the job's metrics lines.

    Attributes:
        readings: How often each name, ``loss`` among them, has been told since this agent follows the file.
    """

    step: Optional[int] = None
    total_steps: Optional[int] = None
    steps_per_s: Optional[float] = None
    epoch: Optional[float] = None
    loss: Optional[float] = None
    metrics: Dict[str, float] = field(default_factory=dict)
    readings: Dict[str, float] = field(default_factory=dict)


@dataclass
class JobNote:
    """The job on this node.

    Attributes:
        state: One of the ``JOB_*``.
        started: Its process has been started at least once here.
        handles_term: It catches SIGTERM, so it can be asked to save. None while nothing runs.
        saved: After a stop: everything it had saved is committed.
    """

    state: str = JOB_NONE
    generation: int = 0
    exit_code: Optional[int] = None
    started: bool = False
    handles_term: Optional[bool] = None
    saved: bool = False
    error: str = ""
    restore: Optional[RestoreNote] = None

    NESTED: ClassVar[Dict[str, Any]] = {"restore": RestoreNote}


@dataclass
class Beat:
    """What is true on the node.

    Attributes:
        seq: Counts beats of this agent process; an older one never overwrites a newer one.
        probe: The probe's report (``gpu-probe/1``) once it has finished.
        notice: Stays once it came.
        store_error: Last error of the checkpoint store, while it lasts.
    """

    seq: int
    phase: str
    job: JobNote = field(default_factory=JobNote)
    probe: Optional[Dict[str, Any]] = None
    notice: Optional[Notice] = None
    commit: Optional[CommitNote] = None
    progress: Optional[ProgressNote] = None
    store_error: str = ""
    facts: Dict[str, Any] = field(default_factory=dict)

    NESTED: ClassVar[Dict[str, Any]] = {
        "job": JobNote,
        "notice": Notice,
        "commit": CommitNote,
        "progress": ProgressNote,
    }
