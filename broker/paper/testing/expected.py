"""``expect``, ``never`` and ``finally`` of a test: what must be answered, what must not, what must be true in the end."""

import re
from typing import Final

from broker.core.errors import Place, PolicyError
from broker.core.model import DecisionKind
from broker.core.time import MS, parse_duration
from broker.core.yaml_text import Node, Scalar
from broker.paper.testing.case import Bound, Expectation, Finally, Measure, Never, Pattern, Window
from broker.paper.testing.section import Section, texts
from broker.policy import fields

_PATTERN: Final = ("decision", "to", "on", "why", "acted")
_FINALLY: Final = (
    "finished",
    "done_by",
    "on",
    "cost_below",
    "cost_above",
    "moves",
    "launches",
    "refusals",
    "interruptions",
    "redone_below",
)
_COUNTS: Final = {
    "moves": Measure.MOVES,
    "launches": Measure.LAUNCHES,
    "refusals": Measure.REFUSALS,
    "interruptions": Measure.INTERRUPTIONS,
}
_RANGE: Final = re.compile(r"([0-9]{1,6})(?:\.\.([0-9]{1,6})?)?")
_LONGEST_S: Final = 366 * 86_400
_MOST: Final = 1000
# Below and above exclude the number itself; money is whole micro-dollars.
_MICRO_USD: Final = 1e-6


def read_expectations(part: Section) -> tuple[Expectation, ...]:
    """``expect``: each with a time."""
    found = []
    for entry in part.listed("expect", _MOST):
        node = entry.node
        entry.only(("at", *_PATTERN))
        pattern = _pattern(entry)
        when = entry.read("at", window, None)
        if "at" not in node:
            entry.note(PolicyError("at is missing", node.at, "at: 45m, or at: 40m..50m"))
        if pattern == Pattern():
            entry.note(PolicyError("any answer would do", node.at, "decision, to, on, why or acted"))
        if when is not None:
            found.append(Expectation(when, pattern, node.at))
    return tuple(found)


def read_never(part: Section) -> tuple[Never, ...]:
    """``never``: at any time, or within ``at``."""
    found = []
    for entry in part.listed("never", _MOST):
        node = entry.node
        entry.only(("at", *_PATTERN))
        pattern = _pattern(entry)
        if pattern == Pattern():
            entry.note(PolicyError("every answer would be wrong", node.at, "decision, to, on, why or acted"))
        found.append(Never(entry.read("at", window, None), pattern, node.at))
    return tuple(found)


def read_finally(part: Section) -> Finally:
    """``finally``: of the run as a whole."""
    section = part.section("finally")
    if section is None:
        return Finally()
    section.only(_FINALLY)
    bounds = [bound for bound in (_bound(section, key) for key in _FINALLY[3:]) if bound is not None]
    done_by_s = section.read("done_by", fields.positive_duration, None)
    return Finally(
        finished=section.read("finished", Node.as_bool, None),
        done_by_ms=None if done_by_s is None else done_by_s * MS,
        on=section.read("on", Node.as_str, None),
        bounds=tuple(bounds),
        places={key: section.node.place(key) for key in section.node},
    )


def window(node: Node) -> Window:
    """``45m``, or ``40m..50m``; since the start."""
    if not isinstance(node, Scalar) or node.value is None:
        raise node.wrong("a time since the start", "write 45m, or 40m..50m")
    first, dots, last = node.text.strip().partition("..")
    from_s = _since_start(node, first)
    to_s = _since_start(node, last) if dots else from_s
    if to_s < from_s:
        raise node.fail(f"{node.name}: {node.text} ends before it begins")
    return Window(from_s * MS, to_s * MS)


def _since_start(node: Scalar, text: str) -> int:
    if text.strip() == "0":
        return 0
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise node.fail(f"{node.name}: {error}", "since the start: 45m, or 40m..50m") from None
    if seconds > _LONGEST_S:
        raise node.fail(f"{node.name}: {text} is out of range", "at most 366d")
    return seconds


def _pattern(entry: Section) -> Pattern:
    return Pattern(
        kind=entry.read("decision", fields.choice(DecisionKind), None),
        to=entry.read("to", Node.as_str, None),
        on=entry.read("on", Node.as_str, None),
        why=entry.read("why", texts, ()),
        acted=entry.read("acted", Node.as_bool, None),
    )


def _bound(section: Section, key: str) -> Bound | None:
    if key not in section.node:
        return None
    at = section.node.place(key)
    if key in _COUNTS:
        return section.read(key, lambda node: _count(node, key, at), None)
    if key == "redone_below":
        seconds = section.read(key, fields.positive_duration, None)
        return None if seconds is None else Bound(Measure.REDONE_S, key, at, most=seconds - _MICRO_USD)
    amount = section.read(key, fields.positive_money, None)
    if amount is None:
        return None
    if key == "cost_above":
        return Bound(Measure.COST_USD, key, at, least=amount / 1e6 + _MICRO_USD)
    return Bound(Measure.COST_USD, key, at, most=amount / 1e6 - _MICRO_USD)


def _count(node: Node, key: str, at: Place) -> Bound:
    """``2``, ``0..2``, or ``1..`` for at least one."""
    match = _RANGE.fullmatch(node.text.strip()) if isinstance(node, Scalar) else None
    if match is None:
        raise node.wrong("a number", "write 2, 0..2, or 1.. for at least one")
    least = int(match[1])
    open_end = isinstance(node, Scalar) and node.text.strip().endswith("..")
    most = None if open_end else int(match[2] or match[1])
    if most is not None and most < least:
        raise node.fail(f"{node.name}: no number is from {least} to {most}")
    return Bound(_COUNTS[key], key, at, least, most)
