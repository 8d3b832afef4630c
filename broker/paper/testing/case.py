"""A test of a policy as frozen values. Reading the file is `broker.paper.testing.read`, judging is `judge`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

from broker.core.errors import Place
from broker.core.model import DecisionKind
from broker.core.offer import Offer
from broker.decision.subject import Caps, Timing
from broker.paper.job import PaperJob
from broker.paper.market import SeriesMarket
from broker.paper.outcome import Step
from broker.policy.schema import Policy


@dataclass(frozen=True)
class Window:
    """A moment, or from one to another, both included; milliseconds since the start."""

    from_ms: int
    to_ms: int

    @property
    def is_moment(self) -> bool:
        """Whether it is one moment."""
        return self.from_ms == self.to_ms

    def holds(self, since_start_ms: int) -> bool:
        """Whether a moment lies in it."""
        return self.from_ms <= since_start_ms <= self.to_ms


@dataclass(frozen=True)
class Pattern:
    """What an answer may look like; an empty part matches everything.

    Attributes:
        kind: Stay, place, move, pause or stop.
        to: Pattern of the target's offer key.
        on: Pattern of the offer key where the job is.
        why: Texts that must each be in one of the lines that speak for the answer: of a stay in a line that does not
            hold, of any other answer in a line that does.
        acted: Whether it was carried out, or only recorded.
    """

    kind: DecisionKind | None = None
    to: str | None = None
    on: str | None = None
    why: tuple[str, ...] = ()
    acted: bool | None = None

    def misses(self, step: Step) -> list[str]:
        """Which parts do not match, in words; none when it does."""
        decision, missed = step.decision, []
        if self.kind is not None and decision.kind is not self.kind:
            missed.append(f"the answer is {decision.kind}")
        if self.to is not None and (step.to is None or not fnmatchcase(step.to, self.to)):
            missed.append(f"the target is {step.to or 'none'}")
        if self.on is not None and (step.on is None or not fnmatchcase(step.on, self.on)):
            missed.append(f"the job is on {step.on or 'no place'}")
        if self.acted is not None and decision.acted is not self.acted:
            missed.append("it was carried out" if decision.acted else "it was not carried out")
        for text in self.why:
            if not any(text in line for line in _speaking(step)):
                missed.append(f"no line for it says {text!r}")
        return missed

    def __str__(self) -> str:
        parts = [str(self.kind) if self.kind else "any answer"]
        parts += [f"to {self.to}"] if self.to else []
        parts += [f"on {self.on}"] if self.on else []
        parts += [f"because of {text!r}" for text in self.why]
        parts += [] if self.acted is None else ["carried out" if self.acted else "only recorded"]
        return " ".join(parts)


def _speaking(step: Step) -> list[str]:
    stays = step.decision.kind is DecisionKind.STAY
    reasons = [r for r in step.decision.reasons if (r.holds is not True if stays else r.holds)]
    return [f"{reason.line}: {reason.detail}" for reason in reasons]


@dataclass(frozen=True)
class Expectation:
    """What the policy must answer.

    Attributes:
        when: At a moment: the answers of that moment, or else the one that was given last. In a window: any one in it.
        place: Where in the file.
    """

    when: Window
    pattern: Pattern
    place: Place


@dataclass(frozen=True)
class Never:
    """What it must not answer, at any time or within a window."""

    when: Window | None
    pattern: Pattern
    place: Place


class Measure(StrEnum):
    """A number of an outcome."""

    COST_USD = "cost_usd"
    MOVES = "moves"
    LAUNCHES = "launches"
    REFUSALS = "refusals"
    INTERRUPTIONS = "interruptions"
    REDONE_S = "redone_s"


@dataclass(frozen=True)
class Bound:
    """What a number of the outcome may be.

    Attributes:
        key: As in the file: ``cost_below: 500``.
        least, most: Both included; None is no bound.
    """

    measure: Measure
    key: str
    place: Place
    least: float | None = None
    most: float | None = None

    def allows(self, value: float) -> bool:
        """Whether a number is within."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


@dataclass(frozen=True)
class Finally:
    """What must be true in the end.

    Attributes:
        finished: Whether the work is done.
        done_by_ms: And by when, since the start.
        on: Pattern of the offer key where the job ended or still is.
        places: Where each of these stands in the file.
    """

    finished: bool | None = None
    done_by_ms: int | None = None
    on: str | None = None
    bounds: tuple[Bound, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One test.

    Attributes:
        name: Unique in its file.
        policy: Under test, in the mode that it is played in.
        start_ms: When the run begins.
        until_ms: When it ends, if the job has not finished before.
        job: As it is at the start.
        offers: Everything that has a price, in the order of the file.
        notice: Whether interruptions are announced.
    """

    name: str
    place: Place
    policy: Policy
    start_ms: int
    until_ms: int
    job: PaperJob
    market: SeriesMarket
    offers: tuple[Offer, ...]
    timing: Timing = field(default_factory=Timing)
    caps: Caps = field(default_factory=Caps)
    notice: bool = True
    expect: tuple[Expectation, ...] = ()
    never: tuple[Never, ...] = ()
    finally_: Finally = field(default_factory=Finally)


@dataclass(frozen=True)
class CaseFile:
    """A file of tests.

    Attributes:
        policies: Files of the policies that its cases play.
    """

    path: Path
    cases: tuple[Case, ...]
    policies: tuple[Path, ...]
