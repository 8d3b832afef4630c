"""What a decision to rent must respect: caps, limits on moves, and prices that may be believed (I9, I10, I11)."""

from typing import TYPE_CHECKING

from broker.core.model import Decision, DecisionKind, NodeState, Placement, Purpose

if TYPE_CHECKING:
    from tests.sim.truth import Truth

HOUR_MS = 3_600_000


def intended(truth: "Truth", placement: Placement, decision: Decision | None) -> None:
    """A placement and its nodes have been committed as an intent."""
    sim, rows = truth.sim, truth.placements
    if decision is None:
        return sim.violate("I11 reason", f"{placement.id} has no decision")
    open_nodes = [n for n in truth.nodes.values() if n.state != NodeState.GONE]
    burn = sum(rows[n.placement_id].price_micro_usd_h for n in open_nodes)
    caps, rules, policy = sim.caps, sim.rules, sim.policy
    assert caps.max_nodes is not None
    assert caps.max_micro_usd_per_hour is not None
    if len(open_nodes) > caps.max_nodes:
        sim.violate("I10 caps", f"{placement.id} makes {len(open_nodes)} nodes")
    if burn > caps.max_micro_usd_per_hour:
        sim.violate("I10 caps", f"{placement.id} makes {burn} micro-USD/h")
    if placement.purpose == Purpose.RECOVER:
        recent = [
            p
            for p in rows.values()
            if p.purpose == Purpose.RECOVER and p.created_at_ms > decision.at_ms - HOUR_MS
        ]
        if len(recent) > rules.recoveries_per_hour:
            sim.violate("I10 caps", f"{placement.id} is recovery {len(recent)} of this hour")
    if placement.purpose != Purpose.MOVE:
        return None
    if decision.kind != DecisionKind.MOVE or not decision.acted:
        sim.violate("I9 prices", f"{placement.id} moves by a decision that says {decision.kind}")
    moves = [p for p in rows.values() if p.job_id == placement.job_id and p.purpose == Purpose.MOVE]
    done_ms = [p.active_at_ms for p in moves if p.active_at_ms is not None]
    if any(decision.at_ms - at < policy.cooldown_s * 1000 for at in done_ms):
        sim.violate("I10 caps", f"{placement.id} moves within the cooldown")
    if sum(at > decision.at_ms - 24 * HOUR_MS for at in done_ms) >= policy.moves_per_day:
        sim.violate("I10 caps", f"{placement.id} is one move too many for today")
    landing = [
        p for p in rows.values() if p.purpose == Purpose.MOVE and (p.state.landing or p.state == "ready")
    ]
    if len(landing) > policy.moves_at_once:
        sim.violate("I10 caps", f"{placement.id} is move {len(landing)} at once")
    _prices(truth, placement, decision)
    return None


def _prices(truth: "Truth", placement: Placement, decision: Decision) -> None:
    """No move on a price that was not read whole, lately, and so that it may be believed."""
    target, sim = decision.target, truth.sim
    assert target is not None
    seen_ms = decision.at_ms - round(target.quote_age_s * 1000)
    max_age_ms = sim.policy.max_quote_age_s * 1000
    polls = sim.whole_polls[target.offer.cloud]
    when = next((w for ms, w in polls.items() if abs(ms - seen_ms) <= 1), None)
    if when is None:
        return sim.violate("I9 prices", f"{placement.id}: its quote comes from no whole poll")
    if target.quote_age_s > sim.policy.max_quote_age_s:
        sim.violate("I9 prices", f"{placement.id}: its quote is {target.quote_age_s} s old")
    true = {sim.price_at(target.offer.key, at_s) for at_s in range(int(when[0]) - 1, int(when[1]) + 2)}
    if target.price_micro_usd_h not in true:
        sim.violate(
            "I9 prices", f"{placement.id}: {target.price_micro_usd_h} was never the price: {sorted(true)}"
        )
    here = truth.placements[placement.replaces or ""].offer
    if max(sim.whole_polls[here.cloud], default=0) < decision.at_ms - max_age_ms:
        sim.violate("I9 prices", f"{placement.id}: the price of its own place is stale")
    odd = [o.key for o in (here, target.offer) if o.key in sim.clouds[o.cloud].odd]
    if odd:
        sim.violate("I9 prices", f"{placement.id}: the newest readings of {odd} are glitches")
    return None
