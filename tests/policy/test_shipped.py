"""The shipped policies: each one is well, and on a small market each one shows its character."""

from dataclasses import replace
from pathlib import Path

import pytest

from broker.core.model import (
    Commit,
    Decision,
    DecisionKind,
    Job,
    Placement,
    PlacementState,
    Progress,
    Purpose,
)
from broker.core.offer import Market, MarketSnapshot, Offer, Quote
from broker.core.spec import Checkpoint, GpuRequest, JobSpec, Resources
from broker.decision.plan import decide
from broker.decision.subject import Hold, Subject, World
from broker.policy.diagnose import check
from broker.policy.load import PolicySet
from broker.policy.schema import Mode, OnInconclusive, Policy

FOLDER = Path(__file__).parents[2] / "policies"
NOW = 1_790_000_000_000
SEEN_MS = 20_000
SHIPPED = PolicySet(FOLDER)

AWS = Offer("aws", "us-east-1", "use1-az6", "p5.4xlarge", Market.SPOT, "H100-SXM5-80GB", 1)
GCP = Offer("gcp", "us-central1", "us-central1-a", "a3-highgpu-1g", Market.SPOT, "H100-SXM5-80GB", 1)
CHINA = replace(AWS, region="cn-north-1", zone="cnn1-az1")
ON_DEMAND = replace(AWS, market=Market.ON_DEMAND)
LAMBDA = Offer("lambda", "us-west-1", "us-west-1", "gpu_1x_h100", Market.ON_DEMAND, "H100-SXM5-80GB", 1)

SPEC = JobSpec(
    "train",
    "python train.py",
    Resources((GpuRequest("H100"),)),
    checkpoint=Checkpoint("ckpt"),
    team="research",
)

Prices = dict[Offer, float]


def world(prices: Prices, now_ms: int = NOW, failures: float = 0.0) -> World:
    quotes = (
        Quote(o, round(usd * 1e6), now_ms - SEEN_MS, now_ms - SEEN_MS, "test") for o, usd in prices.items()
    )
    snapshot = MarketSnapshot(now_ms, {q.offer.key: q for q in quotes}, spot_launch_failures_1h=failures)
    return World(now_ms, snapshot, lambda _from, _to: 0)


def queued(spec: JobSpec = SPEC, hours_left: float | None = None) -> Subject:
    progress = None if hours_left is None else Progress(NOW, 1000, 1000 + round(hours_left * 3600), 1.0)
    job = Job("j1", spec, "p1", "ada", NOW - 36_000_000, progress=progress)
    return Subject(job, measured_steps_per_s={"H100-SXM5-80GB": 1.0})


def running(offer: Offer, hours_left: float, committed: bool = True) -> Subject:
    subject = queued(hours_left=hours_left)
    commit = Commit(1, 1, "m/1", "0" * 64, 1000, 2**30, NOW - 60_000) if committed else None
    placement = Placement(
        "pl1",
        "j1",
        1,
        offer,
        1,
        Purpose.PLACE,
        "p1",
        "ada",
        NOW - 36_000_000,
        state=PlacementState.ACTIVE,
        active_at_ms=NOW - 32_400_000,
        training_at_ms=NOW - 32_400_000,
    )
    return Subject(replace(subject.job, commit=commit), active=placement)


def at_once(subject: Subject, name: str, prices: Prices, failures: float = 0.0) -> Decision:
    return decide(subject, SHIPPED.get(name), world(prices, failures=failures), "d1")[0]


def after_the_hold(subject: Subject, policy: Policy, prices: Prices) -> Decision:
    """The answer once the same prices, seen anew, have stood for the policy's hold."""
    hold: Hold | None = None
    for now_ms in (NOW, NOW + policy.migrate.hold_s * 1000 + 2 * SEEN_MS):
        decision, hold = decide(replace(subject, hold=hold), policy, world(prices, now_ms), "d1")
    return decision


def place(decision: Decision) -> Offer:
    assert decision.kind is DecisionKind.PLACE, decision.summary
    assert decision.acted
    assert decision.target is not None
    return decision.target.offer


def test_every_shipped_policy_is_well() -> None:
    assert check([FOLDER]).errors == ()
    assert set(SHIPPED.policies) == {"default", "ride-the-spot", "finish-cheapest", "demo"}
    assert SHIPPED.errors == ()


@pytest.mark.parametrize("name", SHIPPED.policies)
def test_every_shipped_policy_tells_authors_what_it_is_for(name: str) -> None:
    policy = SHIPPED.get(name)
    lines = Path(policy.file).read_text().splitlines()
    assert lines[0].startswith(f"# {name}: ")
    assert policy.description


