"""What stands behind an objective: a strategy says what should be held now, and when it wants to be asked again.

A strategy is pure. It is told how the job stands (`Standing`) and may put questions about this moment to the market
(`Outlook`). There is no question about a later moment, so no strategy can look ahead, and the daemon, a back-test and
a test of a policy get the same answer from the same values.

Who asks need not ask at every tick: an answer holds until the place is lost, until `Answer.ask_at_s`, and, where
`Answer.on_change` says so, until what can be had or its price changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from typing import Protocol

# Sums of whole ticks are equal but for rounding.
_EXACT_S = 1e-6


@dataclass(frozen=True, slots=True)
class Option:
    """Something that a job can hold: an offer, as a strategy sees it.

    Attributes:
        key: Of the offer: ``aws/use1-az6/p5.48xlarge/spot``.
        region: ``cloud/region``; between two of them egress is paid.
        interruptible: Whether the cloud may take it back (spot).
    """

    key: str
    region: str
    interruptible: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job stands at one moment. All times are seconds, counted from the job's submission where they are moments.

    Attributes:
        elapsed_s: Now.
        left_s: Until the deadline; infinite without one.
        done_s: Training done.
        work_s: Training left.
        held: What it holds, or None.
        starting_s: Until what it holds trains; 0 when it trains.
        lost: What the cloud took from it last, or None.
        binds_s: How long an answer binds at least: until the next tick, or while a landing cannot be called off.
        wished_s: Since when each answer has been a wish to move, or None.
        moved_s: When it last moved by choice, or None.
    """

    elapsed_s: float
    left_s: float
    done_s: float
    work_s: float
    held: Option | None = None
    starting_s: float = 0.0
    lost: Option | None = None
    binds_s: float = 0.0
    wished_s: float | None = None
    moved_s: float | None = None

    @property
    def line_s(self) -> float:
        """Training that would be done by now if it were spread evenly over the time until the deadline."""
        return self.line_at_s(self.elapsed_s)

    def line_at_s(self, moment_s: float) -> float:
        """The same, for another moment. With no time at all from submission to deadline, everything is overdue."""
        time_s = self.elapsed_s + self.left_s
        return moment_s * (self.done_s + self.work_s) / time_s if time_s > 0 else inf


class Outlook(Protocol):
    """What a strategy may ask about this moment. Only what can be had now, and is not held, is named."""

    def options(self) -> Sequence[Option]:
        """All of it, the one that a job without a place would start on first."""

    def spot(self, outside: str = "") -> Option | None:
        """The best interruptible one, if need be of those outside one region."""

    def steady(self) -> Option | None:
        """The best one that the cloud does not take back."""

    def cost_micro_usd(self, option: Option) -> float:
        """To finish there, the way there included; for what is held, to finish here."""

    def rate_micro_usd_h(self, option: Option) -> float:
        """The whole gang, an hour."""

    def life_s(self, option: Option) -> float:
        """Expected time to an interruption; infinite for what is not interruptible."""

    def start_up_s(self, option: Option) -> float:
        """From asking for it to training, billed."""

    def egress_micro_usd(self, option: Option) -> float:
        """Checkpoint and data on their way there, once."""

    def longest_start_s(self) -> float:
        """The longest start-up that a place which is not interruptible could take: what a safety net must spare."""


class Rule(StrEnum):
    """Which line of a strategy gave the answer."""

    THRIFTY = "thrifty"  # nothing is left to do
    SAFETY_NET = "safety_net"  # one more gamble, and the deadline could be missed
    EXPLOITATION = "exploitation"  # on spot, as long as it lasts
    TAKE_RISK = "take_risk"  # spot can be had
    BEHIND = "behind"  # no spot, and less is done than should be by now
    WAIT = "wait"  # no spot, and time enough
    CATCH_UP = "catch_up"  # on a steady place, and not far enough ahead of the line to leave it
    HYSTERESIS = "hysteresis"  # so far ahead of the line that two more starts can be afforded
    KEEP = "keep"  # what is held will do
    FIRST = "first"  # the first that can be had
    SAVES = "saves"  # another place is cheaper by enough, and has been for long enough
    NOTHING = "nothing"  # nothing can be had


@dataclass(frozen=True, slots=True)
class Answer:
    """What should be held from now on.

    Attributes:
        hold: An option that the outlook named, what is held already, or None for nothing.
        rule: Why.
        ask_at_s: The moment at which to ask again, if nothing happens before.
        on_change: Whether to ask again when what can be had, or a price, changes.
        wish: Whether it would move, had it wished to for long enough.
    """

    hold: Option | None
    rule: Rule
    ask_at_s: float = inf
    on_change: bool = False
    wish: bool = False


class Strategy(Protocol):
    """A way to choose. Frozen values: what it must remember is in `Standing`."""

    def answer(self, job: Standing, market: Outlook) -> Answer:
        """What should be held now."""


def last_gamble_s(job: Standing, market: Outlook, margin: float = 1.0) -> float:
    """The last moment at which a job that does not train may go on without a steady place.

    After it, work x margin, the longest start and the time that an answer binds no longer fit before the deadline. The
    safety net of Uniform Progress (Wu et al., "Can't Be Late", NSDI 2024) is this with binds = one start: there the
    gamble itself may cost a start that cannot be called off.
    """
    deadline_s = job.elapsed_s + job.left_s
    return deadline_s - job.work_s * margin - market.longest_start_s() - job.binds_s


def with_safety_net(job: Standing, market: Outlook, answer: Answer, margin: float = 1.0) -> Answer:
    """The answer, or a steady place where the answer could cost the deadline.

    A job that trains uses up no slack, whatever it trains on: it is left alone for as long as it could lose its place and
    still start on a steady one in time.
    """
    hold = answer.hold
    if hold is not None and not hold.interruptible:
        return answer
    if hold is not None and hold == job.held and job.starting_s <= 0:
        if job.left_s + _EXACT_S >= job.work_s * margin + market.longest_start_s():
            return answer
    else:
        last_s = last_gamble_s(job, market, margin)
        if job.elapsed_s <= last_s:
            return replace(answer, ask_at_s=min(answer.ask_at_s, last_s))
    if job.held is not None and not job.held.interruptible:
        return Answer(job.held, Rule.SAFETY_NET)
    steady = market.steady()
    return answer if steady is None else Answer(steady, Rule.SAFETY_NET)
