"""Conditions: their truth against a second reading of the same lines, their mistakes, and their bounds."""

import time
from collections.abc import Callable
from itertools import product

import pytest

from broker.core.errors import Place, PolicyError
from broker.policy.conditions import MAX_TEXT, CelCondition, compile_condition
from broker.policy.facts import FACTS, FactInfo, FactType, Line, facts_for
from broker.policy.schema import Fact

_LITERALS = {
    FactType.BOOL: "true",
    FactType.INT: "8",
    FactType.DOUBLE: "2.5",
    FactType.STRING: '"a"',
    FactType.DURATION: 'duration("1h")',
}
_VALUES: dict[FactType, Fact] = {
    FactType.BOOL: True,
    FactType.INT: 8,
    FactType.DOUBLE: 2.5,
    FactType.STRING: "a",
    FactType.DURATION: 3600,
}


def condition(text: str, line: Line = Line.MIGRATE_WHERE) -> CelCondition:
    return compile_condition(text, Place("p.yaml", 3, 7, f"    - {text}"), facts_for(line))


def refusal(text: str, line: Line = Line.WHERE) -> PolicyError:
    with pytest.raises(PolicyError) as raised:
        condition(text, line)
    return raised.value


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.name)
def test_every_fact_of_the_table_can_be_asked_for(fact: FactInfo) -> None:
    for line in fact.lines:
        asked = condition(f"{fact.name} == {_LITERALS[fact.type]}", line)
        assert asked.needs == (fact.name,)
        assert asked.evaluate({fact.name: _VALUES[fact.type]}) is True
        assert asked.evaluate({}) is None


Truth = bool | None


def _not(a: Truth) -> Truth:
    return None if a is None else not a


def _and(a: Truth, b: Truth) -> Truth:
    return False if a is False or b is False else None if a is None or b is None else True


def _or(a: Truth, b: Truth) -> Truth:
    return _not(_and(_not(a), _not(b)))


# Kleene's three-valued logic, written down a second time, independent of the engine.
_FORMS: dict[str, Callable[[Truth, Truth], Truth]] = {
    "{a} && {b}": _and,
    "{a} || {b}": _or,
    "!({a}) || {b}": lambda a, b: _or(_not(a), b),
    "!({a} && {b})": lambda a, b: _not(_and(a, b)),
    "{a} ? {b} : !({b})": lambda a, b: None if a is None else b if a else _not(b),
}
Atom = tuple[str, dict[str, Fact], dict[str, Fact]]
_ATOMS: tuple[Atom, ...] = (
    ("job.has_checkpoint", {"job.has_checkpoint": True}, {"job.has_checkpoint": False}),
    ("offer.price < 3.0", {"offer.price": 2.0}, {"offer.price": 3.0}),
    ('job.remaining < duration("1h")', {"job.remaining": 3599.5}, {"job.remaining": 3600}),
    ("offer.gpus >= 8", {"offer.gpus": 8}, {"offer.gpus": 4}),
    ('offer.region.startsWith("us-")', {"offer.region": "us-east-1"}, {"offer.region": "eu-west-1"}),
    ("saving.fraction >= 0.25", {"saving.fraction": 0.25}, {"saving.fraction": 0.2499}),
)


@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize(("a", "b"), [(a, b) for a, b in product(_ATOMS, _ATOMS) if a is not b][:12])
def test_truth_tables(form: str, a: Atom, b: Atom) -> None:
    line = condition(form.format(a=a[0], b=b[0]))
    for truth_a, truth_b in product((True, False, None), repeat=2):
        facts: dict[str, Fact] = {}
        for truth, (_, when_true, when_false) in ((truth_a, a), (truth_b, b)):
            facts |= {} if truth is None else when_true if truth else when_false
        assert line.evaluate(facts) is _FORMS[form](truth_a, truth_b), (form, truth_a, truth_b)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("offer.gpus / 0 > 1", {"offer.gpus": 8}),
        ("offer.gpus + 9223372036854775807 > 0", {"offer.gpus": 8}),
        ("offer.gpus > 4", {"offer.gpus": 10**30}),
        ("offer.gpus > 4", {"offer.gpus": "eight"}),
        ("offer.price < 3.0", {"offer.price": float("nan")}),
        ("offer.price > 3.0", {"offer.price": float("inf")}),
        ('job.remaining < duration("1h")', {"job.remaining": 1e30}),
        ('job.remaining < duration("1h")', {"job.remaining": "soon"}),
        ("{'H100': true}[offer.gpu.family]", {"offer.gpu.family": "A100"}),
        ("job.has_checkpoint", {"job.has_checkpoint": 1}),
    ],
)
def test_what_cannot_be_evaluated_is_unknown_and_never_true(text: str, facts: dict[str, Fact]) -> None:
    assert condition(text).evaluate(facts) is None