def test_nothing_acts_on_real_clouds_before_somebody_says_so() -> None:
    assert [p.name for p in SHIPPED.policies.values() if p.mode is Mode.ACT] == ["demo"]
    assert SHIPPED.select(replace(SPEC, team="anybody"), "p1").name == "default"


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (SPEC, "ride-the-spot"),
        (replace(SPEC, labels={"goal": "cheapest"}), "finish-cheapest"),
        (replace(SPEC, labels={"demo": "true"}), "demo"),
        (replace(SPEC, policy="demo"), "demo"),
        (replace(SPEC, team=None), "default"),
    ],
)
def test_whom_each_speaks_for(spec: JobSpec, name: str) -> None:
    assert SHIPPED.select(spec, "p1").name == name


# --- default: places and recovers, and only records moves ----------------------------------------------------


def test_default_places_on_the_cheapest_spot() -> None:
    assert place(at_once(queued(), "default", {AWS: 4.0, GCP: 3.0, ON_DEMAND: 9.0})) == GCP


def test_default_keeps_a_job_that_cannot_resume_off_spot() -> None:
    spec = replace(SPEC, checkpoint=None)
    assert place(at_once(queued(spec), "default", {AWS: 4.0, ON_DEMAND: 9.0})) == ON_DEMAND


def test_default_records_the_move_and_does_not_make_it() -> None:
    decision = after_the_hold(running(ON_DEMAND, 40), SHIPPED.get("default"), {ON_DEMAND: 9.0, AWS: 3.0})
    assert (decision.kind, decision.acted) == (DecisionKind.MOVE, False)
    assert decision.target is not None
    assert decision.target.offer == AWS


# --- ride-the-spot: back to spot when it can be had, never where it is not worth its risk --------------------


@pytest.mark.parametrize(
    ("hours_left", "failures", "there"),
    [(10, 0.0, AWS), (0.5, 0.0, ON_DEMAND), (10, 0.4, ON_DEMAND), (None, 0.0, AWS)],
    ids=["long", "nearly done", "launches fail", "nobody knows how long"],
)
def test_ride_the_spot_leaves_spot_out_when_it_does_not_pay(
    hours_left: float | None, failures: float, there: Offer
) -> None:
    prices = {AWS: 4.0, ON_DEMAND: 9.0}
    assert place(at_once(queued(hours_left=hours_left), "ride-the-spot", prices, failures)) == there


def test_ride_the_spot_stays_out_of_denied_regions() -> None:
    assert place(at_once(queued(), "ride-the-spot", {CHINA: 1.0, AWS: 4.0})) == AWS


def test_ride_the_spot_goes_back_from_on_demand_to_spot() -> None:
    acting = replace(SHIPPED.get("ride-the-spot"), mode=Mode.ACT)
    decision = after_the_hold(running(ON_DEMAND, 40), acting, {ON_DEMAND: 9.0, AWS: 3.0})
    assert (decision.kind, decision.acted) == (DecisionKind.MOVE, True)


def test_ride_the_spot_does_not_chase_small_savings() -> None:
    decision = after_the_hold(running(AWS, 100), SHIPPED.get("ride-the-spot"), {AWS: 4.0, GCP: 3.4})
    assert decision.kind is DecisionKind.STAY
    assert "migrate.min_saving: 20%" in decision.summary


# --- finish-cheapest: small savings on long runs -------------------------------------------------------------


def test_finish_cheapest_takes_the_saving_that_ride_the_spot_leaves() -> None:
    decision = after_the_hold(running(AWS, 100), SHIPPED.get("finish-cheapest"), {AWS: 4.0, GCP: 3.4})
    assert decision.kind is DecisionKind.MOVE


def test_finish_cheapest_leaves_a_short_run_where_it_is() -> None:
    decision = after_the_hold(running(AWS, 2), SHIPPED.get("finish-cheapest"), {AWS: 4.0, GCP: 3.4})
    assert decision.kind is DecisionKind.STAY


def test_finish_cheapest_moves_nothing_that_could_not_resume() -> None:
    subject = running(AWS, 100, committed=False)
    decision = after_the_hold(subject, SHIPPED.get("finish-cheapest"), {AWS: 4.0, GCP: 1.0})
    assert decision.kind is DecisionKind.STAY


# --- demo: soon, for cents, on two clouds --------------------------------------------------------------------


def test_demo_moves_a_small_job_for_cents_within_a_minute() -> None:
    demo = SHIPPED.get("demo")
    assert (demo.migrate.hold_s, demo.verify.on_inconclusive) == (60, OnInconclusive.ACCEPT)
    decision = after_the_hold(running(AWS, 2), demo, {AWS: 4.0, GCP: 1.0})
    assert (decision.kind, decision.acted) == (DecisionKind.MOVE, True)
    assert decision.target is not None
    assert decision.target.offer == GCP


def test_demo_waits_for_its_hold() -> None:
    assert at_once(running(AWS, 2), "demo", {AWS: 4.0, GCP: 1.0}).kind is DecisionKind.STAY


def test_demo_rents_from_its_two_clouds_only() -> None:
    assert place(at_once(queued(), "demo", {LAMBDA: 1.0, ON_DEMAND: 9.0})) == ON_DEMAND
