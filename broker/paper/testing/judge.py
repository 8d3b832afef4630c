"""Plays a case and judges it: what was expected, what was never to happen, what had to be true in the end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from broker.core.errors import Place
from broker.core.money import MICRO_PER_USD
from broker.core.offer import Market
from broker.core.tariff import BillingRule
from broker.core.time import MS, format_duration
from broker.paper.outcome import Egress, Outcome, Step
from broker.paper.run import Terms, play
from broker.paper.testing.case import Bound, Case, Expectation, Measure, Never, Window


@dataclass(frozen=True)
class Failure:
    """One thing that was not as it had to be.

    Attributes:
        place: Of the expectation, in the file.
        message: What was expected, and what was instead.
        step: The answer that it is about, or None.
        reached: False when the run was over before its time came.
    """

    place: Place
    message: str
    step: Step | None = None
    reached: bool = True


@dataclass(frozen=True)
class Verdict:
    """A case that was played."""

    case: Case
    outcome: Outcome
    failures: tuple[Failure, ...]

    @property
    def passed(self) -> bool:
        """Whether everything was as it had to be."""
        return not self.failures


def judge(case: Case, rule_of: Callable[[str, Market], BillingRule], egress: Egress) -> Verdict:
    """Play a case.

    Args:
        rule_of: How clouds bill.
        egress: What leaving a place costs, in micro-USD a GiB.
    """
    watch = _Watch(case)
    terms = Terms(timing=case.timing, caps=case.caps, rule_of=rule_of, egress=egress, notice=case.notice)
    outcome = play(case.job, case.policy, case.market, terms, case.until_ms, watch.see)
    return Verdict(case, outcome, (*watch.failures(outcome), *_at_the_end(case, outcome)))


@dataclass
class _Seen:
    """What one expectation has seen. `at` are the answers within its time, `before` the last one before that."""

    expectation: Expectation
    at: list[Step] = field(default_factory=list)
    before: Step | None = None
    met: bool = False


@dataclass
class _Watch:
    """Looks at every answer as it is given: a run may have more of them than anybody should keep."""

    case: Case
    broken: dict[Never, Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._seen = [_Seen(expectation) for expectation in self.case.expect]

    def see(self, step: Step) -> None:
        """One more answer."""
        since_ms = step.at_ms - self.case.start_ms
        for seen in self._seen:
            when, pattern = seen.expectation.when, seen.expectation.pattern
            if since_ms < when.from_ms:
                seen.before = step
            elif when.holds(since_ms):
                seen.met = seen.met or not pattern.misses(step)
                # Of a window only its ends are told.
                seen.at = [*seen.at[:1], step] if not when.is_moment else [*seen.at, step]
        for never in self.case.never:
            within = never.when is None or never.when.holds(since_ms)
            if within and never not in self.broken and not never.pattern.misses(step):
                self.broken[never] = step

    def failures(self, outcome: Outcome) -> list[Failure]:
        """In the order of the file: what was expected, then what was never to happen."""
        missed = [_missed(seen, self.case, outcome) for seen in self._seen]
        broken = [
            Failure(
                never.place,
                f"never{_within(never.when)}: {never.pattern}; it happened at {_since(step.at_ms, self.case)}",
                step,
            )
            for never, step in self.broken.items()
        ]
        return [*(failure for failure in missed if failure is not None), *broken]


def _missed(seen: _Seen, case: Case, outcome: Outcome) -> Failure | None:
    expectation = seen.expectation
    when, pattern, place = expectation.when, expectation.pattern, expectation.place
    # An answer stands until the next one: at a moment without one, the last counts.
    if seen.met or (
        when.is_moment
        and not seen.at
        and seen.before is not None
        and not pattern.misses(seen.before)
        and not _over(when, case, outcome)
    ):
        return None
    expected = f"{_at(when)}: expected {pattern}"
    if _over(when, case, outcome):
        ended = f"the job finished at {_since(outcome.ended_ms, case)}"
        if outcome.finished_ms is None:
            ended = f"the run ended at {_since(outcome.ended_ms, case)}"
        return Failure(place, f"{expected}; never reached: {ended}", reached=False)
    step = seen.at[-1] if seen.at else seen.before
    if step is None:
        return Failure(place, f"{expected}; the policy was not asked by then")
    told = "" if seen.at else f" since {_since(step.at_ms, case)}"
    if not when.is_moment:
        told = f" in the end, at {_since(step.at_ms, case)}"
    return Failure(place, f"{expected}; {' and '.join(pattern.misses(step))}{told}", step)


def _over(when: Window, case: Case, outcome: Outcome) -> bool:
    return when.from_ms > outcome.ended_ms - case.start_ms


def _at_the_end(case: Case, outcome: Outcome) -> list[Failure]:
    wanted, failures = case.finally_, []
    finished_ms = outcome.finished_ms
    if wanted.finished is not None and wanted.finished is not (finished_ms is not None):
        is_done = "is done" if finished_ms is not None else "is not done"
        expected = "true" if wanted.finished else "false"
        failures.append(
            Failure(wanted.places["finished"], f"finished: expected {expected}; the work {is_done}")
        )
    if wanted.done_by_ms is not None:
        late = finished_ms is None or finished_ms - case.start_ms > wanted.done_by_ms
        done = "not done" if finished_ms is None else f"done at {_since(finished_ms, case)}"
        if late:
            by = format_duration(wanted.done_by_ms / MS)
            failures.append(Failure(wanted.places["done_by"], f"done_by: expected by {by}; {done}"))
    if wanted.on is not None:
        last = outcome.job.active or outcome.job.former
        on = last.offer.key if last else None
        if on is None or not fnmatchcase(on, wanted.on):
            failures.append(
                Failure(wanted.places["on"], f"on: expected {wanted.on}; it ended on {on or 'no place'}")
            )
    failures += [f for f in (_out_of_bounds(bound, outcome) for bound in wanted.bounds) if f is not None]
    return failures


def measured(measure: Measure, outcome: Outcome) -> float:
    """A number of an outcome, in the unit of its name."""
    match measure:
        case Measure.COST_USD:
            return outcome.cost_micro_usd / MICRO_PER_USD
        case Measure.MOVES:
            return outcome.moves
        case Measure.LAUNCHES:
            return outcome.launches
        case Measure.REFUSALS:
            return outcome.refusals
        case Measure.INTERRUPTIONS:
            return outcome.interruptions
        case Measure.REDONE_S:
            return outcome.job.redone_s


def _out_of_bounds(bound: Bound, outcome: Outcome) -> Failure | None:
    value = measured(bound.measure, outcome)
    if bound.allows(value):
        return None
    return Failure(
        bound.place, f"{bound.key}: expected {_bound_words(bound)}; got {_words(bound.measure, value)}"
    )


def _bound_words(bound: Bound) -> str:
    low = None if bound.least is None else _words(bound.measure, bound.least)
    high = None if bound.most is None else _words(bound.measure, bound.most)
    if bound.measure in (Measure.COST_USD, Measure.REDONE_S):
        return f"less than {high}" if low is None else f"more than {low}"
    if low == high:
        return str(low)
    return f"at least {low}" if high is None else f"{low} to {high}"


def _words(measure: Measure, value: float) -> str:
    match measure:
        case Measure.COST_USD:
            return f"${value:.2f}"
        case Measure.REDONE_S:
            return format_duration(value)
    return f"{value:g}"


def _at(when: Window) -> str:
    first, last = format_duration(when.from_ms / MS), format_duration(when.to_ms / MS)
    return f"at {first}" if when.is_moment else f"from {first} to {last}"


def _within(when: Window | None) -> str:
    return "" if when is None else f" {_at(when)}"


def _since(at_ms: int, case: Case) -> str:
    return format_duration((at_ms - case.start_ms) / MS)
