from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from situations import (
    HOUR,
    NOW,
    ON_DEMAND_AWS,
    ON_DEMAND_GCP,
    SPOT_AWS,
    SPOT_GCP,
    commit,
    condition,
    dollars,
    job,
    migrate,
    placement,
    policy,
    progress,
    quote,
    running,
    spec,
    world,
)

from broker.core.model import Decision, DecisionKind
from broker.decision.plan import decide
from broker.decision.subject import Caps, Hold, Subject, World
from broker.policy.facts import Line
from broker.policy.schema import Limits, Mode, Objective, Policy

DEAR, CHEAP = quote(ON_DEMAND_AWS, 5), quote(ON_DEMAND_GCP, 2)
MARKET = world(DEAR, CHEAP)


def answer(
    a_world: World = MARKET, a_policy: Policy | None = None, subject: Subject | None = None
) -> Decision:
    decision, _ = decide(subject or running(), a_policy or policy(), a_world, "d-1")
    assert decision.reasons
    return decision


def moves(decision: Decision) -> bool:
    return decision.kind is DecisionKind.MOVE


def test_a_move_that_pays() -> None:
    decision = answer()
    assert moves(decision)
    assert decision.acted
    assert decision.target is not None
    assert decision.target.offer == ON_DEMAND_GCP
    assert decision.here_micro_usd == dollars(50)
    # (0.5 + 20.4) of 50: see test_cost.py
    assert decision.saving == pytest.approx(0.582)
    assert decision.summary == (
        "moves to gcp/us-central1-a a3-highgpu-1g on_demand: $2.00/h instead of $5.00/h, "
        "saves 58.2 % ($20.90 instead of $50.00 to finish, the move included)"
    )
    assert all(reason.holds for reason in decision.reasons)


def test_a_job_inside_a_commitment_is_not_moved_by_what_the_next_node_would_cost() -> None:
    inside = world(DEAR, CHEAP, held_micro_usd_h={DEAR.offer.key: dollars(1)})
    decision = answer(inside)
    assert not moves(decision)
    assert decision.here_micro_usd == dollars(10)


def test_back_from_on_demand_to_spot_in_the_same_zone() -> None:
    decision = answer(world(DEAR, quote(SPOT_AWS, 2)))
    assert moves(decision)
    assert decision.target is not None
    assert decision.target.offer == SPOT_AWS


def test_the_price_here_is_the_current_one() -> None:
    landed_cheap = running(active=placement(SPOT_AWS, usd_h=2))
    assert not moves(answer(world(quote(SPOT_AWS, 2), quote(SPOT_GCP, 2)), subject=landed_cheap))
    assert moves(answer(world(quote(SPOT_AWS, 2 * 1.9), quote(SPOT_GCP, 2)), subject=landed_cheap))


def test_observe_records() -> None:
    decision = answer(a_policy=policy(mode=Mode.OBSERVE))
    assert moves(decision)
    assert not decision.acted
    assert decision.summary.startswith("would move to gcp/")


def stale_here() -> World:
    return world(quote(ON_DEMAND_AWS, 5, age_s=601), CHEAP)


FALSE_LINE = condition("saving.fraction > 0.9", Line.MIGRATE_WHERE)

# What vetoes: the line that must not hold, the words that tell why, and the change that brings it about.
VETOES: list[tuple[str, str, Callable[[], dict[str, Any]]]] = [
    ("migrate: never", "moves no job", lambda: {"a_policy": migrate(enabled=False)}),
    (
        "a committed checkpoint",
        "none is committed yet",
        lambda: {"subject": Subject(job(progress=progress()), active=placement(ON_DEMAND_AWS))},
    ),
    (
        "a committed checkpoint",
        "declares no checkpoint",
        lambda: {
            "subject": Subject(
                job(progress=progress(), spec=spec(checkpoint=None)), active=placement(ON_DEMAND_AWS)
            )
        },
    ),
    ("candidates.max_quote_age: 10m, here", "last seen 10m1s ago", lambda: {"a_world": stale_here()}),
    ("candidates.max_quote_age: 10m, here", "nobody quotes", lambda: {"a_world": world(CHEAP)}),
    (
        "candidates.max_quote_age: 10m, here",
        "in quarantine: a jump",
        lambda: {"a_world": world(DEAR, CHEAP, quarantined={ON_DEMAND_AWS.key: "a jump"})},
    ),
    (
        "another offer that fits",
        "last seen 10m1s ago",
        lambda: {"a_world": world(DEAR, quote(ON_DEMAND_GCP, 2, age_s=601))},
    ),
    (
        "another offer that fits",
        "in quarantine: a jump",
        lambda: {"a_world": world(DEAR, CHEAP, quarantined={ON_DEMAND_GCP.key: "a jump"})},
    ),
    ("another offer that fits", "no cloud quotes", lambda: {"a_world": world(DEAR)}),
    (
        "another offer that fits",
        "had no capacity",
        lambda: {"a_world": world(DEAR, CHEAP, empty_until_ms={ON_DEMAND_GCP.key: NOW + 1})},
    ),
    (
        "another offer that fits",
        "this adds $2.00",
        lambda: {"a_world": world(DEAR, CHEAP, burn_micro_usd_h=dollars(5), caps=Caps(dollars(6)))},
    ),
    ("migrate.min_saving: 60%", "saving is 58.2 %", lambda: {"a_policy": migrate(min_saving=0.6)}),
    (
        "migrate.min_saving: 20%",
        "would cost 11.7 % more",
        lambda: {"a_world": world(quote(ON_DEMAND_AWS, 2), quote(ON_DEMAND_GCP, 2.17))},
    ),
    (
        "migrate.min_saving_usd: 30",
        "saving is $29.10",
        lambda: {"a_policy": migrate(min_saving_micro_usd=dollars(30))},
    ),
    (
        "migrate.max_payback: 10m",
        "costs $0.60, earned back in 12m",
        lambda: {"a_policy": migrate(max_payback_s=600)},
    ),
    ("saving.fraction > 0.9", "saving.fraction is", lambda: {"a_policy": migrate(where=(FALSE_LINE,))}),
    (
        "migrate.cooldown: 2h",
        "last moved 1h ago",
        lambda: {"a_policy": migrate(cooldown_s=7200), "subject": running(moved_at_ms=NOW - HOUR)},
    ),
    ("limits.migrations_per_job_per_day: 4", "4 in the last 24 h", lambda: {"subject": running(moves_24h=4)}),
    (
        "limits.concurrent_migrations: 10",
        "10 under way",
        lambda: {"a_world": replace(MARKET, migrations_running=10)},
    ),
    ("migrate.hold: 1m", "since 0s", lambda: {"a_policy": migrate(hold_s=60)}),
    (
        "no landing under way",
        "landing on gcp",
        lambda: {"subject": running(landing=(placement(ON_DEMAND_GCP),))},
    ),
]


