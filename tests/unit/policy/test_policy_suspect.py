"""Warnings: numbers in the wrong unit, lines that can never hold, and nothing about what is not understood."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.errors import Place
from broker.policy.comparisons import Among, Comparison, Room, conjuncts
from broker.policy.conditions import compile_condition
from broker.policy.diagnose import check
from broker.policy.facts import Line, facts_for
from broker.policy.load import load_policy
from broker.policy.suspect import warnings


def told(text: str) -> list[tuple[str, str, str | None]]:
    found = warnings(load_policy(f"policy: p\n{text}\n", "p.yaml"))
    return [(str(w.place) if w.place else "", w.message.removeprefix("warning: "), w.hint) for w in found]


def of_where(*lines: str) -> list[str]:
    return [
        message
        for _, message, _ in told("candidates:\n  where:\n" + "".join(f"    - '{line}'\n" for line in lines))
    ]


@pytest.mark.parametrize(
    ("line", "place", "message", "hint"),
    [
        ("migrate: {where: ['saving.fraction > 20.0']}", "p.yaml:2:20", "saving.fraction is a share, 1.0 at most: 20 is beyond it", "write 0.2 for 20 %"),
        ("place: {skip_spot_when: ['market.spot_failure_rate_1h > 30.0']}", "p.yaml:2:27", "market.spot_failure_rate_1h is a share, 1.0 at most: 30 is beyond it", "write 0.3 for 30 %"),
        ("candidates: {where: ['offer.gpus == 8 && 9850.0 > offer.price']}", "p.yaml:2:42", "offer.price against 9850 looks like cents; prices are dollars", "write 98.5"),
        ("candidates: {where: ['offer.price_per_gpu < 450.0']}", "p.yaml:2:23", "offer.price_per_gpu against 450 looks like cents; prices are dollars", "write 4.5"),
        ("candidates: {where: ['offer.gpu.memory_gib >= 81920']}", "p.yaml:2:23", "offer.gpu.memory_gib against 81920 looks like MiB", "write 80"),
        ("candidates: {where: ['offer.price < -1.0']}", "p.yaml:2:23", "offer.price is never negative: -1 is beyond it", "compare it with what it can be"),
    ],
)  # fmt: skip
def test_a_number_in_another_unit(line: str, place: str, message: str, hint: str) -> None:
    assert told(line) == [(place, message, hint)]


@pytest.mark.parametrize(
    "line",
    [
        "migrate: {where: ['saving.fraction > 0.2 && saving.fraction > -1.0', 'saving.usd > 2000.0']}",
        "candidates: {where: ['offer.price < 1500.0', 'offer.gpu.memory_gib >= 288', 'offer.age < duration(\"10h\")']}",
        "stop: {when: ['metrics.loss > 100000.0']}",
        "candidates: {where: ['offer.region != \"offer.price > 5000.0\"']}",
    ],
)
def test_a_number_that_may_well_be_meant(line: str) -> None:
    assert told(line) == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("offer.price < 3.0", "offer.price > 5.0"), "this can never hold: offer.price > 5.0 contradicts offer.price < 3.0 (p.yaml:4)"),
        (("offer.price < 3.0 && offer.price >= 3.0",), "this can never hold: offer.price >= 3.0 contradicts offer.price < 3.0 (p.yaml:4)"),
        (("offer.gpus == 8", "offer.gpus == 4"), "this can never hold: offer.gpus == 4 contradicts offer.gpus == 8 (p.yaml:4)"),
        (('offer.cloud in ["aws", "gcp"]', 'offer.cloud == "azure"'), 'this can never hold: offer.cloud == "azure" contradicts offer.cloud in ["aws", "gcp"] (p.yaml:4)'),
        (('offer.region == "us-east-1"', 'offer.region != "us-east-1"'), 'this can never hold: offer.region != "us-east-1" contradicts offer.region == "us-east-1" (p.yaml:4)'),
        (("job.has_commit", "offer.gpus > 1 && !job.has_commit"), "this can never hold: !job.has_commit contradicts job.has_commit (p.yaml:4)"),
        (('offer.age < duration("5m")', '(duration("1h") <= offer.age)'), 'this can never hold: duration("1h") <= offer.age contradicts offer.age < duration("5m") (p.yaml:4)'),
        (('offer.market == "reserved"',), 'this can never hold: offer.market == "reserved" contradicts place.order: [owned, spot, on_demand]'),
    ],
)  # fmt: skip
def test_lines_that_can_never_hold_together(lines: tuple[str, ...], message: str) -> None:
    assert of_where(*lines) == [message]


def test_a_line_against_the_clouds_of_the_file() -> None:
    (found,) = told("candidates:\n  clouds: [aws, gcp]\n  where: ['offer.cloud == \"lambda\"']")
    assert found == (
        "p.yaml:4:12",
        'this can never hold: offer.cloud == "lambda" contradicts candidates.clouds: [aws, gcp]',
        "take one of them out",
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("offer.price < 3.0", "offer.price > 2.0", "offer.price != 2.5"),
        ("offer.price < 3.0 || offer.price > 5.0",),
        ("offer.price < 3.0 || offer.gpus == 8", "offer.price > 5.0"),
        ("offer.price < offer.price_per_gpu * 4.0", "offer.price > 5.0"),
        ("!(offer.price < 3.0)", "offer.price > 5.0"),
        ("offer.price < (offer.gpus > 4 ? 30.0 : 3.0)", "offer.price > 5.0"),
        ("offer.price - 10.0 < 3.0", "offer.price > 5.0"),
        ('offer.region.startsWith("us-")', 'offer.region == "eu-west-1"'),
        ('offer.region == "a && b"', "offer.gpus > 1"),
    ],
)
def test_what_may_hold_or_is_not_understood_is_left_alone(lines: tuple[str, ...]) -> None:
    assert of_where(*lines) == []


def test_lines_of_which_any_counts_are_looked_at_one_by_one() -> None:
    apart = "place: {skip_spot_when: ['job.progress > 0.9', 'job.progress < 0.1']}"
    assert told(apart) == []
    (found,) = told("place: {skip_spot_when: ['job.progress > 0.9 && job.progress < 0.1']}")
    assert "job.progress < 0.1 contradicts job.progress > 0.9" in found[1]


def test_budgets_that_never_come_into_play() -> None:
    messages = [m for _, m, _ in told("budget: {run_usd: 500, epoch_usd: 600, month_usd: 400}")]
    assert messages == [
        "p.yaml: warning: budget.epoch_usd 600 is more than budget.run_usd 500: it never comes into play",
        "p.yaml: warning: budget.run_usd 500 is more than budget.month_usd 400: it never comes into play",
    ]
    assert told("budget: {run_usd: 500, epoch_usd: 60, month_usd: 64000}") == []


def test_nothing_is_said_of_the_shipped_policies() -> None:
    assert check([Path(__file__).parents[3] / "policies"]).warnings == ()


COMPARISONS = st.tuples(
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), st.sampled_from([1.0, 2.0, 2.5, 3.0]), st.booleans()
)


@settings(max_examples=150, deadline=None)
@given(st.lists(COMPARISONS, min_size=1, max_size=4))
def test_a_contradiction_is_one_for_the_engine_too_and_none_is_missed(
    parts: list[tuple[str, float, bool]],
) -> None:
    mirror = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
    written = [
        f"{value} {mirror.get(op, op)} offer.price" if turned else f"offer.price {op} {value}"
        for op, value, turned in parts
    ]
    text = " && ".join(written)
    room = Room()
    for part in conjuncts(text):
        room.narrow(part)
    condition = compile_condition(text, Place("f", 1, 1, text), facts_for(Line.WHERE))
    grid = [0.5, 1.0, 1.5, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5]
    holds = any(condition.evaluate({"offer.price": price}) for price in grid)
    assert room.is_empty() is not holds


def test_parts_and_their_places() -> None:
    text = '!job.has_commit && (offer.price<3.0 && "aws" == offer.cloud) && offer.region in ["a", "b"] && size(offer.zone) > 3'
    assert conjuncts(text) == [
        Comparison("job.has_commit", "==", False, "!job.has_commit", 0),
        Comparison("offer.price", "<", 3.0, "offer.price<3.0", text.index("offer.price")),
        Comparison("offer.cloud", "==", "aws", '"aws" == offer.cloud', text.index('"aws"')),
        Among("offer.region", ("a", "b"), 'offer.region in ["a", "b"]', text.index("offer.region")),
    ]
