from dataclasses import replace

from situations import (
    A100,
    H100_X8,
    HOUR,
    NOW,
    ON_DEMAND_AWS,
    ON_DEMAND_GCP,
    OWNED,
    SPOT_AWS,
    SPOT_GCP,
    commit,
    condition,
    dollars,
    job,
    placement,
    policy,
    progress,
    quote,
    resources,
    spec,
    world,
)

from broker.core.availability import Availability, Signal
from broker.core.model import Decision, DecisionKind
from broker.core.offer import Market, Offer
from broker.core.spec import GpuRequest
from broker.decision.plan import decide
from broker.decision.subject import Caps, Subject, World
from broker.policy.facts import Line
from broker.policy.schema import Candidates, Limits, Mode, Objective, Place, Policy

DAY_S = 86_400


def answer(a_world: World, a_policy: Policy | None = None, subject: Subject | None = None) -> Decision:
    decision, hold = decide(subject or Subject(job()), a_policy or policy(), a_world, "d-1")
    assert hold is None
    assert decision.reasons
    return decision


def target(decision: Decision) -> Offer:
    assert decision.kind is DecisionKind.PLACE, decision.summary
    assert decision.target is not None
    return decision.target.offer


def refused(decision: Decision, offer: Offer) -> str:
    return next(a.refused for a in decision.alternatives if a.offer == offer)


class TestChoice:
    def test_the_cheapest_of_the_first_market(self) -> None:
        decision = answer(world(quote(SPOT_AWS, 3), quote(SPOT_GCP, 2), quote(ON_DEMAND_GCP, 1)))
        assert target(decision) == SPOT_GCP
        assert decision.acted
        assert decision.summary.startswith("starts on gcp/us-central1-a a3-highgpu-1g spot: $2.00/h, about ")

    def test_owned_first(self) -> None:
        assert target(answer(world(quote(SPOT_AWS, 1), quote(OWNED, 2)))) == OWNED

    def test_the_order_is_the_policys(self) -> None:
        on_demand_first = policy(place=Place(order=(Market.ON_DEMAND, Market.SPOT)))
        assert (
            target(answer(world(quote(SPOT_AWS, 1), quote(ON_DEMAND_AWS, 5)), on_demand_first))
            == ON_DEMAND_AWS
        )

    def test_observe_places_too(self) -> None:
        decision = answer(world(quote(SPOT_AWS, 3)), policy(mode=Mode.OBSERVE))
        assert decision.kind is DecisionKind.PLACE
        assert decision.acted

    def test_a_dear_instance_that_works_faster_is_cheaper(self) -> None:
        either = spec(resources=resources(gpus=(GpuRequest("H100"), GpuRequest("A100"))))
        # An H100 does three times the work of an A100 in an hour.
        decision = answer(world(quote(ON_DEMAND_AWS, 4), quote(A100, 2)), subject=Subject(job(spec=either)))
        assert target(decision) == ON_DEMAND_AWS

    def test_eight_gpus_for_one_are_paid_whole(self) -> None:
        decision = answer(world(quote(H100_X8, 20), quote(SPOT_AWS, 3)))
        assert target(decision) == SPOT_AWS
        assert decision.alternatives[1].offer == H100_X8

    def test_a_spot_pool_that_dies_before_training_is_refused(self) -> None:
        decision = answer(
            world(
                quote(SPOT_AWS, 0.5),
                quote(SPOT_GCP, 2),
                spot_life_s={"aws/use1-az6/p5.4xlarge": 900.0},
            )
        )
        assert target(decision) == SPOT_GCP
        assert refused(decision, SPOT_AWS) == "lasts 15m, hardly longer than a start takes"

    def test_a_flaky_pool_loses_to_a_steadier_dearer_one(self) -> None:
        lives = {"aws/use1-az6/p5.4xlarge": 2400.0, "gcp/us-central1-a/a3-highgpu-1g": 40 * 3600.0}
        subject = Subject(job(progress=progress(0, 360_000), commit=None), lost=placement(ON_DEMAND_AWS))
        decision = answer(world(quote(SPOT_AWS, 1.5), quote(SPOT_GCP, 2), spot_life_s=lives), subject=subject)
        assert target(decision) == SPOT_GCP