@pytest.mark.parametrize(("line", "words", "change"), VETOES, ids=[f"{v[0]} - {v[1]}" for v in VETOES])
def test_veto(line: str, words: str, change: Callable[[], dict[str, Any]]) -> None:
    decision = answer(**change())
    assert decision.kind is DecisionKind.STAY
    assert not decision.acted
    against = [reason for reason in decision.reasons if reason.holds is False]
    assert line in [reason.line for reason in against]
    assert words in next(reason.detail for reason in against if reason.line == line)
    assert against[0].detail in decision.summary


def test_where_may_prefer_a_dearer_candidate() -> None:
    not_gcp = migrate(where=(condition('offer.cloud != "gcp"', Line.MIGRATE_WHERE),))
    decision = answer(world(DEAR, CHEAP, quote(SPOT_AWS, 2.2)), not_gcp)
    assert moves(decision)
    assert decision.target is not None
    assert decision.target.offer == SPOT_AWS


def test_no_move_of_a_job_that_is_done_before_the_landing() -> None:
    assert not moves(answer(subject=running(hours_left=0.1)))
    assert not moves(answer(subject=running(hours_left=0)))


def test_egress_can_eat_the_saving() -> None:
    big = running(gib=400)
    assert moves(answer(subject=big))
    assert not moves(
        answer(replace(MARKET, egress_micro_usd_per_gib=lambda a, b: dollars(0.09)), subject=big)
    )


class TestHold:
    held = migrate(hold_s=60)

    def step(
        self,
        at_s: float,
        hold: Hold | None,
        here_age_s: float = 0,
        there_age_s: float = 0,
        usd: float = 2,
        **more: Any,
    ) -> tuple[Decision, Hold | None]:
        now_ms = NOW + round(at_s * 1000)
        here = replace(DEAR, observed_at_ms=now_ms - round(here_age_s * 1000))
        there = replace(
            quote(more.pop("there", ON_DEMAND_GCP), usd), observed_at_ms=now_ms - round(there_age_s * 1000)
        )
        return decide(
            replace(running(), hold=hold), self.held, world(here, there, now_ms=now_ms, **more), "d"
        )

    def test_moves_once_the_wish_has_lasted_on_fresh_prices(self) -> None:
        decision, hold = self.step(0, None)
        assert not moves(decision)
        decision, hold = self.step(40, hold)
        assert decision.reasons[-2].detail == "since 40s"
        assert decision.summary.endswith("migrate.hold: 1m: since 40s")
        assert decision.holds_since_ms == NOW
        decision, hold = self.step(60, hold)
        assert moves(decision)
        assert decision.holds_since_ms == NOW
        # Asked again just before the launch.
        decision, _ = self.step(61, hold)
        assert moves(decision)

    def test_time_alone_proves_nothing(self) -> None:
        _, hold = self.step(0, None)
        decision, hold = self.step(90, hold, there_age_s=90)
        assert not moves(decision)
        assert "since 1m30s, and waits for newer prices" in decision.summary
        decision, hold = self.step(120, hold, here_age_s=120)
        assert not moves(decision)
        decision, _ = self.step(130, hold)
        assert moves(decision)

    def test_an_answer_that_is_no_move_starts_it_again(self) -> None:
        _, hold = self.step(0, None)
        _, hold = self.step(30, hold, usd=4.9)
        assert hold is None
        _, hold = self.step(60, hold)
        assert hold is not None
        assert hold.since_ms == NOW + 60_000

    def test_a_stale_price_starts_it_again(self) -> None:
        _, hold = self.step(0, None)
        _, hold = self.step(30, hold, here_age_s=700)
        assert hold is None

    def test_another_target_does_not(self) -> None:
        _, hold = self.step(0, None)
        decision, hold = self.step(60, hold, there=SPOT_GCP)
        assert moves(decision)
        assert hold is not None
        assert hold.target_key == SPOT_GCP.key

    def test_neither_does_a_limit(self) -> None:
        _, hold = self.step(0, None)
        now_ms = NOW + 60_000
        busy = replace(
            world(replace(DEAR, observed_at_ms=now_ms), replace(CHEAP, observed_at_ms=now_ms), now_ms=now_ms),
            migrations_running=10,
        )
        decision, hold = decide(replace(running(), hold=hold), self.held, busy, "d")
        assert not moves(decision)
        decision, _ = self.step(61, hold)
        assert moves(decision)


