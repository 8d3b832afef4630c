"""Which policy speaks for a job."""

from dataclasses import replace

import pytest

from broker.core.errors import NotFound, PolicyError
from broker.core.offer import Market, Offer
from broker.core.spec import GpuRequest, JobSpec, Priority, Resources
from broker.policy.schema import Match, Mode, Policy
from broker.policy.select import beside, choose, matches, select

SPEC = JobSpec(
    "train", "run", Resources((GpuRequest("H100"),)), team="research", labels={"tier": "gold", "a": "b"}
)


def policy(name: str, mode: Mode = Mode.ACT, precedence: int = 0, teams: tuple[str, ...] = ()) -> Policy:
    return Policy(
        name, "0" * 64, f"policies/{name}.yaml", mode=mode, precedence=precedence, match=Match(teams)
    )


OBSERVE = Mode.OBSERVE


@pytest.mark.parametrize(
    ("match", "holds"),
    [
        (Match(), True),
        (Match(teams=("vision", "research")), True),
        (Match(teams=("vision",)), False),
        (Match(labels={"tier": "gold"}), True),
        (Match(labels={"tier": "gold", "x": "y"}), False),
        (Match(priorities=(Priority.NORMAL,)), True),
        (Match(priorities=(Priority.URGENT,)), False),
        (Match(projects=("p1",)), True),
        (Match(projects=("p2",)), False),
        (Match(teams=("research",), projects=("p2",)), False),
    ],
)
def test_every_part_that_is_given_must_hold(match: Match, holds: bool) -> None:
    assert matches(match, SPEC, "p1") is holds


def test_a_job_without_a_team_is_no_teams() -> None:
    assert not matches(Match(teams=("research",)), replace(SPEC, team=None), "p1")


def chosen(*policies: Policy, spec: JobSpec = SPEC) -> str:
    return select(policies, spec, "p1").name


def test_a_jobs_own_word_wins() -> None:
    other = policy("other", OBSERVE, teams=("vision",))
    assert chosen(policy("high", precedence=9), other, spec=replace(SPEC, policy="other")) == "other"


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(NotFound, match="there is no policy named hihg; did you mean high"):
        chosen(policy("high"), spec=replace(SPEC, policy="hihg"))


def test_the_highest_precedence_wins() -> None:
    assert (
        chosen(policy("a", precedence=1), policy("b", precedence=2), policy("c", precedence=3, teams=("x",)))
        == "b"
    )


def test_a_tie_names_both() -> None:
    with pytest.raises(
        PolicyError, match=r"a \(policies/a.yaml\) and b \(policies/b.yaml\).*precedence 4"
    ) as raised:
        chosen(policy("a", precedence=4), policy("b", precedence=4), policy("c", precedence=3))
    assert raised.value.hint == "raise the precedence of one of them"


def test_an_observing_policy_does_not_compete_with_an_acting_one() -> None:
    trial, acting = policy("trial", OBSERVE, precedence=99), policy("acting")
    assert chosen(trial, acting) == "acting"
    assert [p.name for p in beside([trial, acting], acting, SPEC, "p1")] == ["trial"]


def test_an_acting_default_goes_before_a_trial_and_after_an_acting_match() -> None:
    trial, default = policy("trial", OBSERVE), policy("default")
    assert chosen(trial, default) == "default"
    assert chosen(trial, default, policy("acting")) == "acting"


def test_where_nobody_acts_the_observing_match_places() -> None:
    trial, default = policy("trial", OBSERVE), policy("default", OBSERVE)
    assert chosen(default, trial) == "trial"
    assert beside([default, trial], trial, SPEC, "p1") == []


def test_default_is_for_everything_else() -> None:
    assert chosen(policy("default", OBSERVE), policy("x", teams=("vision",))) == "default"


def test_nothing_matches_and_there_is_no_default() -> None:
    with pytest.raises(NotFound, match="no policy speaks for job train"):
        chosen(policy("x", teams=("vision",)))


def test_a_copy_that_observes_beside_another_that_observes_stops_nothing() -> None:
    shipped = policy("ride-the-spot", OBSERVE, precedence=10, teams=("research",))
    copy = replace(shipped, name="nights", file="policies/nights.yaml")
    assert chosen(shipped, copy) == "nights", "by name, where neither has decided before"
    assert select([copy, shipped], SPEC, "p1", former="ride-the-spot") is shipped
    assert beside([shipped, copy], shipped, SPEC, "p1") == [copy]


LOST = Offer("gcp", "us-central1", "us-central1-a", "a3-highgpu-1g", Market.SPOT, "H100", 1, 80 << 30)


def test_a_tie_leaves_a_job_with_the_policy_that_decided_before() -> None:
    a, b, c = policy("a"), policy("b"), policy("c", teams=("vision",))
    for former in (a, b, c):
        choice = choose([a, b, c], SPEC, "p1", former.name, None)
        assert choice.policy is former
        assert choice.instead is not None
        assert choice.instead.startswith(f"{former.name} goes on deciding: job train is matched by a (")
        assert "\n" not in choice.instead
        assert not choice.only_rescues
    with pytest.raises(PolicyError, match="is matched by a"):
        choose([a, b], SPEC, "p1", None, None)


def test_nothing_is_said_where_one_policy_speaks() -> None:
    choice = choose([policy("a"), policy("b", precedence=1)], SPEC, "p1", "a", LOST)
    assert (choice.policy.name, choice.instead) == ("b", None)


@pytest.mark.parametrize("left", [(), ("a", "b")])
def test_a_job_whose_policy_is_gone_is_recovered_where_it_was(left: tuple[str, ...]) -> None:
    policies = [policy(name) for name in left]
    choice = choose(policies, SPEC, "p1", "gone", LOST)
    assert choice.only_rescues
    assert choice.policy.mode is OBSERVE, "it recovers; it never moves"
    assert (choice.policy.candidates.clouds, choice.policy.candidates.regions_allow) == (
        ("gcp",),
        ("us-central1",),
    )
    with pytest.raises((NotFound, PolicyError)):
        choose(policies, SPEC, "p1", "gone", None)
