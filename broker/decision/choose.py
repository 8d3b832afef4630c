"""Filters narrow, the objective chooses: from all quotes to candidates with a cost, and from these to one."""

from collections.abc import Iterable
from dataclasses import dataclass

from broker.core.model import Alternative, Reason
from broker.core.offer import Market, Quote
from broker.core.time import DAY_S, format_duration
from broker.decision.cost import Cost
from broker.decision.fit import Refusal, Stage, gpu_request, refuse_gpu, refuse_offer, refuse_quote
from broker.decision.limits import refuse_rate
from broker.decision.risk import is_hopeless, life_s, spot_fits
from broker.decision.situation import Situation, evaluate
from broker.policy.facts import offer_facts

RECOVERY_QUOTE_AGE_S = DAY_S
BEST_SHOWN = 5
SHOWN = 20


@dataclass(frozen=True)
class Candidate:
    """An offer that passed every filter.

    Attributes:
        quote: Its price.
        cost: To finish there.
        late: Why the deadline speaks against it, or empty.
        degraded: Why its price would not do for a voluntary move, or empty. Recoveries only.
    """

    quote: Quote
    cost: Cost
    late: str = ""
    degraded: str = ""

    @property
    def order(self) -> tuple[int, str]:
        """Cheapest first; the key makes ties the same every time."""
        return self.cost.micro_usd, self.quote.offer.key


@dataclass(frozen=True)
class Field:
    """Everything that was weighed.

    Attributes:
        candidates: Cheapest to finish first.
        refused: With why; nearest miss first.
    """

    candidates: tuple[Candidate, ...]
    refused: tuple[tuple[Quote, Refusal], ...]

    def without_spot(self, why: str) -> "Field":
        """The same, with every spot candidate refused."""
        spot = [c for c in self.candidates if c.quote.offer.market is Market.SPOT]
        refused = [(candidate.quote, Refusal(Stage.OBJECTIVE, why)) for candidate in spot]
        rest = tuple(c for c in self.candidates if c.quote.offer.market is not Market.SPOT)
        by_stage = sorted((*refused, *self.refused), key=lambda pair: -pair[1].stage)
        return Field(rest, tuple(by_stage))

    def alternatives(self, now_ms: int) -> tuple[Alternative, ...]:
        """The five best, then what was refused, at most twenty together."""
        best = [as_alternative(candidate, now_ms) for candidate in self.candidates[:BEST_SHOWN]]
        refused = [
            Alternative(quote.offer, quote.price_micro_usd_h, quote.age_s(now_ms), refused=refusal.why)
            for quote, refusal in self.refused[: SHOWN - len(best)]
        ]
        return (*best, *refused)


def as_alternative(candidate: Candidate, now_ms: int) -> Alternative:
    """A candidate as it is kept in a decision."""
    quote = candidate.quote
    return Alternative(
        offer=quote.offer,
        price_micro_usd_h=quote.price_micro_usd_h,
        quote_age_s=quote.age_s(now_ms),
        cost_micro_usd=candidate.cost.micro_usd,
        hours=candidate.cost.seconds / 3600,
    )


def survey(situation: Situation) -> Field:
    """Every quote of the snapshot, weighed or refused. Where the job runs now is neither."""
    here = situation.subject.active.offer.key if situation.subject.active else None
    candidates: list[Candidate] = []
    refused: list[tuple[Quote, Refusal]] = []
    misfits: list[Quote] = []
    for key, quote in situation.world.snapshot.quotes.items():
        if key == here:
            continue
        if gpu_request(quote.offer, situation.spec.resources.gpus) is None:
            misfits.append(quote)
            continue
        outcome = _weigh(situation, quote)
        if isinstance(outcome, Candidate):
            candidates.append(outcome)
        else:
            refused.append((quote, outcome))
    # A market holds thousands of other GPUs: words only for as many as can be shown.
    misfits.sort(key=_by_price)
    refused += [(quote, refuse_gpu(quote.offer, situation.spec)) for quote in misfits[:SHOWN]]
    refused.sort(key=lambda pair: (-pair[1].stage, *_by_price(pair[0])))
    return Field(tuple(sorted(candidates, key=lambda c: c.order)), tuple(refused))


def by_preference(situation: Situation, field: Field) -> tuple[Candidate, ...]:
    """Candidates in time, the one to start on first: by `place.order`, then by cost.

    Fresh prices come before degraded ones, and the pool that has just lost the job comes last of all.
    """
    lost, order = _lost_pool(situation), situation.policy.place.order
    in_time = (candidate for candidate in field.candidates if not candidate.late)
    return tuple(sorted(in_time, key=lambda c: (_tier(c, lost), order.index(c.quote.offer.market), c.order)))


def choose_place(
    situation: Situation, field: Field, wanted: Candidate | None
) -> tuple[Candidate | None, tuple[Reason, ...]]:
    """Where the job starts: on what the objective wants; where nothing is in time, on what is late by least."""
    if wanted is not None:
        return wanted, _walk(situation, field, wanted.quote.offer.market)
    lost = _lost_pool(situation)
    soonest = min(field.candidates, key=lambda c: (_tier(c, lost), c.cost.seconds, *c.order), default=None)
    if soonest is None:
        return None, ()
    return soonest, (Reason("objective: cheapest_by_deadline", False, soonest.late),)


