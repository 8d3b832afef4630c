"""One job at one moment, with what every part of a decision needs worked out once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from broker.core.model import Job, Reason
from broker.core.offer import Offer, Quote
from broker.core.spec import JobSpec
from broker.decision.cost import (
    GIB,
    Cost,
    LandingTime,
    Work,
    finish_from_start,
    finish_running,
    landing_time,
    remaining_work,
    repeat_s,
)
from broker.decision.risk import life_s
from broker.decision.subject import Subject, World
from broker.policy.explain import judge
from broker.policy.facts import job_facts, market_facts
from broker.policy.schema import Condition, Fact, Objective, Policy


@dataclass(frozen=True)
class Here:
    """Where the job trains now, and what staying costs.

    Attributes:
        quote: The current price there, even if it rose since the job landed.
        work_s: Training seconds left there.
        cost: To finish there.
    """

    quote: Quote
    work_s: float
    cost: Cost


@dataclass(frozen=True)
class Situation:
    """Subject, policy and world of one decision."""

    subject: Subject
    policy: Policy
    world: World

    @property
    def job(self) -> Job:
        """The job."""
        return self.subject.job

    @property
    def spec(self) -> JobSpec:
        """Its file."""
        return self.subject.job.spec

    @property
    def now_ms(self) -> int:
        """The moment."""
        return self.world.now_ms

    @property
    def recovery(self) -> bool:
        """Whether the job lost its place: then a price past its age may do."""
        return self.subject.active is None and self.subject.lost is not None

    @property
    def left_s(self) -> float | None:
        """Seconds until the deadline, when the objective heeds one."""
        if self.policy.objective is not Objective.CHEAPEST_BY_DEADLINE or self.spec.deadline_ms is None:
            return None
        return (self.spec.deadline_ms - self.now_ms) / 1000

    @cached_property
    def work(self) -> Work:
        """What is left to train."""
        return remaining_work(self.subject, self.now_ms)

    @cached_property
    def landing(self) -> LandingTime:
        """How long a landing takes."""
        return landing_time(self.world.timing, self.job)

    @cached_property
    def repeat_s(self) -> float:
        """Training lost at each stop."""
        return repeat_s(self.subject)

    @cached_property
    def here(self) -> Here | None:
        """Where it trains now; None when it does not, or when nobody quotes a price there."""
        if self.subject.active is None:
            return None
        offer = self.subject.active.offer
        quote = self.world.snapshot.held(offer)
        if quote is None:
            return None
        work_s = self.work.seconds_on(offer, self.spec)
        cost = finish_running(
            self.rate(quote),
            work_s,
            life_s(offer, self.world.snapshot),
            self.landing.start_up_s,
            self.repeat_s,
        )
        return Here(quote, work_s, cost)

    @cached_property
    def skip_spot(self) -> tuple[Reason, ...]:
        """The lines of ``place.skip_spot_when`` with their truth; one that holds takes spot out."""
        return evaluate(self.policy.place.skip_spot_when, self.common_facts(self.work.seconds))

    def rate(self, quote: Quote) -> int:
        """Micro-USD an hour of the whole gang."""
        return quote.price_micro_usd_h * self.spec.resources.nodes

    def common_facts(self, remaining_s: float) -> dict[str, Fact]:
        """Facts of the job and of the market; the time left only where the job has told it."""
        known = remaining_s if self.work.known else None
        return job_facts(self.job, known) | market_facts(self.world.snapshot)

    def cost_on(self, quote: Quote) -> Cost:
        """Cost to finish on that offer: from a start, or by moving there while the old place trains on."""
        offer = quote.offer
        work_s = self.work.seconds_on(offer, self.spec)
        until_handover_micro_usd = 0
        if self.here is not None and self.here.work_s > 0:
            trained_s = min(self.landing.overlap_s, self.here.work_s)
            until_handover_micro_usd = round(self.rate(self.here.quote) * trained_s / 3600)
            lost_share = (self.repeat_s - trained_s) / self.here.work_s
            work_s *= 1 + lost_share
        start = finish_from_start(
            self.rate(quote),
            work_s,
            life_s(offer, self.world.snapshot),
            self.landing.start_up_s,
            self.repeat_s,
            self.egress_micro_usd(offer),
        )
        return Cost(start.micro_usd + until_handover_micro_usd, start.seconds)

    def egress_micro_usd(self, to_offer: Offer) -> int:
        """Checkpoint and data leaving the place that the job has, or had, for another; 0 before its first start."""
        origin = self.subject.active or self.subject.lost
        if origin is None:
            return 0
        size = (self.job.commit.bytes if self.job.commit else 0) + sum(d.size_bytes for d in self.spec.data)
        return round(self.world.egress_micro_usd_per_gib(origin.offer, to_offer) * size / GIB)


def evaluate(conditions: Iterable[Condition], facts: Mapping[str, Fact]) -> tuple[Reason, ...]:
    """Each line with its own truth value."""
    return tuple(judge(condition, facts) for condition in conditions)