def test_whole_dollars_are_dollars() -> None:
    assert condition("offer.price == 3.0").evaluate({"offer.price": 3}) is True


def test_spaces_and_comments_do_not_hide_a_fact() -> None:
    assert condition("offer . price < 3.0 // and not job.name").needs == ("offer.price",)


@pytest.mark.parametrize(
    ("text", "column", "message", "hint"),
    [
        (
            "offer.price < 3",
            19,
            "< does not work between a number (double) and a whole number (int)",
            "write 3.0",
        ),
        (
            "5 > offer.price",
            9,
            "> does not work between a whole number (int) and a number (double)",
            "write 5.0",
        ),
        (
            "offer.gpus >= 8.0",
            18,
            ">= does not work between a whole number (int) and a number (double)",
            "write 8",
        ),
        (
            "offer.price * offer.gpus > 2.0",
            19,
            "* does not work between a number (double) and a whole number (int)",
            "double(",
        ),
        (
            "job.remaining < 3600",
            21,
            "< does not work between a duration and a whole number (int)",
            'duration("1h")',
        ),
        ("job.remaining < 30m", 25, "this is not a condition: unexpected 'm'", 'duration("1h")'),
        ('job.remaining < duration("2d")', 32, "'2d' is not a duration that CEL can read", 'duration("48h")'),
        ("!offer.price", 7, "! does not work on a number (double)", None),
        ("offer.gpu.sku == H100", 24, "unknown name H100", '"H100"'),
        ("price < 3.0", 7, "unknown fact price", "offer.price"),
        ("offer.gpu.memory > 3", 7, "unknown fact offer.gpu.memory", "offer.gpu.memory_gib"),
        ("offer.gpus == 8 && offer.prise < 3.0", 26, "unknown fact offer.prise", "offer.price"),
        ("offer.price < 3.0 and offer.gpus > 1", 25, "this is not a condition: unexpected 'and'", "&&"),
        ("not job.has_checkpoint", 11, "this is not a condition: unexpected 'job'", "write !"),
        ("offer.price = 3.0", 19, "this is not a condition: unexpected '='", "=="),
        ("offer.price <", 20, "the condition ends too early", None),
        ("offer.price < 3.0 * 30%", 30, "the condition ends too early", "0.20"),
        ("saving.fraction > 0.2", 7, "the fact saving.fraction is not known here", "migrate.where"),
        ("offer.price", 7, "a condition must be true or false; this one gives a number (double)", "compare"),
        ("sqrt(offer.price) < 2.0", 7, "there is no function sqrt", "docs/reference/policy-file.md"),
        (
            'offer.gpu.sku in "H100"',
            21,
            "in does not work between text (string) and text (string)",
            '["a", "b"]',
        ),
        ('offer.zone.matches("(")', 26, "this pattern is not RE2", None),
        ("  ", 7, "the condition is empty", None),
    ],
)
def test_mistakes_in_a_persons_words(text: str, column: int, message: str, hint: str | None) -> None:
    error = refusal(text)
    assert error.message == message
    assert error.place is not None
    assert (error.place.line, error.place.column) == (3, column)
    assert hint is None or (error.hint is not None and hint in error.hint)


_LIST = "[" + ",".join("0" * 60) + "]"


@pytest.mark.parametrize(
    "text",
    [
        "offer.gpus > 0" + " && offer.gpus > 0" * 100,
        "(" * 300 + "offer.gpus > 0" + ")" * 300,
        "[" * 100 + "]" * 100,
        f"{_LIST}.all(a, {_LIST}.all(b, {_LIST}.all(c, offer.gpus > a)))",
        "dyn(job.has_checkpoint)",
        "has(offer.price)",
        "offer.gpus > 99999999999999999999999",
        "offer.price < 3.0 \x07",
        "\ud800 == offer.zone",
        "$" * MAX_TEXT,
    ],
)
def test_hostile_text_is_refused(text: str) -> None:
    assert isinstance(refusal(text), PolicyError)


@pytest.mark.parametrize(
    "text",
    [
        "!" * 900 + "job.has_checkpoint",
        "job.has_checkpoint" + " || job.has_checkpoint" * 40,
        'offer.zone.matches("(a+)+(b|b)*$")',
        f"{_LIST}.all(a, offer.gpus > a)",
    ],
)
def test_the_dearest_lines_that_are_admitted_stay_cheap(text: str) -> None:
    facts: dict[str, Fact] = {"job.has_checkpoint": False, "offer.zone": "a" * 5000, "offer.gpus": 8}
    line = condition(text)
    started = time.perf_counter()
    line.evaluate(facts)
    assert time.perf_counter() - started < 0.1
