from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from situations import (
    HOUR,
    NOW,
    ON_DEMAND_AWS,
    ON_DEMAND_GCP,
    SPOT_AWS,
    SPOT_GCP,
    commit,
    dollars,
    job,
    placement,
    policy,
    progress,
    quote,
    spec,
    world,
)

from broker.core.model import DecisionKind
from broker.core.offer import Quote
from broker.decision.plan import decide
from broker.decision.subject import Caps, Hold, Subject, World
from broker.policy.schema import Limits, Migrate, Objective, Policy

OFFERS = (SPOT_AWS, SPOT_GCP, ON_DEMAND_AWS, ON_DEMAND_GCP)
usd = st.floats(0.01, 50)
ages = st.one_of(st.floats(0, 1200), st.floats(0, 200_000))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    offers = draw(st.sets(st.sampled_from(OFFERS)))
    quotes: list[Quote] = [
        quote(offer, draw(usd), draw(ages)) for offer in sorted(offers, key=lambda o: o.key)
    ]
    keys = st.sets(st.sampled_from([o.key for o in OFFERS]), max_size=2)
    life = st.floats(60, 400_000)
    egress = draw(st.integers(0, 200_000))
    cap = st.none() | st.integers(0, dollars(60))
    return world(
        *quotes,
        egress=egress,
        quarantined=dict.fromkeys(draw(keys), "a jump"),
        empty_until_ms=dict.fromkeys(draw(keys), NOW + 60000),
        spot_life_s={"aws/use1-az6/p5.4xlarge": draw(life), "gcp/us-central1-a/a3-highgpu-1g": draw(life)},
        burn_micro_usd_h=draw(st.integers(0, dollars(60))),
        policy_burn_micro_usd_h=draw(st.integers(0, dollars(60))),
        open_nodes=draw(st.integers(0, 4)),
        migrations_running=draw(st.integers(0, 3)),
        caps=Caps(draw(cap), draw(st.none() | st.integers(0, 5))),
    )


@st.composite
def subjects(draw: st.DrawFn) -> Subject:
    done = draw(st.integers(0, 100_000))
    a_job = job(
        spec=spec(deadline_ms=draw(st.none() | st.integers(NOW - HOUR, NOW + 100 * HOUR))),
        progress=draw(st.none() | st.just(progress(done, 100_000, draw(st.floats(0.01, 50))))),
        commit=draw(st.none() | st.just(commit(draw(st.integers(0, 200)), done))),
    )
    held = draw(st.none() | st.just(Hold(SPOT_AWS.key, NOW - HOUR, NOW - draw(st.integers(0, HOUR)))))
    where = placement(draw(st.sampled_from(OFFERS)))
    return draw(
        st.sampled_from(
            [
                Subject(a_job),
                Subject(a_job, active=where, hold=held, moves_24h=draw(st.integers(0, 4))),
                Subject(a_job, lost=where),
                Subject(a_job, active=where, landing=(where,)),
            ]
        )
    )


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    return policy(
        objective=draw(st.sampled_from(Objective)),
        migrate=Migrate(
            enabled=draw(st.booleans()),
            min_saving=draw(st.floats(0, 1)),
            min_saving_micro_usd=draw(st.integers(0, dollars(50))),
            max_payback_s=draw(st.integers(0, 20_000)),
            hold_s=draw(st.sampled_from([0, 60, 600])),
            cooldown_s=draw(st.sampled_from([0, 7200])),
        ),
        limits=Limits(2, 2, draw(st.none() | st.integers(0, dollars(80)))),
    )


@settings(deadline=None, max_examples=150)
@given(worlds(), subjects(), policies())
def test_whatever_happens(a_world: World, subject: Subject, a_policy: Policy) -> None:
    decision, hold = decide(subject, a_policy, a_world, "d")

    assert (decision, hold) == decide(subject, a_policy, a_world, "d"), (
        "the same question has the same answer"
    )
    assert len(decision.alternatives) <= 20
    assert decision.summary
    if decision.kind is DecisionKind.STAY:
        assert any(reason.holds is not True for reason in decision.reasons), "staying has a reason"
        assert decision.target is None
        return

    target = decision.target
    assert target is not None
    limit = a_policy.limits.max_micro_usd_per_hour
    cap = a_world.caps.max_micro_usd_per_hour
    assert cap is None or a_world.burn_micro_usd_h + target.price_micro_usd_h <= cap
    assert limit is None or a_world.policy_burn_micro_usd_h + target.price_micro_usd_h <= limit
    assert a_world.caps.max_nodes is None or a_world.open_nodes < a_world.caps.max_nodes
    assert not subject.landing
    assert target.offer.key not in a_world.snapshot.empty_until_ms
    trusted = target.quote_age_s <= 600 and target.offer.key not in a_world.snapshot.quarantined
    if decision.kind is DecisionKind.MOVE:
        assert trusted
        assert subject.active is not None
        assert subject.active.offer.key not in a_world.snapshot.quarantined
        assert a_world.snapshot.quotes[subject.active.offer.key].age_s(NOW) <= 600
        assert subject.job.commit is not None
        assert subject.moves_24h < 2
        assert a_world.migrations_running < 2
    else:
        assert trusted is not decision.degraded_quotes
        assert trusted or subject.lost is not None


@settings(deadline=None, max_examples=100)
@given(worlds(), subjects(), policies(), st.floats(1, 10))
def test_a_dearer_place_here_never_turns_a_move_into_staying(
    a_world: World, subject: Subject, a_policy: Policy, factor: float
) -> None:
    before, _ = decide(subject, a_policy, a_world, "d")
    if before.kind is not DecisionKind.MOVE:
        return
    assert subject.active is not None
    key = subject.active.offer.key
    here = a_world.snapshot.quotes[key]
    dearer = replace(here, price_micro_usd_h=round(here.price_micro_usd_h * factor))
    snapshot = replace(a_world.snapshot, quotes={**a_world.snapshot.quotes, key: dearer})
    after, _ = decide(subject, a_policy, replace(a_world, snapshot=snapshot), "d")
    assert after.kind is DecisionKind.MOVE


@settings(deadline=None, max_examples=100)
@given(worlds(), subjects(), policies())
def test_stale_prices_never_block_a_recovery(a_world: World, subject: Subject, a_policy: Policy) -> None:
    if subject.lost is None:
        return
    quotes = a_world.snapshot.quotes
    young = {key: replace(q, observed_at_ms=NOW) for key, q in quotes.items()}
    old = {key: replace(q, observed_at_ms=NOW - 86_400_000) for key, q in quotes.items()}
    fresh, _ = decide(
        subject, a_policy, replace(a_world, snapshot=replace(a_world.snapshot, quotes=young)), "d"
    )
    stale, _ = decide(
        subject, a_policy, replace(a_world, snapshot=replace(a_world.snapshot, quotes=old)), "d"
    )
    assert fresh.kind is stale.kind
