"""The policy file's reader: what a good file becomes, and what a person sees of a mistake."""

import hashlib
from textwrap import dedent

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.core.errors import PolicyError
from broker.core.offer import Market
from broker.core.spec import Priority
from broker.policy.load import load_policy, mistakes
from broker.policy.schema import Budget, Limits, Match, Migrate, Mode, Objective, OnInconclusive, Verify

FULL = """\
policy: night
description: Nights only.
mode: act
match: {team: [research, vision], labels: {tier: gold}, priority: low, project: p1}
precedence: 7
candidates:
  clouds: [aws, gcp]
  regions: {allow: ["us-*"], deny: ["us-west-*"]}
  max_quote_age: 5m
  where: ['offer.gpu.memory_gib >= 80', 'offer.price < 3.5']
objective: cheapest_by_deadline
place: {order: [spot, on_demand], skip_spot_when: ['!job.has_checkpoint']}
migrate:
  min_saving: 12.5%
  min_saving_usd: 80.0
  max_payback: 90m
  hold: 0s
  cooldown: 1h
  where: ['saving.usd > 3.0 * migration.cost_usd']
verify: {profile: quick, min_speed: 85%, on_inconclusive: accept}
budget: {run_usd: 100, epoch_usd: 2.5, month_usd: 64000, at_80_percent: spot_only}
stop: {when: ['metrics.val_loss > 2.0 * metrics.best_val_loss'], nan_loss: true, hold: 2 readings}
limits: {migrations_per_job_per_day: 2, concurrent_migrations: 3, max_usd_per_hour: 80}
"""


def test_every_key_arrives() -> None:
    policy = load_policy(FULL, "policies/night.yaml")

    assert (policy.name, policy.description, policy.file) == ("night", "Nights only.", "policies/night.yaml")
    assert policy.sha256 == hashlib.sha256(FULL.encode()).hexdigest()
    assert (policy.mode, policy.precedence) == (Mode.ACT, 7)
    assert policy.match == Match(("research", "vision"), {"tier": "gold"}, (Priority.LOW,), ("p1",))
    assert policy.candidates.clouds == ("aws", "gcp")
    assert (policy.candidates.regions_allow, policy.candidates.regions_deny) == (("us-*",), ("us-west-*",))
    assert policy.candidates.max_quote_age_s == 300
    assert [(c.text, c.place) for c in policy.candidates.where] == [
        ("offer.gpu.memory_gib >= 80", "policies/night.yaml:10"),
        ("offer.price < 3.5", "policies/night.yaml:10"),
    ]
    assert policy.objective is Objective.CHEAPEST_BY_DEADLINE
    assert policy.place.order == (Market.SPOT, Market.ON_DEMAND)
    assert [c.text for c in policy.place.skip_spot_when] == ["!job.has_checkpoint"]
    migrate = policy.migrate
    assert (migrate.min_saving, migrate.min_saving_micro_usd) == (0.125, 80_000_000)
    assert (migrate.max_payback_s, migrate.hold_s, migrate.cooldown_s) == (5400, 0, 3600)
    assert policy.verify == Verify("quick", 0.85, OnInconclusive.ACCEPT)
    assert policy.stop is not None
    assert [c.needs for c in policy.stop.when] == [("metrics.val_loss", "metrics.best_val_loss")]
    assert (policy.stop.nan_loss, policy.stop.hold_readings) == (True, 2)
    assert policy.budget == Budget(100_000_000, 2_500_000, 64_000_000_000, True)
    assert policy.limits == Limits(2, 3, 80_000_000)


def test_one_line_is_a_policy_that_observes() -> None:
    policy = load_policy("policy: small\n", "small.yaml")
    assert policy.mode is Mode.OBSERVE
    assert policy.migrate == Migrate()
    assert policy.limits == Limits()


def test_migrate_never() -> None:
    assert load_policy("policy: p\nmigrate: never\n", "p.yaml").migrate == Migrate(enabled=False)


