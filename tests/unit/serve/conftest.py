"""The API over real databases, real policies and a clock that the test moves."""

import shutil
from dataclasses import dataclass, field

import pytest
from fastapi.testclient import TestClient

from broker.core.audit import Applied, Asked, Audit
from broker.core.model import Decision, DecisionKind, Job, Node, NodeState, Placement, PlacementState, Purpose
from broker.core.offer import Market, MarketSnapshot, Offer, Quote
from broker.core.ports import Check
from broker.core.spec import GpuRequest, JobSpec, Resources
from broker.core.tariff import BillingRule
from broker.policy.load import PolicySet
from broker.serve.api import create_app
from broker.serve.auth import make_token
from broker.serve.services import Health, Services
from broker.settings import Settings
from broker.store.access import REPORT_ONLY
from broker.store.history import HistoryStore, Poll
from broker.store.state import StateStore
from broker.wire.messages import ORDER_WAIT, Directive
from tests.clocks import CountingIds, ManualClock

RATE = 20.0
OFFER = Offer("aws", "us-east-1", "use1-az6", "p5.48xlarge", Market.SPOT, "H100-SXM5-80GB", 8)
OWNED = Offer("local", "here", "here", "box", Market.OWNED, "A100-SXM4-80GB", 1)
SPEC = JobSpec("train", "python train.py", Resources((GpuRequest("H100", 8),)), env={"WANDB_API_KEY": "k3y"})


@dataclass
class Bench:
    """One daemon's parts without its loops."""

    services: Services
    client: TestClient
    clock: ManualClock
    store: StateStore
    history: HistoryStore
    health: Health = field(default_factory=Health)
    wakes: int = 0
    audit: Audit = field(default_factory=lambda: Audit(0, None, (Asked("aws", 1, 0), Asked("store", 2)), ()))
    applied: list = field(default_factory=list)
    next_polls_ms: dict = field(default_factory=dict)
    poll_error: str = ""
    polled: list = field(default_factory=list)

    def token(self, role, name=None, project="default"):
        """Headers of a new token."""
        with self.store.write() as tx:
            secret, _ = make_token(tx, self.services.ids, role, name or f"{role}-{project}", project, "test")
        return {"Authorization": f"Bearer {secret}"}

    def job(self, job_id="train-aaaaa", **fields):
        """A job row."""
        now_ms = self.clock.now_ms()
        job = Job(
            job_id, SPEC, fields.pop("project_id", "default"), "ann", now_ms, state_since_ms=now_ms, **fields
        )
        with self.store.write() as tx:
            if job.project_id not in {project.id for project in tx.projects()}:
                tx.add_project(job.project_id, "test")
            tx.save(job)
        return job

    def node(self, job=None, rank=0, attempt=1, **fields):
        """A node row with its placement and, if need be, its job."""
        job = job or self.job()
        now_ms = self.clock.now_ms()
        placement = Placement(
            f"{job.id}.{attempt}",
            job.id,
            attempt,
            OFFER,
            30_000_000,
            Purpose.PLACE,
            job.project_id,
            job.created_by,
            now_ms,
            state=PlacementState.BOOTING,
        )
        letter = "abcdefgh"[attempt]
        fields.setdefault("state", NodeState.RUNNING)
        node = Node(
            f"bk-{letter * 26}-{rank}",
            placement.id,
            job.id,
            rank,
            "aws",
            "us-east-1",
            "use1-az6",
            job.project_id,
            job.created_by,
            now_ms,
            **fields,
        )
        with self.store.write() as tx:
            tx.save(placement)
            tx.save(node)
        return node


@pytest.fixture(scope="session")
def fresh_databases(tmp_path_factory):
    """Both databases at this release's schema: a copy is five times faster than running the migrations again."""
    folder = tmp_path_factory.mktemp("databases")
    StateStore.open(folder / "state.db", ManualClock(), CountingIds()).close()
    HistoryStore.open(folder / "history.db").close()
    return folder


@pytest.fixture
def bench(tmp_path, monkeypatch, fresh_databases):
    shutil.copytree(fresh_databases, tmp_path / "state")
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "default.yaml").write_text("policy: default\ndescription: Stays.\n")
    settings = Settings.parse(f'[policies]\ndir = "{policies}"\n[clouds.aws]\n')
    clock, ids = ManualClock(rate=RATE), CountingIds()
    store = StateStore.open(settings.state_dir / "state.db", clock, ids)
    history = HistoryStore.open(settings.state_dir / "history.db")

    def wake():
        made.wakes += 1

    def snapshot():
        return MarketSnapshot(clock.now_ms(), history.now(), quarantined={OWNED.key: "zero price"})

    def preview(spec, project_id):
        return Decision(
            "d0",
            "",
            project_id,
            "default",
            "0" * 64,
            clock.now_ms(),
            DecisionKind.STAY,
            False,
            f"no offer for {spec.name}",
        )

    async def audit():
        return made.audit

    async def apply_audit(ids, by):
        made.applied.append((sorted(ids), by))
        return Applied(tuple(d for d in made.audit.discrepancies if d.id in ids))

    async def poll(cloud):
        made.polled.append(cloud)
        now_ms, error = clock.now_ms(), made.poll_error
        return Poll(cloud, now_ms - 2000, now_ms, not error, 0 if error else 12, 0 if error else 3, error)

    async def clear_report_only(by, reason):
        with store.write() as tx:
            tx.set_switch(REPORT_ONLY, False, by=by, reason=reason)
        return made.audit

    services = Services(
        settings=settings,
        store=store,
        history=history,
        policies=PolicySet(settings.policies.dir),
        clock=clock,
        ids=ids,
        wake=wake,
        snapshot=snapshot,
        preview=preview,
        directive=lambda tx, node: Directive(ORDER_WAIT, 0.5, 90.0, 45.0),
        billing_rule=lambda cloud, market: BillingRule(unit_s=1, minimum_s=60),
        checks=lambda: [("aws", Check("credentials", False, "no key: set AWS_ACCESS_KEY_ID"))],
        health=lambda: made.health,
        agent_bytes=b"PK agent",
        agent_sha256="a" * 64,
        agent_dir=settings.agent_dir,
        source_dir=settings.source_dir,
        log_dir=settings.log_dir,
        audit=audit,
        apply_audit=apply_audit,
        clear_report_only=clear_report_only,
        unowned=lambda: made.audit,
        poll=poll,
        next_polls_ms=lambda: made.next_polls_ms,
    )
    with TestClient(create_app(services), raise_server_exceptions=False) as client:
        made = Bench(services, client, clock, store, history)
        history.ingest(
            [
                Quote(
                    OFFER, 24_000_000, clock.now_ms() - 60_000, clock.now_ms() - 30_000, "aws:spot_history"
                ),
                Quote(OWNED, 1_000_000, clock.now_ms() - 60_000, clock.now_ms() - 30_000, "overlay"),
            ]
        )
        yield made
    history.close()
    store.close()
