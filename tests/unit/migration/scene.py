"""Rows of one job under a planner, moved along by hand: what a cloud and an agent would have answered."""

from dataclasses import asdict, replace
from typing import Any

from broker.core.errors import ProviderError
from broker.core.model import Event, Job, JobState, Node, NodeState, Placement, PlacementState, Purpose
from broker.core.offer import Market, Offer
from broker.core.ports import CloudNode, CloudState
from broker.core.spec import Checkpoint, GpuRequest, JobSpec, Resources
from broker.migration.effects import CreateNode, DeleteNode, Effect, Fence, FindNode
from broker.migration.plan import plan_pass
from broker.migration.rules import Rules
from broker.migration.settle import settle_create, settle_fence, settle_find
from broker.migration.view import Avoided, Plan
from broker.policy.schema import OnInconclusive
from broker.wire.messages import Beat, JobNote

AWS = Offer("aws", "us-east-1", "use1-az6", "p5.4xlarge", Market.SPOT, "H100-SXM5-80GB", 1)
GCP = Offer("gcp", "us-central1", "us-central1-a", "a3-highgpu-1g", Market.SPOT, "H100-SXM5-80GB", 1)


class Scene:
    """One job, any number of placements, a clock that moves when told to."""

    def __init__(self, checkpoint: bool = True, nodes: int = 1, **rules: Any) -> None:
        self.rules = Rules(**rules)
        self.now_ms = 1_000_000_000
        resources = Resources(gpus=(GpuRequest("H100"),), nodes=nodes)
        spec = JobSpec(
            "train", "python train.py", resources, checkpoint=Checkpoint("ck") if checkpoint else None
        )
        self.job = Job("train-1", spec, "p", "ada", self.now_ms, state_since_ms=self.now_ms)
        self.placements: dict[str, Placement] = {}
        self.nodes: dict[str, Node] = {}
        self.events: list[Event] = []
        self.avoided: list[Avoided] = []
        self.switches: dict[str, Any] = {}
        self.on_inconclusive = OnInconclusive.ACCEPT

    def intend(self, offer: Offer = AWS, purpose: Purpose = Purpose.PLACE) -> str:
        """What the decider writes."""
        number = len(self.placements) + 1
        placement = Placement(
            f"train-1-p{number}", "train-1", number, offer, 3_000_000, purpose, "p", "policy:demo", self.now_ms,
            state_since_ms=self.now_ms, deadline_ms=self.rules.deadline_ms(PlacementState.INTENDED, self.now_ms),
        )  # fmt: skip
        self.placements[placement.id] = placement
        for rank in range(self.job.spec.resources.nodes):
            token = f"bk-{str(number) * 26}-{rank}"
            self.nodes[token] = Node(
                token, placement.id, "train-1", rank, offer.cloud, offer.region, offer.zone, "p", "policy:demo", self.now_ms
            )  # fmt: skip
        return placement.id

    def after(self, seconds: float) -> "Scene":
        """Let time pass; agents that have called go on calling."""
        self.now_ms += round(seconds * 1000)
        for node in self.nodes.values():
            if node.seen_at_ms is not None and node.state == NodeState.RUNNING:
                self.nodes[node.token] = replace(node, seen_at_ms=self.now_ms)
        return self

    def plan(self) -> list[Effect]:
        """One pass; its rows become ours."""
        plan = self.open()
        plan_pass(plan, dict.fromkeys(self.placements, self.on_inconclusive))
        self._take(plan)
        return plan.effects

    def settle(self, effect: Effect, outcome: CloudNode | ProviderError | None = None) -> None:
        """The outcome of an effect."""
        plan = self.open()
        match effect:
            case CreateNode():
                settle_create(plan, plan.nodes[effect.token], outcome)
            case FindNode():
                settle_find(plan, plan.nodes[effect.token], outcome)
            case Fence():
                settle_fence(plan, effect)
            case DeleteNode():
                pass
        self._take(plan)

    def cloud(self, token: str, state: CloudState = CloudState.RUNNING, **more: Any) -> CloudNode:
        """A node as its cloud would tell it."""
        node = self.nodes[token]
        return CloudNode(token, f"i-{token[3:8]}", node.cloud, node.region, node.zone, state, **more)

    def beat(
        self, placement_id: str, phase: str = "running", job: JobNote | None = None, **fields: Any
    ) -> None:
        """Every agent of a placement says the same."""
        for node in self.nodes_of(placement_id):
            report = asdict(Beat(seq=1, phase=phase, job=job or JobNote(), **fields))
            self.nodes[node.token] = replace(node, secret_sha256="s", seen_at_ms=self.now_ms, report=report)

    def nodes_of(self, placement_id: str) -> list[Node]:
        return [n for n in self.nodes.values() if n.placement_id == placement_id]

    def state(self, placement_id: str) -> PlacementState:
        return self.placements[placement_id].state

    def ready(self, placement_id: str) -> None:
        """Through landing to READY."""
        for effect in self.plan():
            if isinstance(effect, CreateNode):
                self.settle(effect, self.cloud(effect.token, billed_from_ms=self.now_ms))
        self.plan()
        self.beat(placement_id, "idle")
        self.plan()
        self.beat(placement_id, "ready", probe={"verdict": "accept", "reasons": []})
        self.plan()

    def train(self, placement_id: str, handles_term: bool = True) -> None:
        """From READY through the fence to training."""
        fences = [e for e in self.plan() if isinstance(e, Fence)] or [
            Fence("train-1", placement_id, self.placements[placement_id].generation or 0)
        ]
        self.settle(fences[-1])
        self.training(placement_id, handles_term)
        self.plan()

    def training(self, placement_id: str, handles_term: bool = True) -> None:
        generation = self.placements[placement_id].generation or 0
        self.beat(
            placement_id, "running", JobNote("running", generation, started=True, handles_term=handles_term)
        )

    def running(self, offer: Offer = AWS, handles_term: bool = True) -> str:
        """A job that trains."""
        placement_id = self.intend(offer)
        self.ready(placement_id)
        self.train(placement_id, handles_term)
        assert self.job.state == JobState.RUNNING, self.job
        return placement_id

    def release(self, limit: int = 12) -> None:
        """Let the cloud end whatever is being released."""
        for _ in range(limit):
            for effect in self.after(31).plan():
                if isinstance(effect, FindNode) and self.nodes[effect.token].state in (
                    "releasing",
                    "unknown",
                ):
                    self.settle(effect, None)

    def open(self) -> Plan:
        placements = [p for p in self.placements.values() if p.state != PlacementState.GONE]
        ids = {p.id for p in placements}
        nodes = [n for n in self.nodes.values() if n.placement_id in ids]
        return Plan.of(self.now_ms, self.rules, [self.job], placements, nodes, **self.switches)

    def _take(self, plan: Plan) -> None:
        self.job = plan.jobs[self.job.id]
        self.placements |= plan.placements
        self.nodes |= plan.nodes
        self.events += plan.events
        self.avoided += plan.avoided
