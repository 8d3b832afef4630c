"""Why: a decision as rows and text, a condition's truth with its values."""

import json
from dataclasses import replace

import pytest

from broker.core.errors import Place
from broker.core.model import Alternative, Decision, DecisionKind, Reason
from broker.core.offer import Market, Offer
from broker.policy.conditions import compile_condition
from broker.policy.explain import explain, facts_in, judge, show_fact
from broker.policy.facts import Line, facts_for
from broker.policy.schema import Fact


def alternative(zone: str, price: int, cost: int | None, refused: str = "") -> Alternative:
    offer = Offer("aws", "us-east-1", zone, "p5.48xlarge", Market.SPOT, "H100-SXM5-80GB", 8)
    return Alternative(offer, price * 1_000_000, 90.0, cost and cost * 1_000_000, cost and cost / 10, refused)


ALTERNATIVES = (
    alternative("z-old", 1, None, "its price is 2h old"),
    alternative("z-dear", 30, 300),
    alternative("z-best", 20, 200),
    alternative("z-near", 21, 210),
    alternative("z-cheap-red", 10, 100),
    alternative("z-4", 40, 400),
    alternative("z-5", 50, 500),
)
MOVE = Decision(
    "d1",
    "j1",
    "p1",
    "night",
    "0" * 64,
    1_790_000_000_000,
    DecisionKind.MOVE,
    False,
    "would move to z-best",
    reasons=(
        Reason("migrate.min_saving: 20%", True, "saving is 33.3 %"),
        Reason("offer.gpus == 8", None, "offer.gpus is not known", "policies/night.yaml:14"),
    ),
    alternatives=ALTERNATIVES,
    target=ALTERNATIVES[2],
    here_micro_usd=300_000_000,
    saving=1 / 3,
)


def test_the_chosen_one_first_then_five_and_why_each_lost() -> None:
    told = explain(MOVE)
    assert [(row.offer.split("/")[1], row.verdict) for row in told.offers] == [
        ("z-best", "chosen"),
        ("z-cheap-red", "$100.00 cheaper than the chosen one; a line of migrate.where says no"),
        ("z-near", "$10.00 dearer than the chosen one"),
        ("z-dear", "$100.00 dearer than the chosen one"),
        ("z-4", "$200.00 dearer than the chosen one"),
        ("z-5", "$300.00 dearer than the chosen one"),
    ]
    assert told.left_out == 1


def test_staying_tells_what_was_refused_too() -> None:
    stay = replace(MOVE, kind=DecisionKind.STAY, target=None, saving=None, alternatives=ALTERNATIVES[:3])
    assert [row.verdict for row in explain(stay).offers] == [
        "$100.00 cheaper than staying; a line above says no",
        "costs the same as staying",
        "its price is 2h old",
    ]
    assert "recorded only" not in explain(stay).as_text()


def test_text() -> None:
    text = explain(replace(MOVE, alternatives=ALTERNATIVES[:3])).as_text()
    assert text == (
        "move: would move to z-best\n"
        "  recorded only: it was not carried out\n"
        "  to finish here costs $300.00\n"
        "  saving 33.3 %\n"
        "\n"
        "yes      migrate.min_saving: 20%  saving is 33.3 %\n"
        "unknown  offer.gpus == 8          offer.gpus is not known  policies/night.yaml:14\n"
        "\n"
        "offer                        price     age    cost to finish  hours\n"
        "aws/z-best/p5.48xlarge/spot  $20.00/h  1m30s  $200.00         20.0   chosen\n"
        "aws/z-dear/p5.48xlarge/spot  $30.00/h  1m30s  $300.00         30.0   $100.00 dearer than the chosen one\n"
        "aws/z-old/p5.48xlarge/spot   $1.00/h   1m30s                         its price is 2h old\n"
        "\n"
        "decision d1, policy night, 2026-09-21T14:13:20Z\n"
    )


def test_json() -> None:
    told = json.loads(json.dumps(explain(MOVE).as_json()))
    assert told["reasons"][1] == {
        "truth": "unknown",
        "line": "offer.gpus == 8",
        "detail": "offer.gpus is not known",
        "place": "policies/night.yaml:14",
    }
    assert told["offers"][0]["verdict"] == "chosen"


@pytest.mark.parametrize(
    ("facts", "holds", "detail"),
    [
        ({"offer.price": 2.1, "job.remaining": 5400}, True, "offer.price is $2.10/h; job.remaining is 1h30m"),
        ({"offer.price": 4.0}, None, "offer.price is $4.00/h; job.remaining is not known"),
    ],
)
def test_a_conditions_truth_comes_with_its_values(
    facts: dict[str, Fact], holds: bool | None, detail: str
) -> None:
    text = 'offer.price < 3.0 || job.remaining < duration("1h")'
    condition = compile_condition(text, Place("night.yaml", 14, 7), facts_for(Line.WHERE))
    assert judge(condition, facts) == Reason(text, holds, detail, "night.yaml:14")


def test_facts_in_a_line() -> None:
    assert facts_in('offer.region.startsWith("job.name") && offer.gpu.sku != "x" && !job.has_commit') == (
        "offer.region",
        "offer.gpu.sku",
        "job.has_commit",
    )


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("saving.fraction", 0.58, "58.0 %"),
        ("saving.usd", -3.5, "-$3.50"),
        ("offer.price", 3, "$3.00/h"),
        ("offer.gpu.memory_gib", 80, "80 GiB"),
        ("offer.gpus", 8, "8"),
        ("job.has_commit", False, "false"),
        ("job.remaining", 7200.0, "2h"),
        ("offer.zone", "use1-az6", "use1-az6"),
    ],
)
def test_values_for_people(name: str, value: Fact, shown: str) -> None:
    assert show_fact(name, value) == shown
