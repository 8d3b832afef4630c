"""What a policy may spend: bounds on money that was paid already, line by line. Pure.

    below 80 % of every bound    nothing changes
    80 % of `month_usd`          with ``at_80_percent: spot_only`` nothing else than spot and owned nodes is rented
    all of any bound             nothing new is rented, in either mode; what trains is paused by a policy that acts
    what was spent not known     nothing new is rented; what trains goes on

A budget goes before a deadline: the way back to on-demand costs money too.
"""

from typing import Final

from broker.core.model import Reason
from broker.core.money import format_usd, usd
from broker.core.offer import Market, Offer
from broker.core.time import format_duration, to_iso
from broker.decision.situation import Situation
from broker.decision.subject import Spent

_NEARLY: Final = 0.80
_CHEAP: Final = (Market.OWNED, Market.SPOT)

# So much of the interval between two commits may be lost by a pause, and a minute in any case: a pass has to see a fresh one,
# however short the interval is.
_FRESH: Final = 0.5
_FRESH_S: Final = 60
# A job that has missed one and a half intervals will not commit by being waited for.
_OVERDUE: Final = 1.5


def budget_lines(situation: Situation) -> tuple[Reason, ...]:
    """One line for each bound of the policy: whether there is money left, or None where nobody knows."""
    budget, spent = situation.policy.budget, situation.subject.spent
    if budget is None:
        return ()
    paid = spent or Spent()
    month = to_iso(situation.now_ms)[:7]
    bounds = (
        ("run_usd", budget.run_micro_usd, paid.run_micro_usd, "by this job"),
        ("epoch_usd", budget.epoch_micro_usd, paid.epoch_micro_usd, _epoch_words(situation)),
        ("month_usd", budget.month_micro_usd, paid.month_micro_usd, f"in {month} under this policy"),
    )
    lines = []
    for name, bound, amount, whose in bounds:
        if bound is not None:
            holds = None if spent is None else amount < bound
            told = "what was spent is not known" if spent is None else f"{format_usd(amount)} spent {whose}"
            lines.append(Reason(f"budget.{name}: {usd(bound):f}", holds, told))
    if nearly := _nearly_all(situation):
        lines.append(Reason("budget.at_80_percent: spot_only", True, nearly))
    return tuple(lines)


def refuse_market(situation: Situation, offer: Offer) -> str:
    """Why an offer of that market is too dear for what is left of the month, or empty."""
    nearly = _nearly_all(situation)
    if not nearly or offer.market in _CHEAP:
        return ""
    return f"budget.at_80_percent: spot_only; {nearly}"


def checkpoint_to_pause_at(situation: Situation) -> Reason:
    """Whether a job that trains can be paused now without work being lost.

    One that saves when it is asked to can be at any time. Of another one, what it did since its last commit is lost,
    so the time after a commit is waited for; not for ever, since money is spent meanwhile.
    """
    line = "a checkpoint to pause at"
    job, declared = situation.job, situation.spec.checkpoint
    if declared is None:
        return Reason(line, True, "the job file declares none: it starts anew")
    if situation.subject.handles_term:
        return Reason(line, True, "the job saves when it is asked to stop")
    active = situation.subject.active
    assert active is not None, "what does not train is not paused"
    if job.commit is not None:
        age_s = (situation.now_ms - job.commit.at_ms) / 1000
        waits = max(_FRESH_S, _FRESH * declared.every_s) < age_s < _OVERDUE * declared.every_s
        told = f"the last one is {format_duration(age_s)} old"
    else:
        age_s = (situation.now_ms - (active.active_at_ms or active.state_since_ms)) / 1000
        waits = age_s < _OVERDUE * declared.every_s
        told = f"none in {format_duration(age_s)}"
    return Reason(line, not waits, f"{told}; the next is waited for" if waits else told)


def _nearly_all(situation: Situation) -> str:
    """How much of the month is spent, where spot alone is left by that; else empty."""
    budget, spent = situation.policy.budget, situation.subject.spent
    if budget is None or not budget.spot_only_at_80_percent or not budget.month_micro_usd or spent is None:
        return ""
    share = spent.month_micro_usd / budget.month_micro_usd
    return f"{share * 100:.1f} % of the month's budget is spent" if share >= _NEARLY else ""


def _epoch_words(situation: Situation) -> str:
    progress = situation.job.progress
    if progress is None or progress.epoch is None:
        return "by this job, which has reported no epoch"
    return f"since epoch {int(progress.epoch)} began"
