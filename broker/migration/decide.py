"""The shell around decisions: ask each job's policy, keep the answer, and turn it into intents.

An answer is computed from a read, and written only if the rows it was computed from are still the same: two writers
never act on one picture twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from broker.core.errors import BrokerError
from broker.core.ids import node_token
from broker.core.model import (
    Decision,
    Event,
    Job,
    JobState,
    Node,
    Placement,
    PlacementState,
    Purpose,
)
from broker.core.offer import MarketSnapshot, Offer
from broker.core.ports import Clock, Ids
from broker.core.spec import JobSpec
from broker.core.time import to_iso
from broker.decision.plan import decide
from broker.decision.subject import Caps, Hold, Spent, Subject, Timing, World
from broker.jobs.budget import Tally
from broker.jobs.order import queue_order
from broker.migration.answers import nobody_decides, signature, with_note, write
from broker.migration.ending import give_up
from broker.migration.load import Load
from broker.migration.probing import refused_in_a_row
from broker.migration.rules import Rules
from broker.migration.view import beat_of
from broker.policy.load import PolicySet
from broker.policy.schema import Policy
from broker.policy.select import Choice, in_one_line
from broker.store.access import REPORT_ONLY
from broker.store.state import StateStore, Tx

log = structlog.get_logger(__name__)

_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_LONGEST_WAIT_S = 4 * 3600


@dataclass(frozen=True)
class Picture:
    """Everything one job's decision is made from, read in one transaction.

    Attributes:
        waits: Why nothing may be rented for it now, or None.
    """

    subject: Subject
    world: World
    waits: str | None = None


@dataclass
class Decider:
    """Asks policies. One pass is constant work: every open job, in queue order.

    Attributes:
        paid: What budgets are held against; None where nobody counts it.
    """

    store: StateStore
    policies: PolicySet
    clock: Clock
    ids: Ids
    rules: Rules
    caps: Caps
    timing: Timing
    snapshot: Callable[[], MarketSnapshot]
    egress: Callable[[Offer, Offer | None], int]
    paid: Callable[[Tx, int], Tally] | None = None
    _answered: dict[tuple[str, str], object] = field(default_factory=dict)

    def one_pass(self) -> int:
        """Decide for every job that needs an answer. Returns how many answers were carried out."""
        snapshot = self.snapshot()
        with self.store.read() as tx:
            stopped, latched = _stopped(tx), tx.switch(REPORT_ONLY)
            load = Load.of(tx)
        done = 0
        for job in queue_order(load.jobs):
            if job.state == JobState.CANCELLING:
                continue
            if self._one_job(job.id, snapshot, load, stopped, latched):
                done += 1
                # Only an intent adds to what runs, and nobody else writes one: between two of them nothing can
                # make a cap look kept that is not.
                with self.store.read() as tx:
                    load = Load.of(tx)
        return done

    def preview(self, spec: JobSpec, project_id: str) -> Decision:
        """What the policy would answer for a job that does not exist; nothing is kept.

        Raises:
            PolicyError: no policy speaks for it, or two do.
        """
        policy = self.policies.select(spec, project_id)
        now_ms = self.clock.now_ms()
        job = Job("preview", spec, project_id, "preview", now_ms, state_since_ms=now_ms, policy=policy.name)
        with self.store.read() as tx:
            load = Load.of(tx)
            spent = self._spent(tx, job, policy)
        world = self._world(load, policy, self.snapshot())
        return decide(Subject(job, spent=spent), policy, world, "preview")[0]

    def _one_job(
        self, job_id: str, snapshot: MarketSnapshot, load: Load, stopped: str | None, latched: bool
    ) -> int:
        with self.store.read() as tx:
            job = tx.job(job_id)
            if job is None or job.state.final or job.state == JobState.CANCELLING:
                return 0
            choice: Choice | None
            try:
                choice = self.policies.choose(job.spec, job.project_id, job.policy, _trained_on(tx, job))
            except BrokerError as error:
                choice, refused = None, in_one_line(error)
            picture = (
                self._picture(tx, job, choice.policy, self._world(load, choice.policy, snapshot))
                if choice
                else None
            )
        if choice is None:
            self._nobody_decides(job, refused)
            return 0
        if picture is None:
            return 0
        policy = choice.policy
        stopped = stopped or picture.waits or self._too_many_recoveries(picture.subject)
        decision, hold = decide(picture.subject, policy, picture.world, f"d-{self.ids.base32(16)}")
        if choice.instead is not None:
            decision = with_note(decision, choice.instead)
        acts = decision.acted
        if decision.target is None:
            # What gives a place up costs nothing: only rows that may be old forbid it.
            stopped = "report only, these rows may be old" if latched else None
        if acts and stopped:
            decision, acts = (
                replace(decision, acted=False, summary=f"{decision.summary} (not done: {stopped})"),
                False,
            )
        if picture.subject.active is not None:
            self._observe(picture.subject, policy, load, snapshot)
        return self._keep(picture.subject, choice, decision, hold, acts)

    def _observe(self, subject: Subject, chosen: Policy, load: Load, snapshot: MarketSnapshot) -> None:
        """Let observing policies that match say what they would have done with a job that trains; nothing is done."""
        job = subject.job
        for policy in self.policies.beside(chosen, job.spec, job.project_id):
            with self.store.read() as tx:
                wish, spent = tx.hold(job.id, policy.name), self._spent(tx, job, policy)
            world = self._world(load, policy, snapshot)
            beside = replace(subject, hold=Hold(*wish) if wish else None, spent=spent)
            decision, hold = decide(beside, policy, world, f"d-{self.ids.base32(16)}")
            assert not decision.acted, f"{policy.name} observes"
            self._keep(beside, Choice(policy), decision, hold, acts=False, observed=True)

    def _too_many_recoveries(self, subject: Subject) -> str | None:
        """Recoveries are capped: when everything falls at once, a person should look before money is spent."""
        if subject.lost is None:
            return None
        since_ms = self.clock.now_ms() - _HOUR_MS
        with self.store.read() as tx:
            recent = [
                p
                for p in tx.placements(open_only=False)
                if p.purpose == Purpose.RECOVER and p.created_at_ms > since_ms
            ]
        if len(recent) < self.rules.recoveries_per_hour:
            return None
        return f"{len(recent)} recoveries in the last hour; the cap is {self.rules.recoveries_per_hour}"

    def _picture(self, tx: Tx, job: Job, policy: Policy, world: World) -> Picture | None:
        """None while a landing is under way for a job that does not train: there is nothing to ask."""
        placements = tx.placements(job_id=job.id, open_only=False)
        active = next((p for p in placements if p.state == PlacementState.ACTIVE), None)
        landing = tuple(p for p in placements if p.state.landing or p.state == PlacementState.READY)
        if active is None and landing:
            return None
        last = max(placements, key=lambda p: p.attempt, default=None)
        trained = [p for p in placements if p.active_at_ms is not None]
        # A job that was paused has lost nothing: its next place is a start, and no recovery is counted.
        idle = active is None and job.state != JobState.PAUSED
        lost = max(trained, key=lambda p: p.attempt, default=None) if idle else None
        moves = [
            p.active_at_ms for p in placements if p.purpose == Purpose.MOVE and p.active_at_ms is not None
        ]
        now_ms = self.clock.now_ms()
        subject = Subject(
            job=job,
            active=active,
            landing=landing,
            lost=lost,
            moved_at_ms=max(moves, default=None),
            moves_24h=sum(1 for at in moves if at > now_ms - _DAY_MS),
            hold=Hold(*wish) if (wish := tx.hold(job.id, policy.name)) else None,
            measured_steps_per_s={p.offer.gpu: p.steps_per_s for p in trained if p.steps_per_s},
            trained_s=_trained_s(placements, now_ms),
            handles_term=_handles_term(tx, active) if active else None,
            spent=self._spent(tx, job, policy),
        )
        assert last is None or last.attempt == len(placements), "attempts count every placement of the job"
        return Picture(subject, world, self._waits(placements, now_ms))

    def _waits(self, placements: Sequence[Placement], now_ms: int) -> str | None:
        """Why the next try has to wait: nodes that the probe refuses one after the other are paid for, too."""
        row = refused_in_a_row(placements)
        beyond = len(row) - self.rules.probe_refusals
        if beyond < 0:
            return None
        wait_s = min(self.rules.empty_pool_s * 2**beyond, _LONGEST_WAIT_S)
        until_ms = row[-1].state_since_ms + round(wait_s * 1000)
        if now_ms >= until_ms:
            return None
        return f"{len(row)} nodes in a row: {row[-1].reason}; next try at {to_iso(until_ms)}"

    def _spent(self, tx: Tx, job: Job, policy: Policy) -> Spent | None:
        """None where nobody knows: a budget then stops whatever would cost more."""
        if policy.budget is None or self.paid is None:
            return None
        try:
            paid = self.paid(tx, self.clock.now_ms())
        except BrokerError as error:
            log.warning("budget.unknown", policy=policy.name, error=str(error))
            return None
        return Spent(paid.run.get(job.id, 0), paid.epoch.get(job.id, 0), paid.month.get(policy.name, 0))

    def _world(self, load: Load, policy: Policy, snapshot: MarketSnapshot) -> World:
        now_ms = self.clock.now_ms()
        return load.world(
            policy.name, now_ms, snapshot, caps=self.caps, timing=self.timing, egress=self.egress
        )

    def _keep(
        self,
        subject: Subject,
        choice: Choice,
        decision: Decision,
        hold: Hold | None,
        acts: bool,
        observed: bool = False,
    ) -> int:
        """Write the answer if it is news, and the intent if it is one; all in one transaction."""
        job, policy = subject.job, choice.policy
        answer, asked = signature(decision), (job.id, policy.name)
        news = acts or self._answered.get(asked) != answer
        told = observed or job.reason == decision.summary or subject.active is not None
        if not news and hold == subject.hold and told:
            return 0
        with self.store.write() as tx:
            fresh = tx.job(job.id)
            if fresh is None or (fresh.state, fresh.active_placement_id) != (
                job.state,
                job.active_placement_id,
            ):
                return 0  # it moved on while we thought; the next pass asks again
            if acts and decision.target is None:
                if not give_up(tx, fresh, decision, self.rules):
                    return 0
                fresh = tx.job(job.id) or fresh
            if hold != subject.hold:
                tx.save_hold(job.id, policy.name, hold)
            if news:
                write(tx, job, decision)
            if not observed:
                reason = fresh.reason if subject.active else decision.summary  # what trains keeps its own
                decided_by = fresh.policy if choice.only_rescues else policy.name
                tx.save(replace(fresh, policy=decided_by, reason=reason))
            if acts and decision.target is not None:
                self._intend(tx, subject, decision)
        self._answered[asked] = answer
        return int(acts)

    def _intend(self, tx: Tx, subject: Subject, decision: Decision) -> None:
        """The intent of a landing: placement and node rows with their tokens, before anything is asked of a cloud."""
        assert decision.target is not None
        job, offer = subject.job, decision.target.offer
        attempt = len(tx.placements(job_id=job.id, open_only=False)) + 1
        replaces = subject.active or subject.lost
        purpose = Purpose.MOVE if subject.active else Purpose.RECOVER if subject.lost else Purpose.PLACE
        placement = Placement(
            id=f"{job.id}-p{attempt}",
            job_id=job.id,
            attempt=attempt,
            offer=offer,
            price_micro_usd_h=decision.target.price_micro_usd_h,
            purpose=purpose,
            project_id=job.project_id,
            created_by=f"policy:{decision.policy}",
            created_at_ms=decision.at_ms,
            decision_id=decision.id,
            state_since_ms=decision.at_ms,
            deadline_ms=self.rules.deadline_ms(PlacementState.INTENDED, decision.at_ms),
            reason=decision.summary,
            replaces=replaces.id if replaces else None,
        )
        seq = tx.emit(
            Event(
                "placement.intended",
                decision.at_ms,
                project_id=job.project_id,
                job_id=job.id,
                placement_id=placement.id,
                data={
                    "offer": offer.key,
                    "purpose": str(purpose),
                    "decision": decision.id,
                    "reason": decision.summary,
                },
            )
        )
        tx.save(placement)
        stem = self.ids.base32(26)
        for rank in range(job.spec.resources.nodes):
            tx.save(self._node(placement, rank, node_token(stem, rank), seq))

    @staticmethod
    def _node(placement: Placement, rank: int, token: str, event_seq: int) -> Node:
        return Node(
            token=token,
            placement_id=placement.id,
            job_id=placement.job_id,
            rank=rank,
            cloud=placement.offer.cloud,
            region=placement.offer.region,
            zone=placement.offer.zone,
            project_id=placement.project_id,
            created_by=placement.created_by,
            created_at_ms=placement.created_at_ms,
            event_seq=event_seq,
            state_since_ms=placement.created_at_ms,
            reason="intended",
        )

    def _nobody_decides(self, job: Job, refused: str) -> None:
        """No policy speaks for a job and none has before: that is an answer too, to be found where answers are."""
        if job.reason == refused:
            return
        decision = nobody_decides(job, refused, f"d-{self.ids.base32(16)}", self.clock.now_ms())
        with self.store.write() as tx:
            fresh = tx.job(job.id)
            if fresh is not None and not fresh.state.final and fresh.state != JobState.CANCELLING:
                write(tx, job, decision)
                tx.save(replace(fresh, reason=refused))


def _stopped(tx: Tx) -> str | None:
    """Why nothing that costs money may start now, or None."""
    on = next((switch for switch in tx.switches() if switch.value), None)
    if on is None:
        return None
    return f"{on.name.replace('_', ' ')} by {on.set_by}" + (f": {on.reason}" if on.reason else "")


def _trained_on(tx: Tx, job: Job) -> Offer | None:
    """Where a job that has lost its place trained last; None for one that has a place, or never had one."""
    placements = tx.placements(job_id=job.id, open_only=False)
    if any(p.state == PlacementState.ACTIVE for p in placements):
        return None
    trained = [p for p in placements if p.active_at_ms is not None]
    return max(trained, key=lambda p: p.attempt).offer if trained else None


def _trained_s(placements: Sequence[Placement], now_ms: int) -> float:
    """Seconds that the job has trained, over all its placements."""
    spans = [
        (p.stopped_at_ms or p.gone_at_ms or now_ms) - p.training_at_ms
        for p in placements
        if p.training_at_ms is not None
    ]
    return sum(spans) / 1000


def _handles_term(tx: Tx, active: Placement) -> bool | None:
    """Whether every copy would save when asked to stop; None while that is not known."""
    told = [b.job.handles_term if (b := beat_of(n)) else None for n in tx.nodes(placement_id=active.id)]
    return None if None in told else all(told)
