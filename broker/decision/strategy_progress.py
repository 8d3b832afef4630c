"""Uniform Progress: spot whenever it can be had, and on-demand only for what spot leaves undone.

Five rules, after Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines", NSDI 2024. W is the
work, T the time from submission to deadline, d a start-up; the *line* is t x W / T.

thrifty        nothing is left to do: hold nothing
safety net     a job without a place, or not training yet, takes a steady place while there is time to finish on it
exploitation   on spot, stay until it is taken away
take risks     no place: spot if it can be had; otherwise wait while the line is kept, and take a steady place behind it
hysteresis     from a steady place back to spot only once done >= (t + 2d) x W / T; until then it catches up

There is nothing to tune.
"""

from dataclasses import dataclass
from math import inf

from broker.decision.strategy import Answer, Option, Outlook, Rule, Standing, with_safety_net


@dataclass(frozen=True)
class UniformProgress:
    """The rules above.

    Attributes:
        margin: How many times the work that is left the safety net spares time for: 1 where that is known exactly.
    """

    margin: float = 1.0

    def answer(self, job: Standing, market: Outlook) -> Answer:
        """What should be held now."""
        if job.work_s <= 0:
            return Answer(None, Rule.THRIFTY)
        if job.held is None:
            answer = _without_a_place(job, market)
        elif job.held.interruptible:
            answer = Answer(job.held, Rule.EXPLOITATION)
        else:
            answer = _on_steady(job, job.held, market)
        return with_safety_net(job, market, answer, self.margin)


def may_return_to_spot(job: Standing, start_up_s: float) -> bool:
    """Whether a job on a steady place is far enough ahead of its line to gamble again."""
    return job.done_s >= job.line_at_s(job.elapsed_s + 2 * start_up_s)


def falls_behind_at_s(job: Standing) -> float:
    """When the line passes what is done, if nothing is trained until then."""
    return job.done_s * (job.elapsed_s + job.left_s) / (job.done_s + job.work_s)


def _without_a_place(job: Standing, market: Outlook) -> Answer:
    spot = market.spot()
    if spot is not None:
        return Answer(spot, Rule.TAKE_RISK)
    if job.done_s < job.line_s:
        steady = market.steady()
        if steady is not None:
            start_up_s = market.start_up_s(steady)
            return Answer(steady, Rule.BEHIND, ask_at_s=_may_return_at_s(job, start_up_s, start_up_s))
        return Answer(None, Rule.NOTHING, on_change=True)
    return Answer(None, Rule.WAIT, ask_at_s=falls_behind_at_s(job), on_change=True)


def _on_steady(job: Standing, held: Option, market: Outlook) -> Answer:
    start_up_s = market.start_up_s(held)
    if not may_return_to_spot(job, start_up_s):
        return Answer(held, Rule.CATCH_UP, ask_at_s=_may_return_at_s(job, start_up_s, job.starting_s))
    spot = market.spot()
    if spot is None:
        return Answer(held, Rule.KEEP, on_change=True)
    return Answer(spot, Rule.HYSTERESIS)


def _may_return_at_s(job: Standing, start_up_s: float, starting_s: float) -> float:
    """When hysteresis lets go, if the job trains without a stop: it gains on its line by 1 - W/T in each second."""
    slope = job.line_at_s(1.0)
    if slope >= 1:
        return inf
    behind_s = job.line_at_s(job.elapsed_s + 2 * start_up_s) - job.done_s + starting_s
    # One tick too early costs a question, one too late a tick on a dear place.
    return job.elapsed_s + behind_s / (1 - slope) - job.binds_s
