"""Sentences with numbers for people: summaries of decisions."""

from broker.core.model import Alternative, JobState, Reason
from broker.core.money import format_usd
from broker.core.offer import Offer
from broker.core.time import HOUR_S, format_duration
from broker.decision.choose import Candidate, Field
from broker.decision.situation import Here, Situation


def offer_words(offer: Offer) -> str:
    """``gcp/us-central1-a a3-highgpu-1g spot``."""
    return f"{offer.cloud}/{offer.zone} {offer.instance_type} {offer.market}"


def share_words(share: float) -> str:
    """``58.0 %``."""
    return f"{share * 100:.1f} %"


def more_words(amount: str) -> str:
    """``11.7 % more``, ``$34.10 more``; ``the same`` where the difference is too small to be shown."""
    return f"{amount} more" if any(digit in amount for digit in "123456789") else "the same"


def place_summary(situation: Situation, target: Alternative) -> str:
    """Where a job starts, or starts again."""
    verb = "restarts on" if situation.recovery else "starts on"
    nodes = situation.spec.resources.nodes
    gang = f"{nodes} x " if nodes > 1 else ""
    rate = format_usd(target.price_micro_usd_h * nodes)
    sentence = f"{verb} {gang}{offer_words(target.offer)}: {rate}/h"
    if target.cost_micro_usd is None or target.hours is None:
        return sentence
    sentence += (
        f", about {format_duration(target.hours * HOUR_S)} and {format_usd(target.cost_micro_usd)} to finish"
    )
    return sentence if situation.work.known else f"{sentence}, if as much is left as is assumed"


def move_summary(situation: Situation, here: Here, candidate: Candidate, saving: float, done: bool) -> str:
    """Where a job moves, with the numbers that justify it."""
    verb = "moves" if done else "would move"
    there = candidate.quote
    return (
        f"{verb} to {offer_words(there.offer)}: {format_usd(situation.rate(there))}/h "
        f"instead of {format_usd(situation.rate(here.quote))}/h, "
        f"{_saves(saving)} ({format_usd(candidate.cost.micro_usd)} "
        f"instead of {format_usd(here.cost.micro_usd)} to finish, the move included)"
    )


def pause_summary(situation: Situation, reasons: tuple[Reason, ...], done: bool) -> str:
    """Why a job gives its place up."""
    active, why = situation.subject.active, _against(reasons)
    if active is None:
        return f"waits without a place: {why}"
    return f"{'pauses' if done else 'would pause'} on {offer_words(active.offer)}: {why}"


def stop_summary(reasons: tuple[Reason, ...], done: bool) -> str:
    """Why a job ends."""
    line = reasons[0]
    return f"{'stops' if done else 'would stop'} the job: {line.line}: {line.detail}"


def stay_summary(situation: Situation, reasons: tuple[Reason, ...]) -> str:
    """Why nothing happens: the first line that does not hold."""
    why = _against(reasons)
    active = situation.subject.active
    if active is not None:
        return f"stays on {offer_words(active.offer)}: {why}"
    paused = situation.job.state is JobState.PAUSED
    return f"stays {'paused' if paused else 'queued'}: {why}"


def nothing_found(field: Field) -> str:
    """Why no offer will do: how many were refused, and the nearest miss."""
    if not field.refused:
        return "no cloud quotes any price"
    quote, refusal = field.refused[0]
    return f"nearest miss of {len(field.refused)}: {offer_words(quote.offer)} {refusal.why}"


def _against(reasons: tuple[Reason, ...]) -> str:
    """The first line that does not hold, with its values."""
    against = next((reason for reason in reasons if reason.holds is not True), None)
    if against is None:
        return ""
    return f"{against.line}: {against.detail}" if against.detail else against.line


def _saves(saving: float) -> str:
    if saving > 0:
        return f"saves {share_words(saving)}"
    return f"costs {more_words(share_words(-saving))}"
