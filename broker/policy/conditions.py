"""Conditions: single lines of CEL over declared facts. The only module that knows the CEL engine.

The engine is Google's cel-cpp by way of `cel-expr-python`: it checks types when a file is read, bounds recursion
(32) and iterations, and answers a failed evaluation with a *value*, never with true. Declared names are dotted
(``offer.price``) and typed, so that a typo or ``offer.price < "3"`` is found before a dollar is spent.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from cel_expr_python import cel

from broker.core.errors import Place, PolicyError
from broker.core.time import HOUR_S, parse_duration
from broker.core.yaml_bounds import foreign_letter
from broker.core.yaml_text import did_you_mean
from broker.policy.facts import FactInfo, FactType, fact_info
from broker.policy.schema import Fact

# Long enough for every line that a person can still read; it bounds what a hostile file can ask of the engine.
MAX_TEXT: Final = 1000

_CEL_TYPE: Final[Mapping[FactType, Any]] = {
    FactType.BOOL: cel.Type.BOOL,
    FactType.INT: cel.Type.INT,
    FactType.DOUBLE: cel.Type.DOUBLE,
    FactType.STRING: cel.Type.STRING,
    FactType.DURATION: cel.Type.DURATION,
}

# Facts are single values, so a loop only ever runs over a list that stands in the line itself. One is linear in
# the text; two nested ones reach the engine's iteration budget, which costs 50 ms for each offer weighed.
_LOOP: Final = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(")
# A pattern becomes a machine of some 100 bytes a character, or a thousand times that where it counts: a{1000}.
_MOST_PATTERNS: Final = 2
_LONGEST_PATTERN: Final = 100
_STRING: Final = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
_DURATION: Final = re.compile(r"\bduration\(\s*(\"[^\"\\]*\"|'[^'\\]*')\s*\)")
_REGEX: Final = re.compile(r"\.matches\(\s*(\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')\s*\)")


@dataclass(frozen=True)
class CelCondition:
    """A compiled line. Satisfies `broker.policy.schema.Condition`.

    Attributes:
        text: As the author wrote it.
        place: ``policies/night.yaml:14``.
        needs: Names of the facts in it.
        at: Where it starts.
    """

    text: str
    place: str = field(compare=False)
    needs: tuple[str, ...]
    at: Place = field(repr=False, compare=False)
    _program: Any = field(repr=False, compare=False)

    def evaluate(self, facts: Mapping[str, Fact]) -> bool | None:
        """True, False, or None when a fact that it needs is missing or the evaluation failed.

        ``a || b`` is true when `a` is, even if a fact in `b` is missing: that is how CEL reads it, and people.
        """
        values = {}
        for name in self.needs:
            info = fact_info(name)
            value = _cel_value(facts.get(name), info.type) if info else None
            if value is not None:
                values[name] = value
        try:
            result = self._program.eval(data=values)
        except (RuntimeError, OverflowError, TypeError):  # the iteration budget; a value out of CEL's range
            return None
        # A missing fact gives an ERROR or UNKNOWN value, and any object is truthy: only a BOOL is an answer.
        return bool(result.value()) if result.type() == cel.Type.BOOL else None


def compile_condition(text: str, place: Place, allowed: Mapping[str, FactInfo]) -> CelCondition:
    """Compile one line.

    Args:
        text: The line, as YAML gives it.
        place: Where it starts; errors point into it.
        allowed: Facts that may be used here (`broker.policy.facts.facts_for`).

    Raises:
        PolicyError: at the very column, where the line stands on one line of the file.
    """
    _bounded(text, place)
    _literals(text, place)
    environment = cel.NewEnv(variables={name: _CEL_TYPE[fact.type] for name, fact in allowed.items()})
    try:
        program = environment.compile(text)
    except (RuntimeError, TypeError) as error:
        raise _humane(str(error), text, place, allowed) from None
    if program.return_type() != cel.Type.BOOL:
        got = _type_name(program.return_type().name())
        raise PolicyError(f"a condition must be true or false; this one gives {got}", place, "compare it")
    # The checked expression refers to each variable by its full name, length first (protobuf): that is the
    # engine's own word for what the line needs, whatever spaces or comments the author put in.
    blob = program.serialize()
    needs = tuple(name for name in allowed if bytes([len(name)]) + name.encode() in blob)
    return CelCondition(text, f"{place.file}:{place.line}", needs, place, program)


def _cel_value(value: Fact | None, kind: FactType) -> object | None:
    """A fact as the engine wants it; None when it is missing or no number."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if kind is FactType.DURATION and isinstance(value, int | float):
        return timedelta(seconds=value) if abs(value) < timedelta.max.total_seconds() else None
    if kind is FactType.DOUBLE and isinstance(value, int):
        return float(value)
    return value


