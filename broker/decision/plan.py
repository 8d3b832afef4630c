"""A policy's answer for one job at one moment. Pure: the same arguments give the same decision.

no place, landing under way     STAY   with the reason
no place, none under way        PLACE  the first obtainable market that the objective can live with
trains, landing under way       STAY
trains, a deadline is slipping  MOVE   to where the cloud does not interrupt; money has no say
trains, moving pays             MOVE   once every veto is silent and the hold is over
otherwise                       STAY   and says which line did not hold
"""

from dataclasses import dataclass, replace

from broker.core.model import Alternative, Decision, DecisionKind, Reason
from broker.core.time import format_duration
from broker.decision.choose import Candidate, Field, as_alternative, choose_place, survey
from broker.decision.hold import advance, hold_reason
from broker.decision.limits import move_limits
from broker.decision.moving import Wish, best_wish, may_move, rescue, saving
from broker.decision.situation import Here, Situation
from broker.decision.subject import Hold, Subject, World
from broker.decision.words import move_summary, nothing_found, offer_words, place_summary, stay_summary
from broker.policy.schema import Mode, Policy


def decide(subject: Subject, policy: Policy, world: World, decision_id: str) -> tuple[Decision, Hold | None]:
    """What should become of the job now, with reasons, and the hold to remember until the next time.

    A MOVE under ``mode: observe`` comes back with ``acted=False``; places and recoveries are always to be acted on.
    """
    situation = Situation(subject, policy, world)
    desk = _Desk(situation, decision_id)
    if subject.landing:
        offer = subject.landing[0].offer
        return desk.stay((Reason("no landing under way", False, f"landing on {offer_words(offer)}"),)), None
    field = survey(situation)
    desk = replace(desk, alternatives=field.alternatives(world.now_ms))
    if subject.active is None:
        return _place(desk, field), None
    return _move_or_stay(desk, field)


@dataclass(frozen=True)
class _Desk:
    """Writes decisions of one situation."""

    situation: Situation
    decision_id: str
    alternatives: tuple[Alternative, ...] = ()

    def stay(
        self, reasons: tuple[Reason, ...], wish: Wish | None = None, hold: Hold | None = None
    ) -> Decision:
        """Nothing happens, and why."""
        return replace(
            self._blank(DecisionKind.STAY, stay_summary(self.situation, reasons), reasons),
            saving=wish.saving.share if wish else None,
            holds_since_ms=hold.since_ms if hold else None,
        )

    def place(self, candidate: Candidate, reasons: tuple[Reason, ...]) -> Decision:
        """A start, or a new start after a loss."""
        target = as_alternative(candidate, self.situation.now_ms)
        summary = place_summary(self.situation, target)
        if candidate.degraded:
            summary += "; on a price that is not fresh"
        return replace(
            self._blank(DecisionKind.PLACE, summary, reasons),
            acted=True,
            target=target,
            degraded_quotes=bool(candidate.degraded),
        )

    def move(
        self, here: Here, candidate: Candidate, share: float, reasons: tuple[Reason, ...], hold: Hold | None
    ) -> Decision:
        """A move, done or only recorded."""
        acts = self.situation.policy.mode is Mode.ACT
        if not acts:
            reasons = (*reasons, Reason("mode: observe", False, "recorded, not done; `mode: act` does it"))
        summary = move_summary(self.situation, here, candidate, share, acts)
        return replace(
            self._blank(DecisionKind.MOVE, summary, reasons),
            acted=acts,
            target=as_alternative(candidate, self.situation.now_ms),
            saving=share,
            holds_since_ms=hold.since_ms if hold else None,
        )

    def _blank(self, kind: DecisionKind, summary: str, reasons: tuple[Reason, ...]) -> Decision:
        assert reasons or kind is not DecisionKind.STAY, "staying always has a reason"
        job, policy, here = self.situation.job, self.situation.policy, self.situation.here
        work = Reason("work left", True if self.situation.work.known else None, self.situation.work.detail)
        return Decision(
            id=self.decision_id,
            job_id=job.id,
            project_id=job.project_id,
            policy=policy.name,
            policy_sha256=policy.sha256,
            at_ms=self.situation.now_ms,
            kind=kind,
            acted=False,
            summary=summary,
            reasons=(*reasons, work),
            alternatives=self.alternatives,
            here_micro_usd=here.cost.micro_usd if here else None,
        )


def _place(desk: _Desk, field: Field) -> Decision:
    situation = desk.situation
    candidate, reasons = choose_place(situation, field)
    if candidate is None:
        return desk.stay((Reason("an offer that fits", False, nothing_found(field)),))
    if candidate.degraded:
        degraded = Reason(
            "recovery on a price that is not fresh",
            True,
            f"{candidate.degraded}; a job without a place does not wait for a newer one",
        )
        reasons = (*reasons, degraded)
    lost = situation.subject.lost
    if lost is not None and candidate.quote.offer.pool == lost.offer.pool:
        reasons = (*reasons, Reason("another pool than the lost one", False, "no other would do"))
    return desk.place(candidate, reasons)


def _move_or_stay(desk: _Desk, field: Field) -> tuple[Decision, Hold | None]:
    situation = desk.situation
    gates = may_move(situation)
    here = situation.here
    if here is None or not all(reason.holds for reason in gates):
        # An answer that is no move breaks the hold.
        return desk.stay(gates), None
    slipping = _keep_deadline(desk, here, field, gates)
    if slipping is not None:
        return slipping, None
    wish = best_wish(situation, here, field)
    if wish is None:
        return desk.stay((*gates, Reason("another offer that fits", False, nothing_found(field)))), None
    reasons = (*gates, *wish.reasons)
    if not wish.stands:
        return desk.stay(reasons, wish), None
    # Cooldown and limits do not break a hold: the wish stands, it only may not be granted yet.
    hold = advance(situation.subject.hold, here.quote, wish.candidate.quote, situation.now_ms)
    held = hold_reason(hold, situation.policy.migrate.hold_s, situation.now_ms)
    reasons = (*reasons, *move_limits(situation), held)
    if not all(reason.holds for reason in reasons):
        return desk.stay(reasons, wish, hold), hold
    return desk.move(here, wish.candidate, wish.saving.share, reasons, hold), hold


def _keep_deadline(desk: _Desk, here: Here, field: Field, gates: tuple[Reason, ...]) -> Decision | None:
    """The safety net of `cheapest_by_deadline`, or None when it is not needed or not to be had."""
    situation = desk.situation
    candidate = rescue(situation, here, field)
    bounds = move_limits(situation, by_choice=False)
    if candidate is None or not all(reason.holds for reason in bounds):
        return None
    line = Reason(
        "objective: cheapest_by_deadline",
        True,
        f"{format_duration(here.work_s)} of work and {format_duration(situation.left_s or 0)} to the deadline: "
        "another interruption of spot would miss it",
    )
    share = saving(situation, here, candidate).share
    return desk.move(here, candidate, share, (*gates, line, *bounds), None)
