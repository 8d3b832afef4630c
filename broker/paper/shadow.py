"""A job that was never submitted, as it would stand now: played under a policy over a market, beside staying put.

Nothing is kept between two looks: the standing is computed from the history each time, so it is the same after a restart.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from broker.core.errors import SpecError
from broker.core.gpu import GPUS
from broker.core.offer import Market, Offer
from broker.core.spec import JobSpec
from broker.core.time import HOUR_S
from broker.paper.history import skus_of
from broker.paper.job import PaperJob, Reports, submitted
from broker.paper.market import PaperMarket
from broker.paper.outcome import Effect, Outcome, Step
from broker.paper.run import Terms, play
from broker.paper.savings import acting, last_offer_of
from broker.policy.schema import Migrate, Mode, Place, Policy

ON_DEMAND: Final = "on_demand"


@dataclass(frozen=True)
class Plan:
    """What a job file does not say and a play needs.

    Attributes:
        spec: The job file.
        work_s: Training that it needs, on `sku`.
        checkpoint_bytes: What each move takes along.
        handles_term: Whether it saves when it is asked to stop.
    """

    spec: JobSpec
    work_s: int
    checkpoint_bytes: int = 0
    handles_term: bool = False

    @property
    def sku(self) -> str:
        """The fastest kind of GPU that the job file names first; work on others takes as much longer as they are slower.

        Raises:
            SpecError: it names none that is known.
        """
        first = self.spec.resources.gpus[0].type
        named = [sku for sku in skus_of(self.spec) if first in (sku, GPUS[sku].family)]
        if not named:
            raise SpecError(f"resources.gpus: no GPU called {first} is known")
        return max(named, key=lambda sku: (GPUS[sku].speed, sku))

    def job(self, at_ms: int, policy: str) -> PaperJob:
        """Submitted then; a step is a second of work."""
        return submitted(
            self.spec,
            self.work_s,
            {self.sku: 1.0},
            at_ms,
            job_id=f"shadow-{self.spec.name}",
            policy=policy,
            reports=Reports.FROM_THE_START,
            handles_term=self.handles_term,
            checkpoint_bytes=self.checkpoint_bytes,
        )


@dataclass(frozen=True)
class Way:
    """One way to run it.

    Attributes:
        name: Of the policy, or what it is.
        policy: In `act`, without a budget.
    """

    name: str
    policy: Policy


@dataclass(frozen=True)
class Standing:
    """What became of it by the end of the market.

    Attributes:
        share_done: Of the work, 0 to 1.
        finished_ms: None while it trains or waits.
        at: Offer key of its place, or of the last one it had.
        steps: Places, moves and losses, in their order.
    """

    name: str
    cost_micro_usd: int
    share_done: float
    finished_ms: int | None
    at: str | None
    placed: bool
    moves: int
    interruptions: int
    work_s: int
    steps: Sequence[Step] = field(default=(), repr=False)

    @property
    def micro_usd_per_work_h(self) -> int | None:
        """What an hour of its work has cost; None before it has trained."""
        done_h = self.share_done * self.work_s / HOUR_S
        return round(self.cost_micro_usd / done_h) if done_h > 0 else None


def ways(policies: Iterable[Policy]) -> Iterator[Way]:
    """Each policy, the same one without moves, and on-demand from end to end where the first one may go."""
    told = [acting(policy) for policy in policies]
    for policy in told:
        yield Way(policy.name, policy)
        if policy.migrate.enabled:
            stays = replace(policy, migrate=replace(policy.migrate, enabled=False))
            yield Way(f"{policy.name}, staying", stays)
    if told:
        base = Policy(
            ON_DEMAND,
            "0" * 64,
            "",
            mode=Mode.ACT,
            candidates=replace(told[0].candidates, where=()),
            place=Place(order=(Market.ON_DEMAND,)),
            migrate=Migrate(enabled=False),
        )
        yield Way(ON_DEMAND, base)


def standing(
    plan: Plan, way: Way, market: PaperMarket, terms: Terms, from_ms: int, until_ms: int
) -> Standing:
    """Of one way, submitted at `from_ms`."""
    outcome = play(plan.job(from_ms, way.policy.name), way.policy, market, terms, until_ms)
    last: Offer | None = last_offer_of(outcome)
    done = plan.work_s if outcome.finished_ms is not None else outcome.job.done_steps
    return Standing(
        name=way.name,
        cost_micro_usd=outcome.cost_micro_usd,
        share_done=done / plan.work_s,
        finished_ms=outcome.finished_ms,
        at=last.key if last else None,
        placed=outcome.job.active is not None,
        moves=outcome.moves,
        interruptions=outcome.interruptions,
        work_s=plan.work_s,
        steps=_told(outcome),
    )


def _told(outcome: Outcome) -> tuple[Step, ...]:
    return tuple(step for step in outcome.steps if step.effect is not Effect.NOTHING)