def _bounded(text: str, place: Place) -> None:
    if not text.strip():
        raise PolicyError("the condition is empty", place)
    if len(text) > MAX_TEXT:
        raise PolicyError(
            f"the condition has {len(text)} characters; {MAX_TEXT} are allowed",
            place,
            "a list is an AND: put each part of it on its own line",
        )
    if not text.isprintable() and not text.replace("\n", " ").replace("\t", " ").isprintable():
        raise PolicyError("the condition has characters that cannot be printed", place)
    if len(_LOOP.findall(_STRING.sub('""', text))) > 1:
        raise PolicyError("one condition may have one loop (all, exists, map, filter)", place)


def _literals(text: str, place: Place) -> None:
    """Refuse durations and patterns that could never be evaluated: such a line would be false for ever."""
    environment = cel.NewEnv()
    for found in _DURATION.finditer(text):
        if environment.compile(f"duration({found[1]})").eval().type() != cel.Type.DURATION:
            written = found[1][1:-1]
            raise PolicyError(
                f"{written!r} is not a duration that CEL can read",
                _inside(place, text, found.start(1)),
                f'write duration("{_hours(written)}"): h, m and s are known here',
            )
    patterns = list(_REGEX.finditer(text))
    if len(patterns) > _MOST_PATTERNS:
        raise PolicyError(f"one condition may have {_MOST_PATTERNS} patterns (matches)", place)
    for found in patterns:
        if len(found[1]) > _LONGEST_PATTERN + len('""'):
            message = f"a pattern of {len(found[1]) - 2} characters; {_LONGEST_PATTERN} are allowed"
            raise PolicyError(message, _inside(place, text, found.start(1)))
        try:
            readable = environment.compile(f'"".matches({found[1]})').eval().type() == cel.Type.BOOL
        except RuntimeError:
            readable = False
        if not readable:
            raise PolicyError("this pattern is not RE2", _inside(place, text, found.start(1)))


def _hours(written: str) -> str:
    """``2d`` as ``48h``; an example where it is no duration of ours either."""
    try:
        seconds = parse_duration(written)
    except ValueError:
        return "1h30m"
    return f"{seconds // HOUR_S}h" if seconds % HOUR_S == 0 else f"{seconds}s"


def _inside(place: Place, text: str, offset: int) -> Place:
    """The place of `text[offset]`; the start where the text is folded over several lines of the file."""
    start = place.source.find(text, place.column - 1)
    if start < 0:
        return place
    return Place(place.file, place.line, start + offset + 1, place.source)


# --- The engine's errors in a person's words --------------------------------------------------------------

_ERROR: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_UNDECLARED: Final = re.compile(r"undeclared reference to '(.*?)'")
_OVERLOAD: Final = re.compile(r"found no matching overload for '(.*?)' applied to '\((.*)\)'")
_UNEXPECTED: Final = re.compile(r"(?:input|at:) '(.*?)'(?:$| expecting)")

_DURATION_TYPE: Final = "google.protobuf.duration"
_TYPE_NAMES: Final = {
    "double": "a number (double)",
    "int": "a whole number (int)",
    "string": "text (string)",
    "bool": "true or false (bool)",
    "duration": "a duration",
    _DURATION_TYPE: "a duration",
    "dyn": "a value whose type is not known",
}
_SYNTAX_HINTS: Final = (
    (re.compile(r"\band\b"), "write && for and"),
    (re.compile(r"\bor\b"), "write || for or"),
    (re.compile(r"\bnot\b"), "write ! for not"),
    (re.compile(r"(?<![=<>!])=(?!=)"), "write == to compare"),
    (re.compile(r"\d\s*%"), "shares are 0..1: write 0.20 for 20%"),
    (re.compile(r"\$\s*\d"), "prices are dollars: write 3.0 for $3"),
    (re.compile(r"\d(?:s|m|h|d|w)\b"), 'durations are written duration("1h")'),
)


