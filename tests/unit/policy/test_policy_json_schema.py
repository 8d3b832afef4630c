"""The schema for editors against the reader: it takes whatever the reader takes, and refuses what a schema can refuse."""

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from broker.core.errors import PolicyError
from broker.core.yaml_text import parse
from broker.policy.json_schema import policy_schema
from broker.policy.load import mistakes
from broker.policy.sections import ROLES
from broker.store.access import Role
from tests.unit.policy.test_policy_load import FULL
from tests.unit.test_wrong_files import POLICY, POLICY_FINE, YAML_VALUES, short

ROOT = Path(__file__).parents[3]
BROKEN = ROOT / "tests" / "policy" / "broken" / "policies"
SCHEMA = Draft202012Validator(policy_schema())

# No schema sees these: what a condition says, one value against another, how the YAML is written, other files.
BEYOND = {
    "condition-ends-early", "condition-is-a-number", "condition-of-no-fact", "arithmetic-of-types",
    "duration-of-days-in-a-condition", "fact-of-another-line", "fact-misspelt", "fact-with-a-foreign-letter",
    "function-that-is-none", "pattern-without-end", "percent-in-a-condition", "python-words", "single-equals-sign",
    "text-without-quotes", "whole-number-for-a-price",
    "default-with-a-match", "every-region-denied", "region-allowed-and-denied", "skip-spot-without-spot",
    "share-of-more-than-all", "budget-of-eighty-percent-of-nothing",
    "stop-of-no-metric", "stop-that-ends-nothing", "metric-where-offers-are-weighed", "metric-against-a-whole-number",
    "metric-with-a-slash",
    "extends-a-file-that-is-not-there", "extends-itself",
}  # fmt: skip


def refusals(text: str) -> list[str]:
    return [error.message for error in SCHEMA.iter_errors(parse(text, "p.yaml", PolicyError).value)]


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(policy_schema())
    Draft202012Validator.check_schema(policy_schema(is_defaults=True))


@pytest.mark.parametrize("path", sorted((ROOT / "policies").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_policies_are_valid(path: Path) -> None:
    if not path.name.endswith(".test.yaml"):
        assert refusals(path.read_text()) == []


def test_a_policy_with_every_key_is_valid() -> None:
    assert refusals(FULL) == []
    assert refusals("policy: p\nmigrate: never\nselectable_by: []\nextends: team.defaults.yaml\n") == []


def test_defaults_have_no_name() -> None:
    defaults = Draft202012Validator(policy_schema(is_defaults=True))
    assert defaults.is_valid({"mode": "act"})
    assert not defaults.is_valid({"policy": "p", "mode": "act"})
    assert not SCHEMA.is_valid({"mode": "act"})


@pytest.mark.parametrize("path", sorted(BROKEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_broken_policies_are_refused_as_far_as_a_schema_reaches(path: Path) -> None:
    try:
        found = refusals(path.read_text())
    except PolicyError:
        assert path.stem not in BEYOND, "this one is no YAML for an editor either"
        return
    assert bool(found) == (path.stem not in BEYOND)


@pytest.mark.parametrize("key", POLICY_FINE)
def test_what_the_reader_takes_the_schema_takes(key: str) -> None:
    for value in [*YAML_VALUES, "20%", "1e1%", "10 m", "1h 30m", "[spot]", "[owned, reserved]"]:
        text = short(POLICY, key).format(**POLICY_FINE | {key: value})
        if not mistakes(text, "p.yaml"):
            assert refusals(text) == [], value


def test_the_roles_are_those_of_the_tokens() -> None:
    assert list(ROLES) == list(Role)


def test_every_key_has_a_meaning_for_the_editor() -> None:
    def check(schema: dict[str, object], where: str) -> None:
        properties = schema.get("properties", {})
        assert isinstance(properties, dict)
        for name, inside in properties.items():
            assert inside["description"].endswith("."), f"{where}{name}"
            check(inside, f"{where}{name}.")

    check(policy_schema(), "")