def _weigh(situation: Situation, quote: Quote) -> Candidate | Refusal:
    offer, snapshot = quote.offer, situation.world.snapshot
    if offer.cloud in snapshot.prices_only:
        return Refusal(Stage.PLACE, f"only the prices of {offer.cloud} are read; nothing can be rented there")
    refusal = refuse_offer(offer, situation.spec, situation.policy)
    if refusal is not None:
        return refusal
    degraded = refuse_quote(
        quote,
        snapshot.quarantined.get(offer.key),
        situation.now_ms,
        situation.policy.candidates.max_quote_age_s,
    )
    if degraded and not (situation.recovery and quote.age_s(situation.now_ms) <= RECOVERY_QUOTE_AGE_S):
        return Refusal(Stage.QUOTE, degraded)
    empty_s = (snapshot.empty_until_ms.get(offer.key, 0) - situation.now_ms) / 1000
    if empty_s > 0:
        return Refusal(Stage.POOL, f"had no capacity a moment ago; asked again in {format_duration(empty_s)}")
    if snapshot.is_unlisted(offer):
        return Refusal(Stage.POOL, f"{offer.cloud} lists no capacity there")
    why = _refuse_lines(situation, quote)
    if why:
        return Refusal(Stage.LINES, why)
    life = life_s(offer, snapshot)
    if is_hopeless(life, situation.landing.start_up_s + situation.repeat_s):
        return Refusal(Stage.OBJECTIVE, f"lasts {format_duration(life)}, hardly longer than a start takes")
    why = refuse_rate(situation, quote)
    if why:
        return Refusal(Stage.CAPS, why)
    cost = situation.cost_on(quote)
    late = _late(situation, quote, cost)
    if late and _worse_than_here(situation, cost):
        return Refusal(Stage.OBJECTIVE, late)
    return Candidate(quote, cost, late, degraded)


def _refuse_lines(situation: Situation, quote: Quote) -> str:
    if quote.offer.market is Market.SPOT:
        for reason in situation.skip_spot:
            if reason.holds:
                return f"place.skip_spot_when: {reason.line}"
    if situation.policy.candidates.where:
        remaining_s = situation.work.seconds_on(quote.offer, situation.spec)
        facts = situation.common_facts(remaining_s) | offer_facts(quote, situation.now_ms)
        for reason in evaluate(situation.policy.candidates.where, facts):
            if not reason.holds:
                return f"candidates.where: {reason.line} ({reason.detail}; {reason.place})"
    return ""


def _late(situation: Situation, quote: Quote, cost: Cost) -> str:
    left_s = situation.left_s
    if left_s is None:
        return ""
    if quote.offer.market is Market.SPOT:
        work_s = situation.work.seconds_on(quote.offer, situation.spec)
        if not spot_fits(work_s, situation.landing.start_up_s, left_s):
            return (
                f"{format_duration(work_s)} of work and {format_duration(left_s)} to the deadline "
                "leave no room for an interruption"
            )
    if cost.seconds > left_s:
        return f"would finish {format_duration(cost.seconds - left_s)} after the deadline"
    return ""


def _worse_than_here(situation: Situation, cost: Cost) -> bool:
    """A late place is no target for a move, unless staying is later still."""
    here, left_s = situation.here, situation.left_s
    if here is None or left_s is None:
        return situation.subject.active is not None
    return here.cost.seconds <= left_s or cost.seconds > here.cost.seconds


def _walk(situation: Situation, field: Field, chosen: Market) -> tuple[Reason, ...]:
    """Each market of `place.order` up to the chosen one, and what was found there."""
    reasons = list(situation.skip_spot)
    for market in situation.policy.place.order:
        found = _of(field.candidates, market)
        detail = f"{len(found)} to be had"
        if market is not chosen:
            detail = _why_not(field, market, found)
        reasons.append(Reason(f"place.order: {market}", market is chosen, detail))
        if market is chosen:
            break
    return tuple(reasons)


def _of(candidates: Iterable[Candidate], market: Market) -> list[Candidate]:
    return [c for c in candidates if c.quote.offer.market is market]


def _why_not(field: Field, market: Market, found: list[Candidate]) -> str:
    if found:
        return next((c.late for c in found if c.late), "only past prices or the pool that was just lost")
    nearest = next((refusal.why for quote, refusal in field.refused if quote.offer.market is market), "")
    return nearest or "nothing on offer"


def _lost_pool(situation: Situation) -> str | None:
    return situation.subject.lost.offer.pool if situation.subject.lost else None


def _tier(candidate: Candidate, lost_pool: str | None) -> tuple[bool, bool]:
    return candidate.quote.offer.pool == lost_pool, bool(candidate.degraded)


def _by_price(quote: Quote) -> tuple[int, str]:
    return quote.price_micro_usd_h, quote.offer.key