class TestNothing:
    def test_no_quotes(self) -> None:
        decision = answer(world())
        assert decision.kind is DecisionKind.STAY
        assert decision.summary == "stays queued: an offer that fits: no cloud quotes any price"

    def test_the_nearest_miss_is_told(self) -> None:
        decision = answer(
            world(
                quote(A100, 1),
                quote(replace(H100_X8, region="cn-north-1"), 9),
                quote(SPOT_AWS, 2, age_s=3600),
            ),
            policy(candidates=Candidates(regions_deny=("cn-*",))),
        )
        assert decision.kind is DecisionKind.STAY
        assert "its price was last seen 1h ago; the limit is 10m" in decision.summary
        assert [a.refused[:20] for a in decision.alternatives] == [
            "its price was last s",
            "policy test denies t",
            "has 1 x A100-SXM4-80",
        ]

    def test_a_cloud_of_which_only_prices_are_read_is_never_rented(self) -> None:
        decision = answer(world(quote(SPOT_AWS, 2), quote(SPOT_GCP, 3), prices_only=frozenset({"aws"})))
        assert target(decision) == SPOT_GCP
        assert "only the prices of aws are read" in refused(decision, SPOT_AWS)

    def test_an_offer_that_its_cloud_lists_without_capacity_is_left(self) -> None:
        def listed(value: float, age_s: float) -> World:
            hint = Availability(
                SPOT_AWS.key, Signal.LISTED, value, value, NOW - round(age_s * 1000), "lambda:types"
            )
            return world(quote(SPOT_AWS, 2), quote(SPOT_GCP, 3), hints={SPOT_AWS.key: (hint,)})

        decision = answer(listed(0, 60))
        assert target(decision) == SPOT_GCP
        assert refused(decision, SPOT_AWS) == "aws lists no capacity there"
        assert target(answer(listed(1, 60))) == SPOT_AWS
        assert target(answer(listed(0, DAY_S))) == SPOT_AWS  # it said so too long ago

    def test_an_empty_pool_waits(self) -> None:
        decision = answer(world(quote(SPOT_AWS, 2), empty_until_ms={SPOT_AWS.key: NOW + 120_000}))
        assert refused(decision, SPOT_AWS) == "had no capacity a moment ago; asked again in 2m"

    def test_quarantine(self) -> None:
        decision = answer(world(quote(SPOT_AWS, 2), quarantined={SPOT_AWS.key: "price is zero"}))
        assert refused(decision, SPOT_AWS) == "its newest price is in quarantine: price is zero"

    def test_not_more_than_twenty_alternatives(self) -> None:
        offers = [replace(A100, zone=f"z{n}") for n in range(50)] + [
            replace(SPOT_AWS, zone=f"z{n}") for n in range(9)
        ]
        decision = answer(world(*(quote(offer, 2) for offer in offers)))
        assert len(decision.alternatives) == 20
        assert [a.offer.gpu for a in decision.alternatives[:6]] == [SPOT_AWS.gpu] * 5 + [A100.gpu]


class TestLines:
    def test_where_narrows(self) -> None:
        no_aws = policy(candidates=Candidates(where=(condition('offer.cloud != "aws"'),)))
        decision = answer(world(quote(SPOT_AWS, 1), quote(SPOT_GCP, 2)), no_aws)
        assert target(decision) == SPOT_GCP
        assert refused(decision, SPOT_AWS).startswith(
            'candidates.where: offer.cloud != "aws" (offer.cloud is '
        )

    def test_a_missing_fact_refuses(self) -> None:
        decision = answer(
            world(quote(SPOT_AWS, 1)), policy(candidates=Candidates(where=(condition("offer.vcpus >= 8"),)))
        )
        assert "offer.vcpus is not known" in refused(decision, SPOT_AWS)

    def test_skip_spot_takes_on_demand_and_says_so(self) -> None:
        line = condition("market.spot_failure_rate_1h > 0.30", Line.SKIP_SPOT_WHEN)
        skipping = policy(place=Place(skip_spot_when=(line,)))
        quotes = quote(SPOT_AWS, 1), quote(ON_DEMAND_AWS, 5)
        decision = answer(world(*quotes, spot_launch_failures_1h=0.5), skipping)
        assert target(decision) == ON_DEMAND_AWS
        assert [(r.line, r.holds) for r in decision.reasons[:2]] == [
            ("market.spot_failure_rate_1h > 0.30", True),
            ("place.order: owned", False),
        ]
        assert decision.reasons[2].detail == "place.skip_spot_when: market.spot_failure_rate_1h > 0.30"
        assert target(answer(world(*quotes, spot_launch_failures_1h=0.1), skipping)) == SPOT_AWS

    def test_an_unknown_rest_does_not_skip_spot(self) -> None:
        line = condition('job.remaining < duration("2h")', Line.SKIP_SPOT_WHEN)
        skipping = policy(place=Place(skip_spot_when=(line,)))
        assert target(answer(world(quote(SPOT_AWS, 1), quote(ON_DEMAND_AWS, 5)), skipping)) == SPOT_AWS


