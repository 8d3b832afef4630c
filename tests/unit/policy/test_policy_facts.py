"""Facts: their values, what is left out when it is not known, and their table."""

from dataclasses import replace

import pytest

from broker.core.errors import Place
from broker.core.model import Commit, Job, Progress
from broker.core.offer import Market, MarketSnapshot, Offer, Quote
from broker.core.spec import Checkpoint, GpuRequest, JobSpec, Priority, Resources
from broker.policy.conditions import compile_condition
from broker.policy.facts import (
    BY_NAME,
    FACTS,
    FactType,
    Line,
    facts_for,
    here_facts,
    job_facts,
    market_facts,
    offer_facts,
    saving_facts,
)
from broker.policy.schema import Fact

NOW = 1_790_000_000_000
OFFER = Offer(
    "aws",
    "us-east-1",
    "use1-az6",
    "p5.48xlarge",
    Market.SPOT,
    "H100-SXM5-80GB",
    8,
    192,
    2048,
    "nvlink",
    "efa",
)
QUOTE = Quote(OFFER, 24_000_000, NOW - 90_000, NOW - 30_000, "test")
SPEC = JobSpec(
    "train",
    "python train.py",
    Resources((GpuRequest("H100", 8),), nodes=2),
    team="research",
    priority=Priority.HIGH,
    checkpoint=Checkpoint("ckpt"),
)
JOB = Job(
    "j1",
    SPEC,
    "p1",
    "ada",
    NOW,
    progress=Progress(NOW, step=250, total_steps=1000),
    commit=Commit(1, 1, "m", "0" * 64, 200, 10, NOW),
)

EVERYTHING = (
    offer_facts(QUOTE, NOW)
    | job_facts(JOB, 5400.0)
    | market_facts(MarketSnapshot(NOW, {}, spot_launch_failures_1h=0.25))
    | here_facts(replace(OFFER, market=Market.ON_DEMAND), 98_000_000)
    | saving_facts(100_000_000, 60_000_000, 5_000_000, 1800.0)
)

_PYTHON = {
    FactType.BOOL: bool,
    FactType.INT: int,
    FactType.DOUBLE: float,
    FactType.STRING: str,
    FactType.DURATION: float,
}


def test_the_functions_compute_the_table_and_nothing_else() -> None:
    assert set(EVERYTHING) == set(BY_NAME)
    assert len(BY_NAME) == len(FACTS)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_value_has_the_type_that_the_table_promises(name: str) -> None:
    assert type(EVERYTHING[name]) is _PYTHON[BY_NAME[name].type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("offer.price", 24.0),
        ("offer.price_per_gpu", 3.0),
        ("offer.age", 30.0),
        ("offer.gpu.family", "H100"),
        ("offer.gpu.memory_gib", 80),
        ("job.progress", 0.25),
        ("job.remaining", 5400.0),
        ("job.has_checkpoint", True),
        ("here.price", 98.0),
        ("here.market", "on_demand"),
        ("saving.fraction", 0.4),
        ("saving.usd", 40.0),
        ("migration.cost_usd", 5.0),
        ("market.spot_failure_rate_1h", 0.25),
    ],
)
def test_values(name: str, value: Fact) -> None:
    assert EVERYTHING[name] == value


def test_what_is_not_known_is_left_out() -> None:
    fresh = Job("j2", replace(SPEC, team=None, checkpoint=None), "p1", "ada", NOW)
    facts = job_facts(fresh, None)
    assert not {"job.team", "job.remaining", "job.step", "job.progress"} & set(facts)
    assert (facts["job.has_checkpoint"], facts["job.has_commit"]) == (False, False)
    assert "job.progress" not in job_facts(replace(JOB, progress=Progress(NOW, step=1)), None)
    # A machine of unknown size must not pass for a small one.
    assert "offer.memory_gib" not in offer_facts(replace(QUOTE, offer=replace(OFFER, memory_gib=0)), NOW)
    assert "saving.payback" not in saving_facts(10, 20, 5, None)
    assert "saving.fraction" not in saving_facts(0, 0, 0, None)


def test_a_move_that_is_dearer_saves_less_than_nothing() -> None:
    assert saving_facts(100, 150, 0, None)["saving.fraction"] == -0.5


def test_example_lines_of_the_design_hold_over_computed_facts() -> None:
    lines = {
        Line.WHERE: ["offer.gpu.memory_gib >= 80", 'offer.age < duration("5m")'],
        Line.SKIP_SPOT_WHEN: ["market.spot_failure_rate_1h < 0.30", 'job.remaining > duration("1h")'],
        Line.MIGRATE_WHERE: [
            "saving.fraction >= 0.20",
            "offer.price < here.price",
            'saving.payback < duration("1h")',
        ],
    }
    for line, texts in lines.items():
        for text in texts:
            assert compile_condition(text, Place("p", 1, 1), facts_for(line)).evaluate(EVERYTHING) is True