class TestDeadline:
    by_deadline = policy(objective=Objective.CHEAPEST_BY_DEADLINE)

    def on_spot(self, left_h: float, hours_left: float = 10) -> Subject:
        """A start takes 0.2 h, so a job on spot needs 10.7 h for ten hours of work: a twentieth more, and one start."""
        return running(
            SPOT_AWS, hours_left=hours_left, job={"spec": spec(deadline_ms=NOW + round(left_h * HOUR))}
        )

    def test_a_deadline_that_slips_moves_to_on_demand_at_any_price(self) -> None:
        market = world(quote(SPOT_AWS, 2), quote(SPOT_GCP, 1), quote(ON_DEMAND_GCP, 6))
        decision = answer(market, self.by_deadline, self.on_spot(10.6))
        assert moves(decision)
        assert decision.target is not None
        assert decision.target.offer == ON_DEMAND_GCP
        assert "costs" in decision.summary
        assert any("another interruption of spot would miss it" in r.detail for r in decision.reasons)

    def test_with_slack_money_decides(self) -> None:
        market = world(quote(SPOT_AWS, 2), quote(ON_DEMAND_GCP, 6))
        assert not moves(answer(market, self.by_deadline, self.on_spot(10.8)))

    def test_a_job_that_is_all_but_done_stays(self) -> None:
        market = world(quote(SPOT_AWS, 2), quote(ON_DEMAND_GCP, 6))
        assert not moves(answer(market, self.by_deadline, self.on_spot(0.5, hours_left=0.4)))

    def test_nowhere_in_time_stays(self) -> None:
        market = world(quote(SPOT_AWS, 2), quote(ON_DEMAND_GCP, 6))
        assert not moves(answer(market, self.by_deadline, self.on_spot(9.5)))

    def test_no_move_to_where_the_deadline_is_missed(self) -> None:
        subject = running(job={"spec": spec(deadline_ms=NOW + round(10.8 * HOUR))})
        decision = answer(world(DEAR, quote(SPOT_GCP, 1)), self.by_deadline, subject)
        assert not moves(decision)
        assert "leave no room for an interruption" in decision.summary


def test_limits_without_bounds_ask_nothing() -> None:
    unbounded = policy(limits=Limits(None, None, None))
    assert not [r for r in answer(a_policy=unbounded).reasons if r.line.startswith("limits")]


def test_commit_is_named() -> None:
    decision = answer(subject=replace(running(), job=job(progress=progress(), commit=commit())))
    assert decision.reasons[0].detail == "commit 3 at step 36000"


@pytest.mark.parametrize("step", [0, 2**53 - 1])
@pytest.mark.parametrize("rate", [1e-9, 1e12, None])
def test_the_largest_numbers_that_a_job_may_tell_are_decided_about(step: int, rate: float | None) -> None:
    a_job = job(progress=progress(step, 2**53 - 1, rate), commit=commit(2.0**23, step))
    for active in (placement(ON_DEMAND_AWS), None):
        found = answer(subject=Subject(a_job, active=active))
        assert found.summary


@pytest.mark.parametrize(
    ("there", "share", "amount"),
    [(1.9411766, "the same", "the same"), (2.17, "11.7 % more", "$2.33 more"), (1.0, None, None)],
)
def test_a_place_that_is_no_cheaper_is_told_by_what_it_would_cost(
    there: float, share: str | None, amount: str | None
) -> None:
    a_world = world(quote(ON_DEMAND_AWS, 2), quote(ON_DEMAND_GCP, there))
    details = [
        reason.detail
        for reason in answer(a_world, migrate(min_saving=0.99)).reasons
        if "min_saving" in reason.line
    ]
    assert not [
        detail for detail in details if "-" in detail.replace("-highgpu-", "").replace("us-central1-a", "")
    ]
    assert ("saving is" in details[0]) == (share is None)
    for detail, said in zip(details, (share, amount), strict=True):
        assert said is None or detail.endswith(f", would cost {said}")
