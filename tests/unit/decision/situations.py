"""Small real values to decide about."""

from dataclasses import replace
from typing import Any

from broker.core.errors import Place
from broker.core.model import Commit, Job, Placement, PlacementState, Progress, Purpose
from broker.core.offer import Market, MarketSnapshot, Offer, Quote
from broker.core.spec import Checkpoint, GpuRequest, JobSpec, Resources
from broker.decision.subject import Subject, Timing, World
from broker.policy.conditions import compile_condition
from broker.policy.facts import Line, facts_for
from broker.policy.schema import Condition, Migrate, Mode, Policy

NOW = 1_790_000_000_000
HOUR = 3_600_000
GIB = 2**30

# Round numbers for golden costs: a start takes 0.2 h, of which 0.1 h overlap with training.
TIMING = Timing(boot_s=300, probe_s=60, restore_s=360, transfer_gib_s=1.0)

SPOT_AWS = Offer("aws", "us-east-1", "use1-az6", "p5.4xlarge", Market.SPOT, "H100-SXM5-80GB", 1)
ON_DEMAND_AWS = replace(SPOT_AWS, market=Market.ON_DEMAND)
SPOT_GCP = Offer("gcp", "us-central1", "us-central1-a", "a3-highgpu-1g", Market.SPOT, "H100-SXM5-80GB", 1)
ON_DEMAND_GCP = replace(SPOT_GCP, market=Market.ON_DEMAND)
A100 = Offer("lambda", "us-west-1", "us-west-1", "gpu_1x_a100", Market.ON_DEMAND, "A100-SXM4-80GB", 1)
H100_X8 = Offer("aws", "us-east-1", "use1-az6", "p5.48xlarge", Market.SPOT, "H100-SXM5-80GB", 8)
OWNED = Offer("local", "lab", "rack-1", "box", Market.OWNED, "H100-SXM5-80GB", 1)


def condition(text: str, line: Line = Line.WHERE) -> Condition:
    return compile_condition(text, Place("policies/test.yaml", 14, 5), facts_for(line, text))


def dollars(amount: float) -> int:
    return round(amount * 1_000_000)


def quote(offer: Offer, usd_h: float, age_s: float = 10) -> Quote:
    seen = NOW - round(age_s * 1000)
    return Quote(offer, dollars(usd_h), seen, seen, "test")


def world(*quotes: Quote, egress: int = 0, now_ms: int = NOW, **more: Any) -> World:
    snapshot_keys = {
        "empty_until_ms",
        "quarantined",
        "spot_launch_failures_1h",
        "spot_life_s",
        "hints",
        "prices_only",
        "held_micro_usd_h",
    }
    snapshot = MarketSnapshot(
        now_ms,
        {q.offer.key: q for q in quotes},
        **{name: more.pop(name) for name in snapshot_keys & set(more)},
    )
    return World(now_ms, snapshot, lambda a, b: egress, timing=TIMING, **more)


def spec(**changes: Any) -> JobSpec:
    base = JobSpec(
        name="train",
        run="python train.py",
        resources=Resources(gpus=(GpuRequest("H100"),)),
        checkpoint=Checkpoint("ckpt", every_s=720),
    )
    return replace(base, **changes)


def resources(**changes: Any) -> Resources:
    return replace(spec().resources, **changes)


def job(**changes: Any) -> Job:
    spec_changes = changes.pop("spec", None)
    base = Job("job-1", spec_changes or spec(), "default", "ada", NOW - 10 * HOUR)
    return replace(base, **changes)


def commit(gib: float = 0, step: int = 36_000) -> Commit:
    return Commit(1, 3, "m/3", "0" * 64, step, round(gib * GIB), NOW - HOUR)


def progress(step: int = 36_000, total: int | None = 72_000, rate: float | None = 1.0) -> Progress:
    return Progress(NOW - 1000, step, total, rate)


def placement(offer: Offer, usd_h: float = 5.0, **changes: Any) -> Placement:
    base = Placement(
        "pl-1",
        "job-1",
        1,
        offer,
        dollars(usd_h),
        Purpose.PLACE,
        "default",
        "ada",
        NOW - 10 * HOUR,
        state=PlacementState.ACTIVE,
        active_at_ms=NOW - 9 * HOUR,
        training_at_ms=NOW - 9 * HOUR,
    )
    return replace(base, **changes)


def running(offer: Offer = ON_DEMAND_AWS, gib: float = 0, hours_left: float = 10, **changes: Any) -> Subject:
    """Trains at one step a second with `hours_left` to go and a commit at its last step."""
    step = 100_000
    a_job = job(
        progress=progress(step, step + round(hours_left * 3600)),
        commit=commit(gib, step),
        **changes.pop("job", {}),
    )
    return replace(Subject(a_job, active=placement(offer)), **changes)


def policy(**changes: Any) -> Policy:
    base = Policy(
        "test",
        "f" * 64,
        "policies/test.yaml",
        mode=Mode.ACT,
        migrate=Migrate(min_saving_micro_usd=0, hold_s=0, cooldown_s=0),
    )
    return replace(base, **changes)


def migrate(**changes: Any) -> Policy:
    return policy(migrate=replace(policy().migrate, **changes))
