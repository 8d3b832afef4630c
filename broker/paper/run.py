"""The loop: time goes from one thing that happens to the next, and the policy is asked by the daemon's own code.

    poll           prices are seen; the policy is asked
    hand-over      the landing is ready, and the old copy has stopped: `broker.paper.job`
    shortage       a cloud takes spot capacity back: the job is lost, or a landing comes to nothing; the policy is asked
    finish         the work is done; the run ends

Pure and without chance: the same arguments give the same outcome. What a decision sees is what polls have seen, with its
age; only what becomes of its answer knows stock and true prices. Two things are kinder than the world: an
interruption is noticed at once, and a notice is always long enough for a job that saves when it is asked to.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from broker.core.model import Decision, DecisionKind, JobState, Placement, Purpose
from broker.core.offer import Market, MarketSnapshot, Offer
from broker.core.tariff import BillingRule
from broker.core.time import HOUR_S, MS
from broker.decision.cost import landing_time
from broker.decision.plan import decide
from broker.decision.subject import Caps, Spent, Timing, World
from broker.jobs.budget import tally
from broker.market.lifetimes import spot_lives
from broker.paper.job import PaperJob
from broker.paper.market import PaperMarket
from broker.paper.memo import remembering
from broker.paper.outcome import Effect, Egress, Outcome, Step, bills_of, egress_of, segments_of
from broker.paper.telling import subject_of
from broker.policy.schema import Policy

_HOUR_MS: Final = HOUR_S * MS

# `broker.migration.rules.Rules.empty_pool_s`, in seconds.
EMPTY_POOL_S: Final = 900


def free(_from: Offer, _to: Offer | None) -> int:
    """Traffic that costs nothing."""
    return 0


def by_the_second(_cloud: str, _market: Market) -> BillingRule:
    """A bill without any rule of a cloud's own."""
    return BillingRule(unit_s=1, minimum_s=0)


@dataclass(frozen=True)
class Terms:
    """What holds for a whole run.

    Attributes:
        rule_of: How a cloud bills a market.
        egress: (from, to) -> micro-USD a GiB.
        notice: Whether an interruption is announced, so that a job that saves when asked to loses nothing.
        empty_pool_s: How long a pool that refused is taken for empty.
    """

    timing: Timing = field(default_factory=Timing)
    caps: Caps = field(default_factory=Caps)
    rule_of: Callable[[str, Market], BillingRule] = by_the_second
    egress: Egress = free
    notice: bool = True
    empty_pool_s: int = EMPTY_POOL_S

    def __post_init__(self) -> None:
        assert self.empty_pool_s > 0, (
            "a pool that refused is left alone for a while, or it would be asked for ever"
        )


def play(
    job: PaperJob,
    policy: Policy,
    market: PaperMarket,
    terms: Terms,
    until_ms: int,
    on_step: Callable[[Step], None] = lambda step: None,
) -> Outcome:
    """From ``job.now_ms`` until the job has finished, or until `until_ms`.

    Args:
        on_step: Told of every answer; the outcome keeps only those that were news.
    """
    run = _Run(job, remembering(policy), market, terms, on_step)
    run.go(until_ms)
    ended_ms = run.job.job.finished_at_ms or until_ms
    return Outcome(
        job=run.job,
        began_ms=job.now_ms,
        ended_ms=ended_ms,
        steps=tuple(run.steps),
        asked=run.asked,
        bills=bills_of(run.job, market.points, terms.rule_of, ended_ms),
        egress_micro_usd=egress_of(run.job, terms.egress),
    )