def _humane(problem: str, text: str, place: Place, allowed: Mapping[str, FactInfo]) -> PolicyError:
    """The engine's first error, at its place, with what to do."""
    found = _ERROR.search(problem)
    if not found or int(found[1]) < 0:
        deep = "recursion" in problem
        return PolicyError("the condition is nested too deeply" if deep else "this is not a condition", place)
    line, column, message = int(found[1]), int(found[2]), found[3]
    offset = sum(len(part) + 1 for part in text.split("\n")[: line - 1]) + column - 1
    if name := _UNDECLARED.search(message):
        return _unknown(name[1], offset, text, place, allowed)
    at = _inside(place, text, offset)
    if overload := _OVERLOAD.search(message):
        operator, types = overload[1].strip("_@"), overload[2].lower().split(", ")
        return _mismatch(operator, types, text, offset, at)
    unexpected = _UNEXPECTED.search(message)
    bare = _STRING.sub('""', text)
    hint = foreign_letter(bare) or next(
        (hint for pattern, hint in _SYNTAX_HINTS if pattern.search(bare)), None
    )
    if unexpected and unexpected[1].strip() == "<EOF>":
        return PolicyError("the condition ends too early", at, hint)
    what = f"unexpected {unexpected[1].strip()!r}" if unexpected and unexpected[1].strip() else message
    return PolicyError(f"this is not a condition: {what}", at, hint)


def _unknown(name: str, offset: int, text: str, place: Place, allowed: Mapping[str, FactInfo]) -> PolicyError:
    # The engine points at the last dot, or at a call's parenthesis; a person looks for the name's start.
    start = text.rfind(name, 0, offset + len(name))
    at = _inside(place, text, start if start >= 0 else offset)
    if fact := fact_info(name):
        lines = " and ".join(sorted(fact.lines))
        return PolicyError(f"the fact {name} is not known here", at, f"it may be used in {lines}")
    after = text[start + len(name) :] if start >= 0 else ""
    if after.lstrip().startswith("("):
        return PolicyError(f"there is no function {name}", at, "functions: docs/reference/policy-file.md")
    if slashed := re.search(rf"\bmetrics\.(\w+)/{re.escape(name)}\b", text):
        whole = f"metrics.{slashed[1]}_{name}"
        return PolicyError(f"unknown name {name}", at, f"a slash is written _: {whole}")
    if "." not in name:
        if hint := did_you_mean(name, allowed):
            return PolicyError(f"unknown fact {name}", at, hint)
        return PolicyError(f"unknown name {name}", at, f'text goes in quotes: "{name}"')
    return PolicyError(
        f"unknown fact {name}", at, did_you_mean(name, allowed) or "facts: docs/reference/facts.md"
    )


def _mismatch(operator: str, types: list[str], text: str, offset: int, at: Place) -> PolicyError:
    shown = operator.replace("_", " ")
    between = "between" if len(types) > 1 else "on"
    message = f"{shown} does not work {between} {' and '.join(_type_name(t) for t in types)}"
    return PolicyError(message, at, _mismatch_hint(set(types), shown, text, offset))


def _mismatch_hint(types: set[str], operator: str, text: str, offset: int) -> str | None:
    if types == {"double", "int"}:
        right = re.match(rf"{re.escape(operator)}\s*(-?\d+(?:\.\d+)?)", text[offset:])
        left = re.search(r"(\d+(?:\.\d+)?)\s*$", text[:offset])
        number = right or left
        if not number:
            return "put double(...) around the whole number"
        if "." in number[1]:
            return f"the other side is a whole number: write {number[1].split('.')[0]}"
        return f"prices are dollars and shares are 0..1: write {number[1]}.0"
    if _DURATION_TYPE in types:
        return 'durations are written duration("1h")'
    if operator == "in":
        return 'write a list after in: ["a", "b"]'
    return None


def _type_name(engine_name: str) -> str:
    """The engine's name of a type, for people."""
    name = engine_name.strip()
    return _TYPE_NAMES.get(name.lower(), name)