class TestCaps:
    def test_deployment_rate(self) -> None:
        caps = Caps(max_micro_usd_per_hour=dollars(10))
        decision = answer(world(quote(SPOT_AWS, 3), burn_micro_usd_h=dollars(8), caps=caps))
        assert decision.kind is DecisionKind.STAY
        assert refused(decision, SPOT_AWS) == (
            "max_usd_per_hour of the deployment is $10.00: $8.00/h are burning and this adds $3.00"
        )

    def test_policy_rate_takes_the_one_below_it(self) -> None:
        capped = policy(
            limits=Limits(max_micro_usd_per_hour=dollars(10)), place=Place(order=(Market.ON_DEMAND,))
        )
        cheap_slow = spec(resources=resources(gpus=(GpuRequest("H100"), GpuRequest("A100"))))
        a_world = world(quote(ON_DEMAND_AWS, 5), quote(A100, 2), policy_burn_micro_usd_h=dollars(6))
        assert target(answer(a_world, capped, Subject(job(spec=cheap_slow)))) == A100

    def test_nodes_of_a_gang(self) -> None:
        gang = Subject(job(spec=spec(resources=resources(nodes=4))))
        caps = Caps(max_nodes=10)
        assert (
            answer(world(quote(SPOT_AWS, 3), open_nodes=7, caps=caps), subject=gang).kind is DecisionKind.STAY
        )
        placed = answer(world(quote(SPOT_AWS, 3), open_nodes=6, caps=caps), subject=gang)
        assert placed.summary.startswith("starts on 4 x aws/use1-az6 p5.4xlarge spot: $12.00/h")


class TestDeadline:
    by_deadline = policy(objective=Objective.CHEAPEST_BY_DEADLINE)
    quotes = quote(SPOT_AWS, 1), quote(ON_DEMAND_AWS, 5)

    def subject(self, left_h: float) -> Subject:
        """Ten hours of work left; a start takes 0.2 h."""
        in_time = spec(deadline_ms=NOW + round(left_h * HOUR))
        return Subject(
            job(spec=in_time, progress=progress(0, 36_000), commit=commit(step=0)),
            lost=placement(ON_DEMAND_GCP),
        )

    def test_with_slack_spot(self) -> None:
        # 10 h x 1.05 + 2 x 0.2 h
        assert target(answer(world(*self.quotes), self.by_deadline, self.subject(11.0))) == SPOT_AWS

    def test_without_slack_on_demand(self) -> None:
        decision = answer(world(*self.quotes), self.by_deadline, self.subject(10.8))
        assert target(decision) == ON_DEMAND_AWS
        assert any("leave no room for an interruption" in r.detail for r in decision.reasons)

    def test_too_late_takes_the_soonest_and_says_so(self) -> None:
        decision = answer(world(*self.quotes), self.by_deadline, self.subject(9))
        assert target(decision) == ON_DEMAND_AWS
        assert decision.reasons[0].holds is False
        assert decision.reasons[0].detail == "would finish 1h12m after the deadline"

    def test_cheapest_does_not_heed_it(self) -> None:
        assert target(answer(world(*self.quotes), policy(), self.subject(9))) == SPOT_AWS


class TestRecovery:
    def subject(self) -> Subject:
        return Subject(job(progress=progress(), commit=commit()), lost=placement(SPOT_AWS))

    def test_takes_another_pool_than_the_lost_one(self) -> None:
        decision = answer(world(quote(SPOT_AWS, 1), quote(SPOT_GCP, 2)), subject=self.subject())
        assert target(decision) == SPOT_GCP
        assert decision.summary.startswith("restarts on gcp/")

    def test_takes_the_lost_pool_when_it_is_all_there_is(self) -> None:
        decision = answer(world(quote(SPOT_AWS, 1)), subject=self.subject())
        assert target(decision) == SPOT_AWS
        assert any(r.line == "another pool than the lost one" and r.holds is False for r in decision.reasons)

    def test_does_not_wait_for_fresh_prices(self) -> None:
        decision = answer(world(quote(SPOT_GCP, 2, age_s=DAY_S)), subject=self.subject())
        assert target(decision) == SPOT_GCP
        assert decision.degraded_quotes
        assert decision.summary.endswith("; on a price that is not fresh")
        assert any("was last seen 1d ago" in r.detail for r in decision.reasons)

    def test_prefers_fresh_prices(self) -> None:
        decision = answer(
            world(quote(SPOT_GCP, 1, age_s=3600), quote(ON_DEMAND_GCP, 5)), subject=self.subject()
        )
        assert target(decision) == ON_DEMAND_GCP
        assert not decision.degraded_quotes

    def test_older_than_a_day_is_too_old(self) -> None:
        decision = answer(world(quote(SPOT_GCP, 2, age_s=DAY_S + 1)), subject=self.subject())
        assert decision.kind is DecisionKind.STAY

    def test_may_use_the_last_accepted_price_behind_a_quarantined_one(self) -> None:
        decision = answer(
            world(quote(SPOT_GCP, 2), quarantined={SPOT_GCP.key: "price is zero"}), subject=self.subject()
        )
        assert target(decision) == SPOT_GCP
        assert decision.degraded_quotes


def test_a_landing_under_way_is_waited_for() -> None:
    decision = answer(world(quote(SPOT_AWS, 1)), subject=Subject(job(), landing=(placement(SPOT_GCP),)))
    assert decision.kind is DecisionKind.STAY
    assert decision.summary == (
        "stays queued: no landing under way: landing on gcp/us-central1-a a3-highgpu-1g spot"
    )