@pytest.mark.parametrize("amount", ["80", "80.0", "80.00"])
def test_dollars_with_and_without_a_fraction(amount: str) -> None:
    policy = load_policy(f"policy: p\nlimits: {{max_usd_per_hour: {amount}}}\n", "p.yaml")
    assert policy.limits.max_micro_usd_per_hour == 80_000_000


TABLE = [
    (
        "objectve: cheapest",
        """\
        p.yaml:2:1: unknown key objectve
            objectve: cheapest
            ^
        hint: did you mean objective?""",
    ),
    (
        "migrate: {min_savings: 20%}",
        """\
        p.yaml:2:11: unknown key migrate.min_savings
            migrate: {min_savings: 20%}
                      ^
        hint: did you mean min_saving?""",
    ),
    (
        "mode: act\nmode: observe",
        """\
        p.yaml:3:1: duplicate key mode; first on line 2
            mode: observe
            ^""",
    ),
    (
        "mode: acts",
        """\
        p.yaml:2:7: mode: 'acts' is not one of observe, act
            mode: acts
                  ^
        hint: did you mean act?""",
    ),
    (
        "mode:",
        """\
        p.yaml:2:1: mode is empty
            mode:
            ^
        hint: write a value, or leave the key out""",
    ),
    (
        "migrate: {min_saving: 0.2}",
        """\
        p.yaml:2:23: migrate.min_saving: expected a share, got the number 0.2
            migrate: {min_saving: 0.2}
                                  ^
        hint: write 20%""",
    ),
    (
        "migrate: {min_saving: 120%}",
        """\
        p.yaml:2:23: migrate.min_saving: 120% is out of range
            migrate: {min_saving: 120%}
                                  ^
        hint: 0% to 100%""",
    ),
    (
        "migrate: {hold: -5m}",
        """\
        p.yaml:2:17: migrate.hold: a duration is not negative
            migrate: {hold: -5m}
                            ^""",
    ),
    (
        "migrate: {hold: 10}",
        """\
        p.yaml:2:17: migrate.hold: expected a duration, got the number 10
            migrate: {hold: 10}
                            ^
        hint: write 10s or 10m""",
    ),
    (
        "candidates: {max_quote_age: 0s}",
        """\
        p.yaml:2:29: candidates.max_quote_age: 0s is out of range
            candidates: {max_quote_age: 0s}
                                        ^
        hint: at least 1s""",
    ),
    (
        "migrate: {min_saving_usd: $25}",
        """\
        p.yaml:2:27: migrate.min_saving_usd: expected dollars as a number, got the text '$25'
            migrate: {min_saving_usd: $25}
                                      ^
        hint: write 25""",
    ),
    (
        "migrate: {min_saving_usd: -1}",
        """\
        p.yaml:2:27: migrate.min_saving_usd: -1 dollars is out of range
            migrate: {min_saving_usd: -1}
                                      ^
        hint: 0 to 1000000000""",
    ),
    (
        "migrate: nevr",
        """\
        p.yaml:2:10: migrate: expected a mapping or never, got the text 'nevr'
            migrate: nevr
                     ^""",
    ),
    (
        "candidates: {clouds: [aws, gpc]}",
        """\
        p.yaml:2:28: candidates.clouds[1]: 'gpc' is not one of aws, gcp, azure, lambda, coreweave, local
            candidates: {clouds: [aws, gpc]}
                                       ^
        hint: did you mean gcp?""",
    ),
    (
        "candidates: {clouds: [aws, aws]}",
        """\
        p.yaml:2:28: candidates.clouds: aws stands here twice
            candidates: {clouds: [aws, aws]}
                                       ^""",
    ),
    (
        "place: {order: []}",
        """\
        p.yaml:2:16: place.order is empty
            place: {order: []}
                           ^
        hint: leave the key out, or write at least one""",
    ),
    (
        "candidates:\n  regions:\n    allow: [us-east-1]\n    deny: [us-east-1]",
        """\
        p.yaml:5:5: us-east-1 is both allowed and denied
                deny: [us-east-1]
                ^""",
    ),
    (
        "candidates: {regions: {deny: ['*']}}",
        """\
        p.yaml:2:24: every region is denied: no job could ever run
            candidates: {regions: {deny: ['*']}}
                                   ^""",
    ),
    (
        "place: {order: [on_demand], skip_spot_when: ['!job.has_checkpoint']}",
        """\
        p.yaml:2:29: skip_spot_when is never asked: spot is not in order
            place: {order: [on_demand], skip_spot_when: ['!job.has_checkpoint']}
                                        ^
        hint: take one of them out""",
    ),
    (
        "limits: {concurrent_migrations: 0}",
        """\
        p.yaml:2:33: limits.concurrent_migrations: 0 would forbid every move
            limits: {concurrent_migrations: 0}
                                            ^
        hint: write migrate: never""",
    ),
    (
        "match: {labels: {tier: 1}}",
        """\
        p.yaml:2:24: match.labels.tier: expected text, got the number 1
            match: {labels: {tier: 1}}
                                   ^
        hint: put it in quotes: "1\"""",
    ),
    (
        "candidates: {where: 'offer.price < 3.0'}",
        """\
        p.yaml:2:21: candidates.where: expected a list, got the text 'offer.price < 3.0'
            candidates: {where: 'offer.price < 3.0'}
                                ^""",
    ),
    (
        "candidates:\n  where:\n    - 'offer.prise < 3.0'",
        """\
        p.yaml:4:8: unknown fact offer.prise
                - 'offer.prise < 3.0'
                   ^
        hint: did you mean offer.price?""",
    ),
    (
        "candidates:\n  where:\n    - offer.gpus == 8 && offer.price < 3",
        """\
        p.yaml:4:38: < does not work between a number (double) and a whole number (int)
                - offer.gpus == 8 && offer.price < 3
                                                 ^
        hint: prices are dollars and shares are 0..1: write 3.0""",
    ),
    (
        "candidates: {where: ['1 < 2']}",
        """\
        p.yaml:2:23: the condition speaks of no fact: it never changes
            candidates: {where: ['1 < 2']}
                                  ^
        hint: docs/reference/facts.md""",
    ),
    (
        "budget: {run_usd: 0}",
        """\
        p.yaml:2:19: budget.run_usd: 0 dollars would forbid everything
            budget: {run_usd: 0}
                              ^
        hint: leave the key out for no bound""",
    ),
    (
        "budget: {run_usd: 80, at_80_percent: spot_only}",
        """\
        p.yaml:2:23: at_80_percent is of the month
            budget: {run_usd: 80, at_80_percent: spot_only}
                                  ^
        hint: give month_usd, or take at_80_percent out""",
    ),
    (
        "stop: {nan_loss: false}",
        """\
        p.yaml:2:7: stop ends no job
            stop: {nan_loss: false}
                  ^
        hint: give when, or nan_loss: true""",
    ),
    (
        "stop: {when: ['job.step > 100']}",
        """\
        p.yaml:2:16: a line of stop.when speaks of a metric
            stop: {when: ['job.step > 100']}
                           ^
        hint: as in metrics.loss > 10.0""",
    ),
    (
        "extends: default",
        """\
        p.yaml:2:10: extends: 'default' is not the name of a policy file
            extends: default
                     ^
        hint: a file in the same folder, as in team.defaults.yaml""",
    ),
    (
        "selectable_by: [operator, admin]",
        """\
        p.yaml:2:27: selectable_by[1]: 'admin' is not one of viewer, engineer, author, operator
            selectable_by: [operator, admin]
                                      ^""",
    ),
]


