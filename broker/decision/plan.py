"""A policy's answer for one job at one moment. Pure: the same arguments give the same decision.

its metrics end it              STOP
a budget is used up             PAUSE  what trains, at a checkpoint; nothing new is rented
no place, landing under way     STAY   with the reason
no place, none under way        PLACE  the first obtainable market that the objective can live with, or
                                STAY   while the objective waits for spot
trains, landing under way       STAY
trains, a deadline is slipping  MOVE   to where the cloud does not interrupt; money has no say
trains, moving pays             MOVE   once every veto is silent and the hold is over
otherwise                       STAY   and says which line did not hold
"""

from dataclasses import dataclass, replace

from broker.core.model import Alternative, Decision, DecisionKind, Reason
from broker.decision.budget import budget_lines, checkpoint_to_pause_at
from broker.decision.choose import Candidate, Field, as_alternative, choose_place, survey
from broker.decision.hold import advance, hold_reason
from broker.decision.limits import move_limits
from broker.decision.moving import Wish, best_wish, may_move, saving
from broker.decision.situation import Here, Situation
from broker.decision.stopping import stop_lines
from broker.decision.strategy_ask import Verdict, ask
from broker.decision.subject import Hold, Subject, World
from broker.decision.words import (
    move_summary,
    nothing_found,
    offer_words,
    pause_summary,
    place_summary,
    stay_summary,
    stop_summary,
)
from broker.policy.schema import Mode, Policy

_OBSERVES = Reason("mode: observe", False, "recorded, not done; `mode: act` does it")


def decide(subject: Subject, policy: Policy, world: World, decision_id: str) -> tuple[Decision, Hold | None]:
    """What should become of the job now, with reasons, and the hold to remember until the next time.

    A MOVE, PAUSE or STOP under ``mode: observe`` comes back with ``acted=False``; places and recoveries are always to be acted on.
    """
    situation = Situation(subject, policy, world)
    ends = stop_lines(situation)
    desk = _Desk(situation, decision_id, told=ends)
    if any(line.holds for line in ends):
        return desk.stop(tuple(line for line in ends if line.holds)), None
    if subject.landing:
        offer = subject.landing[0].offer
        return desk.stay((Reason("no landing under way", False, f"landing on {offer_words(offer)}"),)), None
    money = budget_lines(situation)
    desk = replace(desk, told=(*ends, *money))
    if not all(line.holds for line in money):
        return _no_money(desk, money), None
    field = survey(situation)
    desk = replace(desk, alternatives=field.alternatives(world.now_ms))
    if subject.active is None:
        return _place(desk, field), None
    return _move_or_stay(desk, field)


@dataclass(frozen=True)
class _Desk:
    """Writes decisions of one situation.

    Attributes:
        told: Lines of `stop` and `budget`, told with every answer.
    """

    situation: Situation
    decision_id: str
    alternatives: tuple[Alternative, ...] = ()
    told: tuple[Reason, ...] = ()

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
            reasons = (*reasons, _OBSERVES)
        summary = move_summary(self.situation, here, candidate, share, acts)
        return replace(
            self._blank(DecisionKind.MOVE, summary, reasons),
            acted=acts,
            target=as_alternative(candidate, self.situation.now_ms),
            saving=share,
            holds_since_ms=hold.since_ms if hold else None,
        )

    def pause(self, reasons: tuple[Reason, ...]) -> Decision:
        """The job gives its place up and waits, or that is only recorded."""
        acts = self.situation.policy.mode is Mode.ACT
        told = reasons if acts else (*reasons, _OBSERVES)
        summary = pause_summary(self.situation, reasons, acts)
        return replace(self._blank(DecisionKind.PAUSE, summary, told), acted=acts)

    def stop(self, reasons: tuple[Reason, ...]) -> Decision:
        """The job ends, or that is only recorded."""
        acts = self.situation.policy.mode is Mode.ACT
        told = reasons if acts else (*reasons, _OBSERVES)
        return replace(self._blank(DecisionKind.STOP, stop_summary(reasons, acts), told), acted=acts)

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
            reasons=(*reasons, *(line for line in self.told if line not in reasons), work),
            alternatives=self.alternatives,
            here_micro_usd=here.cost.micro_usd if here else None,
        )