@dataclass
class _Run:
    """What changes while it runs.

    Attributes:
        empty_until_ms: Pools that refused, by offer key.
        spot_launches: When each was tried, and whether it was given.
    """

    job: PaperJob
    policy: Policy
    market: PaperMarket
    terms: Terms
    on_step: Callable[[Step], None]
    steps: list[Step] = field(default_factory=list)
    asked: int = 0
    empty_until_ms: dict[str, int] = field(default_factory=dict)
    spot_launches: list[tuple[int, bool]] = field(default_factory=list)

    def go(self, until_ms: int) -> None:
        """Until the job has finished, or `until_ms`."""
        poll_ms = self.market.next_poll_ms(self.job.now_ms - 1)
        while not self.job.finished:
            times = (poll_ms, self.job.next_ms(), *self._shortages())
            wake_ms = min((at for at in times if at is not None), default=None)
            if wake_ms is None or wake_ms > until_ms:
                self.job = self.job.until(until_ms)
                return
            self.job = self.job.until(wake_ms)
            hit = self._take_back()
            if poll_ms == wake_ms:
                poll_ms = self.market.next_poll_ms(wake_ms)
                hit = True
            if hit and not self.job.finished:
                self._ask()

    def _shortages(self) -> list[int | None]:
        nodes, now_ms = self.job.spec.resources.nodes, self.job.now_ms
        offers = [p.offer for p in (self.job.active, self._landing()) if p is not None]
        return [
            self.market.next_shortage_ms(offer, nodes, now_ms)
            for offer in offers
            if offer.market is Market.SPOT
        ]

    def _landing(self) -> Placement | None:
        return self.job.landing.placement if self.job.landing else None

    def _take_back(self) -> bool:
        """What has no capacity any more is lost; whether anything was."""
        active, landing, lost = self.job.active, self._landing(), False
        if active is not None and self._is_short(active.offer):
            saved = bool(self.job.handles_term) and self.terms.notice
            self.job = self.job.lost(saved, "interrupted: its cloud took the capacity back")
            self._avoid(active.offer)
            lost = True
        if landing is not None and self.job.landing is not None and self._is_short(landing.offer):
            self.job = self.job.landing_failed("interrupted while it was landing", lost=True)
            self._avoid(landing.offer)
            lost = True
        return lost

    def _is_short(self, offer: Offer) -> bool:
        left = self.market.stock(offer, self.job.now_ms)
        spot = offer.market is Market.SPOT
        return spot and left is not None and left < self.job.spec.resources.nodes

    def _avoid(self, offer: Offer) -> None:
        self.empty_until_ms[offer.key] = self.job.now_ms + self.terms.empty_pool_s * MS

    def _ask(self) -> None:
        """The policy's answer, and the next one after each refusal: each takes a pool out, so this comes to an end."""
        while True:
            if self.job.active is None and self.job.landing is not None:
                return  # the daemon does not ask either: there is nothing to choose
            self.asked += 1
            subject = replace(subject_of(self.job), spent=self._spent())
            decision, hold = decide(subject, self.policy, self._world(), f"paper-{self.asked}")
            on = self.job.active.offer.key if self.job.active else None
            self.job = self.job.remembering(hold)
            effect = self._do(decision)
            step = Step(self.job.now_ms, decision, on, effect)
            self.on_step(step)
            if not self.steps or self.steps[-1].answer != step.answer:
                self.steps.append(step)
            if effect is not Effect.REFUSED:
                return

    def _do(self, decision: Decision) -> Effect:
        if decision.kind is DecisionKind.STAY:
            return Effect.NOTHING
        if not decision.acted:
            return Effect.RECORDED
        match decision.kind:
            case DecisionKind.PLACE | DecisionKind.MOVE:
                return self._launch(decision)
            case DecisionKind.PAUSE:
                if self.job.active is not None:
                    self.job = self.job.released(bool(self.job.handles_term), decision.summary)
                return Effect.PAUSED
            case DecisionKind.STOP:
                self.job = self.job.stopped(JobState.CANCELLED, decision.summary)
                return Effect.STOPPED

    def _launch(self, decision: Decision) -> Effect:
        target = decision.target
        assert target is not None, "a place and a move have a target"
        now_ms, spec = self.job.now_ms, self.job.spec
        left = self.market.stock(target.offer, now_ms)
        given = left is None or left >= spec.resources.nodes
        if target.offer.market is Market.SPOT:
            self.spot_launches.append((now_ms, given))
        takes = landing_time(self.terms.timing, subject_of(self.job).job)
        self.job = self.job.launched(
            target.offer,
            target.price_micro_usd_h,
            ready_ms=now_ms + round(takes.overlap_s * MS),
            gap_ms=round(takes.gap_s * MS),
            decision_id=decision.id,
        )
        if given:
            return Effect.LAUNCHED
        self.job = self.job.landing_failed(f"out of capacity: {left} of {spec.resources.nodes} nodes left")
        self._avoid(target.offer)
        return Effect.REFUSED

    def _spent(self) -> Spent | None:
        """What a budget is held against: on paper the policy has this one job."""
        if self.policy.budget is None:
            return None
        job, now_ms = self.job.job, self.job.now_ms
        bills = bills_of(self.job, self.market.points, self.terms.rule_of, now_ms)
        mine = {p.id: replace(p, created_by=f"policy:{self.policy.name}") for p in self.job.placements}
        paid = tally(bills, mine, {job.id: job}, now_ms)
        return Spent(paid.run.get(job.id, 0), paid.epoch.get(job.id, 0), paid.month.get(self.policy.name, 0))

    def _world(self) -> World:
        now_ms = self.job.now_ms
        nodes = self.job.spec.resources.nodes
        held = [p for p in (self.job.active, self._landing()) if p is not None]
        burn_micro_usd_h = sum(p.price_micro_usd_h * nodes for p in held)
        snapshot = MarketSnapshot(
            now_ms,
            self.market.quotes(now_ms),
            empty_until_ms={key: at for key, at in self.empty_until_ms.items() if at > now_ms},
            spot_launch_failures_1h=self._spot_failures(),
            spot_life_s={**self._lives(), **self.market.spot_life_s(now_ms)},
        )
        return World(
            now_ms,
            snapshot,
            self.terms.egress,
            caps=self.terms.caps,
            timing=self.terms.timing,
            burn_micro_usd_h=burn_micro_usd_h,
            policy_burn_micro_usd_h=burn_micro_usd_h,
            open_nodes=nodes * len(held),
            migrations_running=sum(p.purpose is Purpose.MOVE for p in held[1:]),
        )

    def _spot_failures(self) -> float:
        told = self.market.spot_failure_share(self.job.now_ms)
        if told is not None:
            return told
        recent = [given for at, given in self.spot_launches if at > self.job.now_ms - _HOUR_MS]
        return recent.count(False) / len(recent) if recent else 0.0

    def _lives(self) -> dict[str, float]:
        return dict(spot_lives(segments_of(self.job), self.job.now_ms))
