"""Puts the question of one decision to the strategy behind the policy's objective.

The strategy sees the candidates: what passed every filter and is in time. It says whether something is to be held at all
and whether spot may be taken; which of several places it is, cost and `place.order` have sorted before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from broker.core.offer import Market, Offer, Quote
from broker.core.time import MS, format_duration
from broker.decision.choose import Candidate, Field, by_preference
from broker.decision.fit import Stage
from broker.decision.risk import WORK_MARGIN, life_s
from broker.decision.situation import Situation
from broker.decision.strategy import Answer, Option, Rule, Standing, Strategy
from broker.decision.strategy_cheapest import Cheapest
from broker.decision.strategy_progress import UniformProgress, falls_behind_at_s

_UNIFORM_PROGRESS = UniformProgress(WORK_MARGIN)
_CHEAPEST = Cheapest()
# Refused for now: it may be had, or may please, in a while.
_PASSING = (Stage.QUOTE, Stage.POOL, Stage.LINES)


@dataclass(frozen=True)
class Verdict:
    """What a strategy says, and in words.

    Attributes:
        candidate: What is to be started on; None where that is nothing, or what is held.
        why: With numbers; empty where the objective has nothing to say.
    """

    answer: Answer
    candidate: Candidate | None = None
    why: str = ""

    @property
    def waits(self) -> bool:
        """Nothing is to be held, although something could be."""
        return self.answer.rule is Rule.WAIT

    @property
    def forbids_spot(self) -> bool:
        """A job on a steady place is not to go to spot yet."""
        return self.answer.rule is Rule.CATCH_UP

    def allows(self, candidate: Candidate) -> bool:
        """Whether it is the objective that lets a job go back to this place."""
        return self.answer.rule is Rule.HYSTERESIS and candidate.quote.offer.market is Market.SPOT

    @property
    def saves_deadline(self) -> bool:
        """The deadline could be missed otherwise."""
        return self.answer.rule is Rule.SAFETY_NET


def ask(situation: Situation, field: Field) -> Verdict:
    """The strategy's word on one job at one moment."""
    market = _Candidates(situation, field)
    job = _standing(situation)
    answer = _strategy(situation).answer(job, market)
    if job.held is None and (job.work_s <= 0 or _comes_before_spot(situation, market)):
        # The policy's order comes first, and a job that has nothing left to train has still to end.
        answer = _CHEAPEST.answer(replace(job, work_s=max(job.work_s, 1.0)), market)
    elif answer.rule is Rule.WAIT and not (situation.work.known and _may_come(situation, field)):
        steady = market.steady()
        answer = Answer(steady, Rule.FIRST if steady else Rule.NOTHING)
    candidate = market.candidate(answer.hold) if answer.hold is not None else None
    return Verdict(answer, candidate, _words(situation, job, answer))


def _strategy(situation: Situation) -> Strategy:
    return _CHEAPEST if situation.left_s is None else _UNIFORM_PROGRESS


def _standing(situation: Situation) -> Standing:
    active, left_s = situation.subject.active, situation.left_s
    work_s = situation.here.work_s if situation.here else situation.work.seconds
    return Standing(
        elapsed_s=max(0.0, (situation.now_ms - situation.job.created_at_ms) / MS),
        left_s=inf if left_s is None else left_s,
        done_s=situation.work.done_s,
        work_s=work_s,
        held=_option(active.offer) if active else None,
        lost=_option(situation.subject.lost.offer) if situation.subject.lost else None,
        # A landing is not called off: it takes as long as a start.
        binds_s=situation.landing.start_up_s,
    )


def _option(offer: Offer) -> Option:
    return Option(offer.key, f"{offer.cloud}/{offer.region}", offer.market is Market.SPOT)


def _comes_before_spot(situation: Situation, market: "_Candidates") -> bool:
    """Whether the policy would rather have what can be had than spot."""
    order = situation.policy.place.order
    first = next(iter(market.sorted), None)
    if first is None or Market.SPOT not in order:
        return True
    return order.index(first.quote.offer.market) < order.index(Market.SPOT)


def _may_come(situation: Situation, field: Field) -> bool:
    """Whether there is spot to wait for: quoted, allowed, and not to be had just now."""
    if any(reason.holds for reason in situation.skip_spot):
        return False
    return any(
        quote.offer.market is Market.SPOT and refusal.stage in _PASSING for quote, refusal in field.refused
    )


def _words(situation: Situation, job: Standing, answer: Answer) -> str:
    if situation.left_s is None:
        return ""
    done, line, work = _told(job.done_s), _told(job.line_s), _told(job.done_s + job.work_s)
    match answer.rule:
        case Rule.WAIT:
            wait = _told(max(0.0, falls_behind_at_s(job) - job.elapsed_s))
            return f"{done} of {work} are trained, {line} would do by now: waits for spot, for {wait} at most"
        case Rule.BEHIND:
            return f"no spot, and {done} of {work} are trained where it should be {line} by now"
        case Rule.TAKE_RISK:
            return f"spot can be had, and {_told(job.left_s)} are left"
        case Rule.CATCH_UP | Rule.HYSTERESIS:
            needed = _told(job.line_at_s(job.elapsed_s + 2 * situation.landing.start_up_s))
            return f"{done} of {work} are trained; spot is worth its risk again from {needed} on"
        case Rule.SAFETY_NET:
            risk = (
                "no time is left to gamble"
                if job.held is None
                else "another interruption of spot would miss it"
            )
            return f"{_told(job.work_s)} of work and {_told(job.left_s)} to the deadline: {risk}"
        case _:
            return ""


def _told(seconds: float) -> str:
    """In whole minutes: a job's row keeps the words, and is not to be written anew at each pass."""
    return "more" if seconds == inf else format_duration(seconds if seconds < 60 else seconds // 60 * 60)


class _Candidates:
    """The candidates of one decision, as a strategy may ask about them."""

    def __init__(self, situation: Situation, field: Field) -> None:
        self._situation, self._field = situation, field

    @cached_property
    def sorted(self) -> tuple[Candidate, ...]:
        """Those in time: the one to start on first."""
        return by_preference(self._situation, self._field)

    def candidate(self, option: Option) -> Candidate | None:
        """The candidate that an option stands for."""
        return next((c for c in self.sorted if c.quote.offer.key == option.key), None)

    def options(self) -> Sequence[Option]:
        return [_option(candidate.quote.offer) for candidate in self.sorted]

    def spot(self, outside: str = "") -> Option | None:
        return next((o for o in self.options() if o.interruptible and o.region != outside), None)

    def steady(self) -> Option | None:
        return next((o for o in self.options() if not o.interruptible), None)

    def cost_micro_usd(self, option: Option) -> float:
        candidate = self.candidate(option)
        if candidate is not None:
            return candidate.cost.micro_usd
        return self._situation.here.cost.micro_usd if self._situation.here else inf

    def rate_micro_usd_h(self, option: Option) -> float:
        return self._situation.rate(self._quote(option))

    def life_s(self, option: Option) -> float:
        return life_s(self._quote(option).offer, self._situation.world.snapshot)

    def start_up_s(self, option: Option) -> float:
        return self._situation.landing.start_up_s

    def egress_micro_usd(self, option: Option) -> float:
        return self._situation.egress_micro_usd(self._quote(option).offer)

    def longest_start_s(self) -> float:
        return self._situation.landing.start_up_s

    def _quote(self, option: Option) -> Quote:
        return self._situation.world.snapshot.quotes[option.key]
