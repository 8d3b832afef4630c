"""``/healthz`` and ``/metrics``: what a monitor is told."""

from dataclasses import replace

import pytest

from broker.core.model import NodeState, PlacementState
from broker.serve.services import Health
from broker.store.history import Poll


def test_health_follows_finished_work(bench):
    assert bench.client.get("/healthz").status_code == 200
    assert bench.client.get("/readyz").status_code == 503
    bench.health = Health(pass_age_s=1.5)
    assert bench.client.get("/readyz").json() == {"ready": True, "pass_age_s": 1.5}
    bench.health = Health(pass_age_s=900)
    assert bench.client.get("/readyz").status_code == 503


def test_metrics(bench):
    bench.node(billed_from_ms=bench.clock.now_ms(), state=NodeState.RUNNING)
    bench.history.record_poll(
        Poll("aws", bench.clock.now_ms() - 1000, bench.clock.now_ms(), False, error="timeout")
    )
    bench.health = Health(
        pass_age_s=2,
        poll_age_s={"aws": 60.0, "gcp": None},
        unowned_nodes=0,
        sweep_age_s={"aws": 30.0, "gcp": None},
    )
    text = bench.client.get("/metrics").text
    for line in (
        "broker_pass_age_seconds 2.0",
        'broker_poll_age_seconds{cloud="aws"} 60.0',
        'broker_poll_failing{cloud="aws"} 1.0',
        'broker_placements{state="booting"} 1.0',
        'broker_nodes{cloud="aws",state="running"} 1.0',
        "broker_unowned_nodes 0.0",
        'broker_sweep_age_seconds{cloud="aws"} 30.0',
        'broker_poll_interval_seconds{cloud="aws"} 300.0',
        "broker_intent_age_seconds 0.0",
        "broker_releases_overdue 0.0",
        'broker_burn_usd_per_hour{cloud="aws"} 30.0',
        'broker_offer_price_usd_per_hour{cloud="aws",gpu="H100-SXM5-80GB",market="spot",region="us-east-1"} 3.0',
    ):
        assert line in text.splitlines(), line
    assert "train" not in text


def test_a_cloud_that_has_never_answered_ages_since_the_start(bench):
    """Else no alert could fire on it: `aws` is configured, and nothing is known of it."""
    bench.health = Health(up_s=1000.0, sweep_age_s={"gcp": 30.0, "local": None}, poll_age_s={"gcp": 60.0})
    lines = bench.client.get("/metrics").text.splitlines()
    for line in (
        'broker_sweep_age_seconds{cloud="aws"} 1000.0',
        'broker_sweep_age_seconds{cloud="gcp"} 30.0',
        'broker_sweep_age_seconds{cloud="local"} 1000.0',
        'broker_poll_age_seconds{cloud="aws"} 1000.0',
        'broker_poll_age_seconds{cloud="gcp"} 60.0',
    ):
        assert line in lines, line


def value_of(bench, metric):
    lines = bench.client.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{metric} "))


@pytest.mark.parametrize("state", [NodeState.INTENDED, NodeState.UNKNOWN, NodeState.RELEASING])
def test_the_age_of_an_intent_without_an_outcome(bench, state):
    node = bench.node(state=state, state_since_ms=bench.clock.now_ms())
    bench.clock.advance(90)
    bench.node(job=bench.job("other-bbbbb"), attempt=2, state=state, state_since_ms=bench.clock.now_ms())
    assert value_of(bench, "broker_intent_age_seconds") == 90
    with bench.store.write() as tx:
        tx.save(replace(node, state=NodeState.RUNNING))
    assert value_of(bench, "broker_intent_age_seconds") == 0


def test_a_fence_that_was_granted_and_not_confirmed_is_an_intent(bench):
    node = bench.node()
    with bench.store.write() as tx:
        placement = tx.placement(node.placement_id)
        now_ms = bench.clock.now_ms()
        tx.save(replace(placement, state=PlacementState.READY, state_since_ms=now_ms))
    bench.clock.advance(60)
    assert value_of(bench, "broker_intent_age_seconds") == 0
    with bench.store.write() as tx:
        tx.save(replace(tx.placement(node.placement_id), generation=1))
    assert value_of(bench, "broker_intent_age_seconds") == 60


def test_releases_that_take_too_long_are_counted(bench):
    node = bench.node()
    with bench.store.write() as tx:
        placement = tx.placement(node.placement_id)
        now_ms = bench.clock.now_ms()
        tx.save(replace(placement, state=PlacementState.RELEASING, state_since_ms=now_ms))
    bench.clock.advance(900)
    assert value_of(bench, "broker_releases_overdue") == 0
    bench.clock.advance(1)
    assert value_of(bench, "broker_releases_overdue") == 1
