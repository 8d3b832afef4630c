"""The marked YAML reader: places, types, and what it refuses."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import SpecError, UsageError
from broker.core.yaml_text import Mapped, parse, suggest

FILE = """\
name: train
resources:
  nodes: 2
  gpus:
    - {type: H100, count: 8}
flags: [yes, true, 0o17, 1000, 2026-12-04T08:00:00Z, 0.10, ~]
"""


def read(text: str) -> Mapped:
    return parse(text, "train.yaml", SpecError)


def test_values_are_yaml_1_2():
    assert read(FILE).value == {
        "name": "train",
        "resources": {"nodes": 2, "gpus": [{"type": "H100", "count": 8}]},
        "flags": ["yes", True, 15, 1000, "2026-12-04T08:00:00Z", 0.1, None],
    }


def test_places_count_from_one():
    resources = read(FILE)["resources"].as_mapped()
    assert (resources.place("nodes").line, resources.place("nodes").column) == (3, 3)
    assert (resources["nodes"].at.line, resources["nodes"].at.column) == (3, 10)
    gpus = resources["gpus"].as_sequence()
    assert str(gpus.place(0)) == "train.yaml:5:7"
    assert gpus[0].as_mapped()["count"].name == "resources.gpus[0].count"
    assert gpus.place(0).source == "    - {type: H100, count: 8}"


def test_error_shows_source_and_caret():
    with pytest.raises(SpecError) as caught:
        read(FILE)["resources"].as_mapped()["nodes"].as_str()
    assert str(caught.value) == (
        "train.yaml:3:10: resources.nodes: expected text, got the number 2\n"
        "      nodes: 2\n"
        "             ^\n"
        'hint: put it in quotes: "2"'
    )


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1, "duplicate key a; first on line 1"),
        ("x:\n  a: 1\n  a: 3\n", 3, 3, "duplicate key x.a; first on line 2"),
        ("a: &x 1\nb: *x\n", 1, 4, "anchors and aliases (&x, *x) are not supported; write the value out"),
        ("a: !!python/object:x {}\n", 1, 4, "the tag tag:yaml.org,2002:python/object:x is not supported"),
        ("a: [1\nb: 2\n", 2, 2, "not YAML: expected ',' or ']', but got ':'"),
        ("a:\n\tb: 1\n", 2, 1, "not YAML: found character '\\t' that cannot start any token"),
        ("? [a]\n: 1\n", 1, 3, "a key must be text"),
        ("", 1, 1, "the file is empty"),
        ("- a\n", 1, 1, "file: expected a mapping (key: value), got a list"),
        ("a: 1\n---\nb: 1\n", 2, 1, "a second document begins here (---): one file, one document"),
        ("a: 1_3\n", 1, 4, "'1_3' is not a number"),
        ("a: [1, 1_3.5]\n", 1, 8, "'1_3.5' is not a number"),
        ("a: 0x1_0\n", 1, 4, "'0x1_0' is not a number"),
    ],
)
def test_refusals_have_their_place(text: str, line: int, column: int, message: str):
    with pytest.raises(SpecError) as caught:
        read(text)
    assert caught.value.place is not None
    assert (caught.value.place.line, caught.value.place.column, caught.value.message) == (
        line,
        column,
        message,
    )


def test_unknown_key_is_refused_with_the_nearest():
    with pytest.raises(SpecError) as caught:
        read("nmae: x\n").only(("name", "run"))
    assert (caught.value.message, caught.value.hint) == ("unknown key nmae", "did you mean name?")


def test_later_key_is_refused_with_what_to_do():
    with pytest.raises(SpecError) as caught:
        read("image: x\n").only(("name",), {"image": "use setup"})
    assert (caught.value.message, caught.value.hint) == ("image is not supported yet", "use setup")


def test_a_key_left_empty_counts_as_missing():
    with pytest.raises(SpecError) as caught:
        read("run:\n").need("run")
    assert caught.value.message == "run is missing"


def test_money_stays_decimal():
    assert read("a: 0.1\n")["a"].as_decimal() == Decimal("0.1")
    assert read("a: 80\n")["a"].as_decimal() == 80
    for text in (".inf", ".nan", "true", "'80'"):
        with pytest.raises(SpecError):
            read(f"a: {text}\n")["a"].as_decimal()


def test_nesting_has_an_end():
    with pytest.raises(SpecError):
        read("a: " + "[" * 1200)


@pytest.mark.parametrize(("name", "near"), [("h100", "H100"), ("H10O", "H100"), ("zebra", None)])
def test_suggest(name: str, near: str | None):
    assert suggest(name, ("H100", "A100-PCIe-40GB")) == near


@given(
    st.text(alphabet=st.one_of(st.sampled_from("a:-[]{}'\"#&*!|>%@ \n\t,?"), st.characters()), max_size=40)
)
def test_any_text_is_read_or_refused_for_a_person(text: str):
    places: list[bool] = []
    try:
        parse(text, "x.yaml")
    except UsageError as error:
        places.append(error.place is not None)
    assert all(places)


def test_half_a_surrogate_pair_is_a_mistake_with_a_place():
    with pytest.raises(UsageError, match="surrogate") as caught:
        parse('a: 1\nb: "x \\ud800"\n', "f.yaml")
    assert str(caught.value.place) == "f.yaml:2:4"
