"""Bounds that bind every answer: money an hour, nodes, moves a day, moves at once, time between moves."""

from broker.core.model import Reason
from broker.core.money import format_usd
from broker.core.offer import Quote
from broker.core.time import format_duration
from broker.decision.budget import refuse_market
from broker.decision.situation import Situation


def refuse_rate(situation: Situation, quote: Quote) -> str:
    """Why renting that would go past a cap or a budget, or empty. A move is counted beside what it replaces, as it is billed."""
    world, limits = situation.world, situation.policy.limits
    rate, nodes = situation.rate(quote), situation.spec.resources.nodes
    bounds = (
        ("max_usd_per_hour of the deployment", world.caps.max_micro_usd_per_hour, world.burn_micro_usd_h),
        ("limits.max_usd_per_hour", limits.max_micro_usd_per_hour, world.policy_burn_micro_usd_h),
    )
    for name, bound, burn in bounds:
        if bound is not None and burn + rate > bound:
            return f"{name} is {format_usd(bound)}: {format_usd(burn)}/h are burning and this adds {format_usd(rate)}"
    if dear := refuse_market(situation, quote.offer):
        return dear
    if world.caps.max_nodes is not None and world.open_nodes + nodes > world.caps.max_nodes:
        return f"max_nodes of the deployment is {world.caps.max_nodes}: {world.open_nodes} are open and this adds {nodes}"
    return ""


def move_limits(situation: Situation, *, by_choice: bool = True) -> tuple[Reason, ...]:
    """What bounds the number of moves, line by line. A move to keep a deadline waits for no cooldown."""
    subject, limits = situation.subject, situation.policy.limits
    reasons = [_cooldown(situation)] if by_choice else []
    if limits.migrations_per_job_per_day is not None:
        reasons.append(
            Reason(
                f"limits.migrations_per_job_per_day: {limits.migrations_per_job_per_day}",
                subject.moves_24h < limits.migrations_per_job_per_day,
                f"{subject.moves_24h} in the last 24 h",
            )
        )
    if limits.concurrent_migrations is not None:
        running = situation.world.migrations_running
        reasons.append(
            Reason(
                f"limits.concurrent_migrations: {limits.concurrent_migrations}",
                running < limits.concurrent_migrations,
                f"{running} under way",
            )
        )
    return tuple(reasons)


def _cooldown(situation: Situation) -> Reason:
    cooldown_s = situation.policy.migrate.cooldown_s
    moved_at_ms = situation.subject.moved_at_ms
    if moved_at_ms is None:
        since, holds = "never moved by choice", True
    else:
        since_s = (situation.now_ms - moved_at_ms) / 1000
        since, holds = f"last moved {format_duration(since_s)} ago", since_s >= cooldown_s
    return Reason(f"migrate.cooldown: {format_duration(cooldown_s)}", holds, since)
