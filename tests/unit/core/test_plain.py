"""Dataclasses to JSON and back."""

import json

import pytest

from broker.core.model import Alternative, Decision, DecisionKind, Reason
from broker.core.offer import Market, Offer
from broker.core.plain import from_plain, to_plain
from broker.core.spec import DataSet, GpuRequest, JobSpec, Priority, Resources

OFFER = Offer("aws", "us-east-1", "use1-az6", "p5.48xlarge", Market.SPOT, "H100-SXM5-80GB", 8)
DECISION = Decision(
    id="d1",
    job_id="j1",
    project_id="default",
    policy="p",
    policy_sha256="0" * 64,
    at_ms=5,
    kind=DecisionKind.MOVE,
    acted=True,
    summary="moves",
    reasons=(Reason("migrate.min_saving: 20%", None),),
    alternatives=(Alternative(OFFER, 1, 2.0),),
    target=Alternative(OFFER, 1, 2.5, cost_micro_usd=7),
)
SPEC = JobSpec(
    name="x",
    run="python train.py",
    resources=Resources(gpus=(GpuRequest("H100", 8),)),
    priority=Priority.HIGH,
    labels={"a": "b"},
    data=(DataSet(5),),
)


@pytest.mark.parametrize("value", [DECISION, SPEC, OFFER])
def test_round_trip_through_json(value: object):
    assert from_plain(type(value), json.loads(json.dumps(to_plain(value)))) == value


def test_unknown_keys_are_ignored_and_missing_ones_take_defaults():
    plain = {"name": "x", "run": "y", "resources": {"gpus": [{"type": "H100"}], "new": 1}, "newer": True}
    assert from_plain(JobSpec, plain) == JobSpec("x", "y", Resources((GpuRequest("H100"),)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": None}, r"JobSpec\.name: expected str, got None"),
        ({"priority": "asap"}, r"JobSpec\.priority: 'asap' is no Priority"),
        ({"resources": {"gpus": [{"count": 1}]}}, r"JobSpec\.resources\.gpus\[0\]\.type is missing"),
        ({"resources": {"gpus": [{"type": "H100", "count": True}]}}, r"count: expected int, got True"),
        ({"labels": ["a"]}, r"JobSpec\.labels: expected an object, got list"),
        ({"data": {}}, r"JobSpec\.data: expected a list, got dict"),
    ],
)
def test_wrong_shapes_say_where(change: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        from_plain(JobSpec, to_plain(SPEC) | change)


def test_numbers_keep_their_kind():
    assert (
        from_plain(Alternative, to_plain(Alternative(OFFER, 1, 2.0)) | {"quote_age_s": 2}).quote_age_s == 2.0
    )
    with pytest.raises(ValueError, match=r"price_micro_usd_h: expected int, got 1\.5"):
        from_plain(Alternative, to_plain(Alternative(OFFER, 1, 2.0)) | {"price_micro_usd_h": 1.5})
