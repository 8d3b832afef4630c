"""Verdicts for people and for programs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker.core.money import format_usd
from broker.core.time import MS, format_duration
from broker.paper.outcome import Outcome
from broker.paper.testing.case import Measure
from broker.paper.testing.judge import Failure, Verdict, measured
from broker.policy.explain import explain


def as_text(verdicts: Sequence[Verdict], untested: Sequence[Path]) -> str:
    """A line for each case, below it what was not as it had to be with the answer's reasons; then the count."""
    lines: list[str] = []
    file = ""
    for verdict in verdicts:
        place = verdict.case.place
        if place.file != file:
            lines += [*([""] if file else []), place.file]
            file = place.file
        lines.append(
            f"  {'ok  ' if verdict.passed else 'FAIL'}  {verdict.case.name}  ({_summary(verdict.outcome)})"
        )
        for failure in verdict.failures:
            lines += _told(failure)
    if verdicts:
        lines.append("")
    lines += [f"no test: {path}" for path in untested]
    failed = sum(not verdict.passed for verdict in verdicts)
    never = sum(not failure.reached for verdict in verdicts for failure in verdict.failures)
    count = f"{_plural(len(verdicts), 'case')}, {failed} failed"
    if never:
        count += f", {_plural(never, 'expectation')} never reached"
    if untested:
        count += f", {_plural(len(untested), 'policy', 'policies')} without a test"
    return "\n".join([*lines, count]) + "\n"


def as_json(verdicts: Sequence[Verdict], untested: Sequence[Path]) -> dict[str, Any]:
    """Plain values; money in dollars, durations in seconds."""
    return {
        "cases": [_case(verdict) for verdict in verdicts],
        "failed": sum(not verdict.passed for verdict in verdicts),
        "untested": [str(path) for path in untested],
    }


def _case(verdict: Verdict) -> dict[str, Any]:
    case, outcome = verdict.case, verdict.outcome
    finished_ms = outcome.finished_ms
    return {
        "name": case.name,
        "file": case.place.file,
        "line": case.place.line,
        "policy": case.policy.name,
        "mode": case.policy.mode.value,
        "passed": verdict.passed,
        "failures": [_failure(failure) for failure in verdict.failures],
        "finished_s": None if finished_ms is None else (finished_ms - case.start_ms) / MS,
        "asked": outcome.asked,
        **{measure.value: measured(measure, outcome) for measure in Measure},
    }


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "message": failure.message,
        "file": failure.place.file,
        "line": failure.place.line,
        "column": failure.place.column,
        "reached": failure.reached,
        "answer": None if failure.step is None else explain(failure.step.decision).as_json(),
    }


def _told(failure: Failure) -> list[str]:
    lines = [f"        {failure.place}: {failure.message}"]
    if failure.step is not None:
        text = explain(failure.step.decision).as_text().rstrip("\n")
        lines += [f"          {line}".rstrip() for line in text.split("\n")]
    return lines


def _summary(outcome: Outcome) -> str:
    took = format_duration((outcome.ended_ms - outcome.began_ms) / MS)
    parts = [f"done in {took}" if outcome.finished_ms is not None else f"not done after {took}"]
    parts.append(format_usd(outcome.cost_micro_usd))
    if outcome.moves:
        parts.append(_plural(outcome.moves, "move"))
    if outcome.interruptions:
        parts.append(_plural(outcome.interruptions, "interruption"))
    return ", ".join(parts)


def _plural(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
