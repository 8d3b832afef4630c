"""Whether moving pays: the cost to finish here against there, and everything that vetoes a move."""

from dataclasses import dataclass

from broker.core.model import Reason
from broker.core.money import format_usd
from broker.core.offer import Quote
from broker.core.time import HOUR_S, format_duration
from broker.decision.choose import Candidate, Field
from broker.decision.cost import finish_running
from broker.decision.fit import refuse_quote
from broker.decision.risk import life_s
from broker.decision.situation import Here, Situation, evaluate
from broker.decision.words import more_words, offer_words, share_words
from broker.policy.facts import here_facts, offer_facts, saving_facts

# Cost order makes later candidates worse; only `migrate.where` lines can prefer one of them.
TRIED = 20


@dataclass(frozen=True)
class Saving:
    """What a move would bring.

    Attributes:
        share: 1 - there / here; negative when moving is dearer.
        micro_usd: Here less there.
        move_micro_usd: The move itself: the second bill while both run, egress, work done again.
        payback_s: Until that is earned back; None when it never is.
    """

    share: float
    micro_usd: int
    move_micro_usd: int
    payback_s: float | None


@dataclass(frozen=True)
class Wish:
    """The candidate to move to, and the lines that were asked about it.

    Attributes:
        reasons: Lines on prices and money; when all hold the job wants to move.
    """

    candidate: Candidate
    saving: Saving
    reasons: tuple[Reason, ...]

    @property
    def stands(self) -> bool:
        """Whether every line holds."""
        return all(reason.holds for reason in self.reasons)


def may_move(situation: Situation) -> tuple[Reason, ...]:
    """What must be true of the job and its own place before any candidate matters."""
    reasons = []
    if not situation.policy.migrate.enabled:
        reasons.append(Reason("migrate: never", False, f"policy {situation.policy.name} moves no job"))
    job = situation.job
    if situation.spec.checkpoint is None:
        reasons.append(Reason("a committed checkpoint", False, "the job file declares no checkpoint"))
    elif job.commit is None:
        reasons.append(
            Reason("a committed checkpoint", False, "none is committed yet; a move would lose all work")
        )
    else:
        step = "" if job.commit.step is None else f" at step {job.commit.step}"
        reasons.append(Reason("a committed checkpoint", True, f"commit {job.commit.seq}{step}"))
    if situation.work.steps is not None and not situation.work.known:
        # The job counts its steps, so its speed will be known in a moment: no guess is worth a move until then.
        reasons.append(Reason("a measured speed", False, situation.work.detail))
    reasons.append(_fresh_here(situation))
    return tuple(reasons)


def best_wish(situation: Situation, here: Here, field: Field) -> Wish | None:
    """The cheapest candidate that every line allows, or the cheapest with the lines that forbid it."""
    cheapest: Wish | None = None
    for candidate in field.candidates[:TRIED]:
        wish = _wish(situation, here, candidate)
        if wish.stands:
            return wish
        cheapest = cheapest or wish
    return cheapest


def saving(situation: Situation, here: Here, candidate: Candidate) -> Saving:
    """The arithmetic of a move."""
    there, snapshot = candidate.quote, situation.world.snapshot
    work_s = situation.work.seconds_on(there.offer, situation.spec)
    start_up_s, repeat = situation.landing.start_up_s, situation.repeat_s
    difference = here.cost.micro_usd - candidate.cost.micro_usd
    again_s = repeat * work_s / here.work_s if here.work_s > 0 else 0.0
    move = situation.rate(there) * (start_up_s + again_s) / HOUR_S + situation.egress_micro_usd(there.offer)
    settled = finish_running(situation.rate(there), work_s, life_s(there.offer, snapshot), start_up_s, repeat)
    payback_s = None
    if here.work_s > 0 and here.cost.micro_usd > settled.micro_usd:
        payback_s = move * here.work_s / (here.cost.micro_usd - settled.micro_usd)
    share = difference / here.cost.micro_usd if here.cost.micro_usd > 0 else 0.0
    return Saving(share, difference, round(move), payback_s)


def _wish(situation: Situation, here: Here, candidate: Candidate) -> Wish:
    gain = saving(situation, here, candidate)
    return Wish(
        candidate,
        gain,
        (*_money_lines(situation, candidate, gain), *_where(situation, here, candidate, gain)),
    )


def _money_lines(situation: Situation, candidate: Candidate, gain: Saving) -> tuple[Reason, ...]:
    migrate = situation.policy.migrate
    share, amount = _gain_words(candidate, gain)
    if gain.payback_s is None:
        payback = f"the move costs {format_usd(gain.move_micro_usd)} and is never earned back"
    else:
        payback = f"the move costs {format_usd(gain.move_micro_usd)}, earned back in {format_duration(gain.payback_s)}"
    return (
        Reason(f"migrate.min_saving: {migrate.min_saving * 100:g}%", gain.share >= migrate.min_saving, share),
        Reason(
            f"migrate.min_saving_usd: {migrate.min_saving_micro_usd / 1e6:g}",
            gain.micro_usd >= migrate.min_saving_micro_usd and gain.micro_usd > 0,
            amount,
        ),
        Reason(
            f"migrate.max_payback: {format_duration(migrate.max_payback_s)}",
            gain.payback_s is not None and gain.payback_s <= migrate.max_payback_s,
            payback,
        ),
        _fresh_there(situation, candidate.quote),
    )


def _gain_words(candidate: Candidate, gain: Saving) -> tuple[str, str]:
    """What a move would save, as a share and in dollars; what it would cost, if that is more."""
    if gain.micro_usd > 0:
        return f"saving is {share_words(gain.share)}", f"saving is {format_usd(gain.micro_usd)}"
    place = f"the cheapest other place, {offer_words(candidate.quote.offer)}, would cost"
    share, amount = more_words(share_words(-gain.share)), more_words(format_usd(-gain.micro_usd))
    return f"{place} {share}", f"{place} {amount}"


def _where(situation: Situation, here: Here, candidate: Candidate, gain: Saving) -> tuple[Reason, ...]:
    conditions = situation.policy.migrate.where
    if not conditions:
        return ()
    facts = (
        situation.common_facts(here.work_s)
        | offer_facts(candidate.quote, situation.now_ms)
        | here_facts(here.quote.offer, here.quote.price_micro_usd_h)
        | saving_facts(here.cost.micro_usd, candidate.cost.micro_usd, gain.move_micro_usd, gain.payback_s)
    )
    return evaluate(conditions, facts)


def _fresh_here(situation: Situation) -> Reason:
    limit_s = situation.policy.candidates.max_quote_age_s
    line = f"candidates.max_quote_age: {format_duration(limit_s)}, here"
    here = situation.here
    if here is None:
        return Reason(line, False, "nobody quotes a price for the place where it runs")
    why = refuse_quote(
        here.quote, situation.world.snapshot.quarantined.get(here.quote.offer.key), situation.now_ms, limit_s
    )
    return Reason(line, not why, why or _seen(here.quote, situation.now_ms))


def _fresh_there(situation: Situation, quote: Quote) -> Reason:
    """Stale candidates never came this far; the line tells how fresh the price is."""
    limit_s = situation.policy.candidates.max_quote_age_s
    line = f"candidates.max_quote_age: {format_duration(limit_s)}, there"
    return Reason(line, quote.age_s(situation.now_ms) <= limit_s, _seen(quote, situation.now_ms))


def _seen(quote: Quote, now_ms: int) -> str:
    return f"price seen {format_duration(quote.age_s(now_ms))} ago"