@pytest.mark.parametrize(("body", "told"), TABLE, ids=[body.split("\n")[-1][:40] for body, _ in TABLE])
def test_what_a_person_sees(body: str, told: str) -> None:
    with pytest.raises(PolicyError) as raised:
        load_policy(f"policy: p\n{body}\n", "p.yaml")
    assert str(raised.value) == dedent(told)
    assert raised.value.exit_code == 2


def test_a_name_is_needed_and_plain() -> None:
    assert [str(e.message) for e in mistakes("mode: act\n", "p.yaml")] == ["policy is missing"]
    (error,) = mistakes("policy: Night Owl\n", "p.yaml")
    assert error.hint == "lower-case letters, digits and dashes, as in ride-the-spot"


def test_the_default_has_no_match() -> None:
    (error,) = mistakes("policy: default\nmatch: {team: a}\n", "p.yaml")
    assert error.message == "default speaks for every job that no other policy matches"


def test_all_mistakes_in_the_order_of_their_lines() -> None:
    text = "policy: p\nmode: off\nstop: {nan_loss: true, hold: x}\nmigrate: {hold: 1, cooldown: 2}\nplace: [spot]\n"
    told = [(e.place.line if e.place else 0, e.message) for e in mistakes(text, "p.yaml")]
    assert told == [
        (2, "mode: 'off' is not one of observe, act"),
        (3, "stop.hold: expected 1 to 10 readings, got the text 'x'"),
        (4, "migrate.hold: expected a duration, got the number 1"),
        (4, "migrate.cooldown: expected a duration, got the number 2"),
        (5, "place: expected a mapping (key: value), got a list"),
    ]


