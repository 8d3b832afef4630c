"""The rows of the daemon's world as frozen values: job, placement, node, segment, decision, event.

`broker.store` converts between these and tables; everything pure works on these. Times are milliseconds,
money is micro-USD. The machines that move the states are drawn in `broker.migration.states`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from broker.core.offer import Offer
from broker.core.spec import JobSpec


class JobState(StrEnum):
    """See `broker.migration.states`."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    MOVING = "moving"
    RECOVERING = "recovering"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Nothing more will happen to it."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class PlacementState(StrEnum):
    """See `broker.migration.states`."""

    INTENDED = "intended"
    REQUESTED = "requested"
    BOOTING = "booting"
    PROBING = "probing"
    READY = "ready"
    ACTIVE = "active"
    DRAINING = "draining"
    RELEASING = "releasing"
    GONE = "gone"

    @property
    def landing(self) -> bool:
        """On its way to READY."""
        return self in _LANDING


_LANDING = (PlacementState.INTENDED, PlacementState.REQUESTED, PlacementState.BOOTING, PlacementState.PROBING)


class NodeState(StrEnum):
    """See `broker.migration.states`."""

    INTENDED = "intended"
    UNKNOWN = "unknown"
    REQUESTED = "requested"
    RUNNING = "running"
    UNREACHABLE = "unreachable"
    RELEASING = "releasing"
    GONE = "gone"


class Purpose(StrEnum):
    """Why a placement was made."""

    PLACE = "place"
    MOVE = "move"
    RECOVER = "recover"


class Cut(StrEnum):
    """How a job is handed over. FINAL: old commits, fence, new starts. BOUNDARY: fence, read HEAD, new starts."""

    FINAL = "final"
    BOUNDARY = "boundary"


class EndedBy(StrEnum):
    """Who ended a segment; some clouds refund what they end early."""

    US = "us"
    CLOUD = "cloud"
    NODE = "node"


class Verdict(StrEnum):
    """What the probe says of a node."""

    ACCEPT = "accept"
    DEGRADED = "degraded"
    REJECT = "reject"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Progress:
    """What the job's own metrics lines say. None where they do not.

    Attributes:
        at_ms: When the reading reached us.
        step: Last step reported.
        total_steps: How many there will be.
        steps_per_s: Steps in a second of *our* clock, over the readings of this placement.
        epoch: Last epoch reported.
        loss: Last training loss reported.
        metrics: Every other number of the last line.
        epoch_since_ms: When the epoch that it is in was first reported.
        generation: Of the copy that told.
        told: By metric, how often that copy has told it, as its agent counts.
        readings: By metric, ``loss`` among them: the last values that this copy told, oldest first.
        best: By metric, the best that any copy told: see `broker.jobs.metrics`.
    """

    at_ms: int
    step: int | None = None
    total_steps: int | None = None
    steps_per_s: float | None = None
    epoch: float | None = None
    loss: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    epoch_since_ms: int | None = None
    generation: int = 0
    told: Mapping[str, float] = field(default_factory=dict)
    readings: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    best: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Commit:
    """A checkpoint that HEAD names.

    Attributes:
        generation: Of the placement that committed it.
        seq: Counts commits of the job, over all generations.
        manifest: Key of the manifest object.
        manifest_sha256: Of the manifest's bytes.
        step: Training step inside, where it could be told.
        bytes: Size of the files together.
        at_ms: When the node told us.
    """

    generation: int
    seq: int
    manifest: str
    manifest_sha256: str
    step: int | None
    bytes: int
    at_ms: int


@dataclass(frozen=True)
class Job:
    """What the engineer submitted; lives through many placements.

    Attributes:
        generation: Of the newest placement that was given the right to commit. Raised before the fence.
        active_placement_id: The placement that trains, if one does.
        commit: Last commit that we heard of.
        resumed: Whether a start has ever restored a commit.
    """

    id: str
    spec: JobSpec
    project_id: str
    created_by: str
    created_at_ms: int
    state: JobState = JobState.QUEUED
    state_since_ms: int = 0
    reason: str = "submitted"
    policy: str | None = None
    generation: int = 0
    active_placement_id: str | None = None
    progress: Progress | None = None
    commit: Commit | None = None
    exit_code: int | None = None
    finished_at_ms: int | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True)
class Placement:
    """One attempt to run a job on one offer; owns its gang of nodes.

    Attributes:
        attempt: From 1, over the job's life.
        price_micro_usd_h: Of one node, as the decision saw it.
        generation: Given when the fence is intended; None before.
        replaces: The placement it takes over from, for moves and recoveries.
        deadline_ms: When this state has lasted too long; None in ACTIVE and GONE.
        cut: How it will give the job away; set when it starts draining.
        resumed_step: Step of the commit it restored, as the node reported.
        resumed_seq: Seq of the same commit.
        last_step: Last step it trained, by metrics.
        steps_per_s: Its speed, in steps a second of our clock, as last measured; what later decisions scale from.
        drained: The job has stopped here and its last commit is in (or will never be).
        lost: It ended without our asking.
        fenced: HEAD carries this placement's generation: our fence was confirmed.
    """

    id: str
    job_id: str
    attempt: int
    offer: Offer
    price_micro_usd_h: int
    purpose: Purpose
    project_id: str
    created_by: str
    created_at_ms: int
    decision_id: str | None = None
    state: PlacementState = PlacementState.INTENDED
    state_since_ms: int = 0
    deadline_ms: int | None = None
    reason: str = ""
    replaces: str | None = None
    generation: int | None = None
    fenced: bool = False
    cut: Cut | None = None
    verdict: Verdict | None = None
    ready_at_ms: int | None = None
    active_at_ms: int | None = None
    training_at_ms: int | None = None
    stopped_at_ms: int | None = None
    gone_at_ms: int | None = None
    resumed_step: int | None = None
    resumed_seq: int | None = None
    last_step: int | None = None
    steps_per_s: float | None = None
    drained: bool = False
    lost: bool = False


