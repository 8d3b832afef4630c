"""Cheapest: the lowest bill, whatever the time. A place is left when another one saves enough, and has done so for long.

The threshold and the hold are those of a policy's `migrate`. Where the policy itself vetoes moves (`broker.decision.plan`),
both are 0 here, and the strategy only says what it would rather have.
"""

from dataclasses import dataclass

from broker.decision.strategy import Answer, Option, Outlook, Rule, Standing


@dataclass(frozen=True)
class Cheapest:
    """A threshold with a hold.

    Attributes:
        min_saving: Share 0..1 of the cost to finish here.
        hold_s: Must have been so for this long.
        cooldown_s: Since the last move by choice.
    """

    min_saving: float = 0.0
    hold_s: float = 0.0
    cooldown_s: float = 0.0

    def answer(self, job: Standing, market: Outlook) -> Answer:
        """What should be held now."""
        if job.work_s <= 0:
            return Answer(None, Rule.THRIFTY)
        options = market.options()
        if job.held is None:
            first, rule = (options[0], Rule.FIRST) if options else (None, Rule.NOTHING)
            return Answer(first, rule, on_change=True)
        best = min(options, key=market.cost_micro_usd, default=None)
        if best is None or not self._saves(job.held, best, market):
            return Answer(job.held, Rule.KEEP, on_change=True)
        since_s = job.elapsed_s if job.wished_s is None else job.wished_s
        ready_s = since_s + self.hold_s
        if job.moved_s is not None:
            ready_s = max(ready_s, job.moved_s + self.cooldown_s)
        if job.elapsed_s < ready_s:
            return Answer(job.held, Rule.KEEP, ask_at_s=ready_s, on_change=True, wish=True)
        return Answer(best, Rule.SAVES, on_change=True, wish=True)

    def _saves(self, held: Option, best: Option, market: Outlook) -> bool:
        here, there = market.cost_micro_usd(held), market.cost_micro_usd(best)
        return there < here and there <= here * (1 - self.min_saving)
