"""What a policy is measured against: ways to run a job that people use, each with the same safety net.

on_demand            the place on which the job is finished for least, from the first tick on
spot_else_on_demand  spot, on-demand for as long as there is none, and back
eager                spot; after a loss, first in another region; never on-demand while the deadline allows to wait
uniform_progress     `broker.decision.strategy_progress`
cheapest             `broker.decision.strategy_cheapest`, with the threshold and hold that a policy has by default

`eager` is what SkyPilot documents as EAGER_NEXT_REGION (pull request 2234 of skypilot-org/skypilot).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.decision.strategy import Answer, Outlook, Rule, Standing, Strategy, with_safety_net
from broker.decision.strategy_cheapest import Cheapest
from broker.decision.strategy_progress import UniformProgress
from broker.policy.schema import Migrate


@dataclass(frozen=True)
class OnDemand:
    """On-demand from the first tick on."""

    def answer(self, job: Standing, market: Outlook) -> Answer:
        """What should be held now."""
        return Answer(job.held or market.steady(), Rule.KEEP if job.held else Rule.FIRST)


@dataclass(frozen=True)
class SpotElseOnDemand:
    """Spot whenever there is any, else on-demand at once."""

    def answer(self, job: Standing, market: Outlook) -> Answer:
        """What should be held now."""
        if job.held is not None and job.held.interruptible:
            return Answer(job.held, Rule.EXPLOITATION)
        spot = market.spot()
        if spot is not None:
            return Answer(spot, Rule.TAKE_RISK)
        return Answer(job.held or market.steady(), Rule.NOTHING, on_change=True)


@dataclass(frozen=True)
class Eager:
    """Spot or nothing; after a loss the next region comes first."""

    def answer(self, job: Standing, market: Outlook) -> Answer:
        """What should be held now."""
        if job.held is not None:
            return Answer(job.held, Rule.KEEP)
        spot = (market.spot(outside=job.lost.region) if job.lost else None) or market.spot()
        if spot is None:
            return Answer(None, Rule.WAIT, on_change=True)
        return Answer(spot, Rule.TAKE_RISK)


@dataclass(frozen=True)
class Netted:
    """A strategy that heeds no deadline, with the safety net under it."""

    strategy: Strategy

    def answer(self, job: Standing, market: Outlook) -> Answer:
        """What should be held now."""
        return with_safety_net(job, market, self.strategy.answer(job, market))


_HABITS = Migrate()

BASELINES: Mapping[str, Strategy] = {
    "on_demand": OnDemand(),
    "spot_else_on_demand": Netted(SpotElseOnDemand()),
    "eager": Netted(Eager()),
    "uniform_progress": UniformProgress(),
    "cheapest": Netted(Cheapest(_HABITS.min_saving, _HABITS.hold_s, _HABITS.cooldown_s)),
}