def _no_money(desk: _Desk, lines: tuple[Reason, ...]) -> Decision:
    """Nothing new is rented; what trains, or has trained, waits without a place once a bound is used up."""
    situation, subject = desk.situation, desk.situation.subject
    if all(line.holds is not False for line in lines):  # nobody knows: what trains goes on
        return desk.stay(lines)
    acts = situation.policy.mode is Mode.ACT
    if subject.active is None:
        return desk.pause(lines) if acts and subject.lost is not None else desk.stay(lines)
    if not acts:
        return desk.pause(lines)
    checkpoint = checkpoint_to_pause_at(situation)
    if not checkpoint.holds:
        return desk.stay((checkpoint, *lines))
    return desk.pause((*lines, checkpoint))


def _place(desk: _Desk, field: Field) -> Decision:
    situation = desk.situation
    verdict = ask(situation, field)
    if verdict.waits:
        return desk.stay((_objective(situation, verdict, holds=False),))
    candidate, reasons = choose_place(situation, field, verdict.candidate)
    if candidate is None:
        return desk.stay((Reason("an offer that fits", False, nothing_found(field)),))
    if candidate.degraded:
        degraded = Reason(
            "recovery on a price that is not fresh",
            True,
            f"{candidate.degraded}; a job without a place does not wait for a newer one",
        )
        reasons = (*reasons, degraded)
    if verdict.why:
        reasons = (*reasons, _objective(situation, verdict))
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
    verdict = ask(situation, field)
    slipping = _keep_deadline(desk, here, verdict, gates)
    if slipping is not None:
        return slipping, None
    gates, field = _without_forbidden(situation, verdict, gates, field)
    desk = replace(desk, alternatives=field.alternatives(situation.now_ms))
    wish = best_wish(situation, here, field)
    if wish is None:
        nothing = Reason("another offer that fits", False, nothing_found(field))
        return desk.stay((*gates, nothing)), None
    reasons = (*gates, *wish.reasons)
    if verdict.allows(wish.candidate):
        reasons = (*gates, _objective(situation, verdict), *wish.reasons)
    if not wish.stands:
        return desk.stay(reasons, wish), None
    # Cooldown and limits do not break a hold: the wish stands, it only may not be granted yet.
    hold = advance(situation.subject.hold, here.quote, wish.candidate.quote, situation.now_ms)
    held = hold_reason(hold, situation.policy.migrate.hold_s, situation.now_ms)
    reasons = (*reasons, *move_limits(situation), held)
    if not all(reason.holds for reason in reasons):
        return desk.stay(reasons, wish, hold), hold
    return desk.move(here, wish.candidate, wish.saving.share, reasons, hold), hold


def _without_forbidden(
    situation: Situation, verdict: Verdict, gates: tuple[Reason, ...], field: Field
) -> tuple[tuple[Reason, ...], Field]:
    """Without spot while the objective keeps the job on a steady place; the line that says so, where it matters."""
    if not verdict.forbids_spot:
        return gates, field
    narrowed = field.without_spot(verdict.why)
    if field.candidates and not narrowed.candidates:
        gates = (*gates, _objective(situation, verdict, holds=False))
    return gates, narrowed


def _keep_deadline(desk: _Desk, here: Here, verdict: Verdict, gates: tuple[Reason, ...]) -> Decision | None:
    """The safety net of `cheapest_by_deadline`, or None when it is not needed or not to be had.

    A job that is all but done stays.
    """
    situation, candidate = desk.situation, verdict.candidate
    if candidate is None or not verdict.saves_deadline or here.work_s <= 2 * situation.landing.start_up_s:
        return None
    bounds = move_limits(situation, by_choice=False)
    if not all(reason.holds for reason in bounds):
        return None
    share = saving(situation, here, candidate).share
    return desk.move(here, candidate, share, (*gates, _objective(situation, verdict), *bounds), None)


def _objective(situation: Situation, verdict: Verdict, holds: bool = True) -> Reason:
    return Reason(f"objective: {situation.policy.objective}", holds, verdict.why)