def test_a_folded_condition_is_told_at_its_start() -> None:
    text = "policy: p\ncandidates:\n  where:\n    - offer.gpus == 8 &&\n      offer.price < 3\n"
    (error,) = mistakes(text, "p.yaml")
    assert error.place is not None
    assert (error.place.line, error.place.column) == (4, 7)


@pytest.mark.parametrize("amount", ["1e999999", ".inf", ".nan", "1e400", "9" * 5000])
def test_absurd_amounts_are_refused(amount: str) -> None:
    assert mistakes(f"policy: p\nlimits: {{max_usd_per_hour: {amount}}}\n", "p.yaml")


@pytest.mark.parametrize("text", ["9" * 400 + "d", "367d", "1.5s", "10 minutes", "ten"])
def test_absurd_durations_are_refused(text: str) -> None:
    assert len(mistakes(f"policy: p\nmigrate: {{hold: {text}}}\n", "p.yaml")) == 1


_WORDS = st.sampled_from(
    [
        *FULL.replace("\n", " \n ").split(" "),
        "0x1F",
        "1_000",
        "null",
        "~",
        "&a",
        "*a",
        "!!binary",
        "|",
        ">-",
        "? ",
        ": ",
        "- ",
        "\t",
        '"\\UFFFFFFFF"',
        "{",
        "}",
        "[",
        "]",
        "---",
        "%YAML 9.9",
        "2026-01-01",
        "1:30",
        "<<",
        "\ud800",
        "\x00",
    ]
)


def _read_or_refuse(text: str) -> None:
    """Anything but a PolicyError is a failure, and so is one that cannot be shown."""
    try:
        load_policy(text, "random.yaml")
    except PolicyError as error:
        str(error)


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(_WORDS, max_size=40).map(" ".join)))
@example('policy: "\\UFFFFFFFF"')
@example("%YAML 9.9\n---\npolicy: p")
@example("policy: " + "[" * 1200)
def test_random_text_is_a_policy_or_a_policy_error(text: str) -> None:
    _read_or_refuse(text)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_mangled_policy_is_a_policy_or_a_policy_error(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(FULL)))
    until = data.draw(st.integers(at, min(len(FULL), at + 30)))
    _read_or_refuse(FULL[:at] + data.draw(st.text(max_size=5)) + FULL[until:])