@dataclass(frozen=True)
class Node:
    """One machine of a placement, with its own token and state.

    Attributes:
        token: ``bk-<26 base32>-<rank>``; tag, name and client token at the cloud.
        event_seq: Number of the event that intended it; the tag that unmasks a restored database.
        provider_id: The cloud's id, once known.
        secret_sha256: Of the secret that the agent kept before its first call; None before the exchange.
        seen_at_ms: Last beat of the agent.
        report: The agent's last beat (`broker.wire.messages.Beat` as JSON).
        billed_from_ms: Start of the meter, by the cloud's word.
        ended_at_ms: End of the meter, by the cloud's word.
        gone_confirmations: How often in a row the cloud has said that it does not exist.
        create_sent_at_ms: When a create was last sent: an UNKNOWN node is looked up before it is resent.
        delete_sent_at_ms: When a delete was last sent.
    """

    token: str
    placement_id: str
    job_id: str
    rank: int
    cloud: str
    region: str
    zone: str
    project_id: str
    created_by: str
    created_at_ms: int
    event_seq: int = 0
    state: NodeState = NodeState.INTENDED
    state_since_ms: int = 0
    reason: str = ""
    provider_id: str | None = None
    address: str | None = None
    secret_sha256: str | None = None
    seen_at_ms: int | None = None
    report: Mapping[str, Any] = field(default_factory=dict)
    billed_from_ms: int | None = None
    ended_at_ms: int | None = None
    ended_by: EndedBy | None = None
    gone_confirmations: int = 0
    create_sent_at_ms: int | None = None
    delete_sent_at_ms: int | None = None


@dataclass(frozen=True)
class Segment:
    """One billable stretch of a node. The ledger is computed from these, never stored."""

    node_token: str
    placement_id: str
    job_id: str
    project_id: str
    offer: Offer
    started_at_ms: int
    ended_at_ms: int | None
    ended_by: EndedBy | None


class DecisionKind(StrEnum):
    """A policy's answer."""

    STAY = "stay"
    PLACE = "place"
    MOVE = "move"
    PAUSE = "pause"
    STOP = "stop"


@dataclass(frozen=True)
class Reason:
    """One line of an answer: what was asked, whether it held, with which values.

    Attributes:
        line: ``migrate.min_saving: 20%`` or the CEL text, as the author wrote it.
        holds: True, False, or None when a fact was missing.
        detail: The values, in words: ``saving is 58.0 %``.
        place: ``file:line`` of the policy, where there is one.
    """

    line: str
    holds: bool | None
    detail: str = ""
    place: str = ""


@dataclass(frozen=True)
class Alternative:
    """An offer that was weighed: what finishing there costs, or why it was refused.

    Attributes:
        offer: The offer.
        price_micro_usd_h: Of one node.
        quote_age_s: At the decision.
        cost_micro_usd: Expected cost to finish there with everything counted; None when refused.
        hours: Expected hours to finish there.
        refused: Why not, or empty.
    """

    offer: Offer
    price_micro_usd_h: int
    quote_age_s: float
    cost_micro_usd: int | None = None
    hours: float | None = None
    refused: str = ""


@dataclass(frozen=True)
class Decision:
    """A policy's answer for one job at one moment, with reasons and the quotes it saw.

    Attributes:
        acted: Whether it was carried out (``mode: act``, and no cap or pause in the way).
        target: The chosen alternative for PLACE and MOVE.
        here_micro_usd: Cost to finish where it runs now.
        saving: 1 - there/here, for MOVE.
        holds_since_ms: Since when the answer has been this one (``hold``).
        degraded_quotes: A recovery that used quotes past their age, and says so.
    """

    id: str
    job_id: str
    project_id: str
    policy: str
    policy_sha256: str
    at_ms: int
    kind: DecisionKind
    acted: bool
    summary: str
    reasons: tuple[Reason, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    target: Alternative | None = None
    here_micro_usd: int | None = None
    saving: float | None = None
    holds_since_ms: int | None = None
    degraded_quotes: bool = False
    created_by: str = "broker"


@dataclass(frozen=True)
class Event:
    """Append-only, written in the same transaction as the change it tells of.

    Attributes:
        seq: Given by the store; 0 before.
        kind: ``noun.verb``: ``placement.intended``, ``node.created``, ``checkpoint.committed`` ...
        actor: A person's name, ``broker`` or ``node``.
    """

    kind: str
    at_ms: int
    actor: str = "broker"
    project_id: str | None = None
    job_id: str | None = None
    placement_id: str | None = None
    node_token: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    seq: int = 0
