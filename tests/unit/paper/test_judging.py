"""Verdicts: an expectation can be met, missed and never reached, and each failure says what was instead, and why."""

from pathlib import Path

import pytest

from broker.core.offer import Market
from broker.paper.run import by_the_second, free
from broker.paper.testing.judge import Failure, Verdict, judge
from broker.paper.testing.read import read_cases
from broker.paper.testing.report import as_json, as_text
from broker.paper.testing.scaffold import cases_text, policy_text

POLICY = "policy: eager\nmode: act\nmigrate: {min_saving_usd: 0, hold: 10m}\n"
AWS, GCP = "aws/use1-az6/p5.48xlarge/spot", "gcp/us-central1-a/a3-highgpu-8g/spot"
# A landing takes 5m15s, the hand-over a minute more; seen dear at 60m, so the job moves at 70m.
HEAD = f"""\
policy: eager.yaml
given:
  job: {{gpus: H100:8, work: 10h, saves_on_stop: true}}
  prices: {{{AWS}: "32.0x58m 61.0", {GCP}: "35.0"}}
cases:
  - name: moves
"""


def verdict(folder: Path, body: str, policy: str = POLICY) -> Verdict:
    (folder / "eager.yaml").write_text(policy)
    path = folder / "eager.test.yaml"
    path.write_text(HEAD + "".join(f"    {line}\n" for line in body.splitlines()))
    file, errors = read_cases(path)
    assert file is not None, "\n".join(map(str, errors))
    return judge(file.cases[0], by_the_second, free)


def only(folder: Path, body: str) -> Failure:
    failures = verdict(folder, body).failures
    assert len(failures) == 1, failures
    return failures[0]


@pytest.mark.parametrize(
    "body",
    [
        "expect: [{at: 0m, decision: place, to: aws/*}]",
        "expect: [{at: 3m, decision: place}]",  # an answer stands until the next one
        "expect: [{at: 65m, decision: stay, on: aws/*, why: migrate.hold}]",
        "expect: [{at: 70m, decision: move, to: gcp/*, acted: true, why: [migrate.min_saving, migrate.hold]}]",
        "expect: [{at: 60m..2h, decision: move}]",
        "expect: [{at: 75m, decision: stay, why: landing}]",
        "expect: [{at: 80m, on: gcp/*}]",
        "never: [{decision: move, at: 0..69m}]",
        "never: [{to: '*/on_demand'}, {decision: stop}]",
        "finally: {finished: true, done_by: 11h, on: gcp/*, moves: 1, launches: 2, refusals: 0, interruptions: 0}",
        "finally: {cost_below: 400, cost_above: 350, redone_below: 1s}",
        "until: 2h\nfinally: {finished: false}",
    ],
)
def test_what_is_as_it_has_to_be_passes(tmp_path: Path, body: str) -> None:
    assert verdict(tmp_path, body).failures == ()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "expect: [{at: 65m, decision: move, to: gcp/*}]",
            "at 1h5m: expected move to gcp/*; the answer is stay and the target is none",
        ),
        (
            "expect: [{at: 62m, decision: move}]",
            "at 1h2m: expected move; the answer is stay since 1h",
        ),
        (
            "expect: [{at: 70m, decision: move, acted: false}]",
            "at 1h10m: expected move only recorded; it was carried out",
        ),
        (
            "expect: [{at: 65m, decision: stay, why: migrate.cooldown}]",
            "at 1h5m: expected stay because of 'migrate.cooldown'; no line for it says 'migrate.cooldown'",
        ),
        (
            "expect: [{at: 10m..20m, decision: move}]",
            "from 10m to 20m: expected move; the answer is stay in the end, at 20m",
        ),
        (
            "expect: [{at: 20h, decision: stay}]",
            "at 20h: expected stay; never reached: the job finished at 10h7m",
        ),
        ("never: [{decision: move}]", "never: move; it happened at 1h10m"),
        (
            "never: [{to: gcp/*, at: 1h..2h}]",
            "never from 1h to 2h: any answer to gcp/*; it happened at 1h10m",
        ),
        ("finally: {finished: false}", "finished: expected false; the work is done"),
        ("finally: {done_by: 10h}", "done_by: expected by 10h; done at 10h7m"),
        ("until: 2h\nfinally: {done_by: 1h}", "done_by: expected by 1h; not done"),
        ("finally: {on: aws/*}", f"on: expected aws/*; it ended on {GCP}"),
        ("finally: {moves: 0}", "moves: expected 0; got 1"),
        ("finally: {moves: 2..}", "moves: expected at least 2; got 1"),
        ("finally: {launches: 3..5}", "launches: expected 3 to 5; got 2"),
        ("finally: {cost_below: 100}", "cost_below: expected less than $100.00; got $"),
        ("finally: {cost_above: 1000}", "cost_above: expected more than $1000.00; got $"),
    ],
)
def test_what_is_not_fails_and_says_what_was_instead(tmp_path: Path, body: str, message: str) -> None:
    assert only(tmp_path, body).message.startswith(message)


def test_a_missed_answer_comes_with_its_reasons_as_why_prints_them(tmp_path: Path) -> None:
    told = verdict(tmp_path, "expect: [{at: 65m, decision: move}]")
    text = as_text([told], [])
    assert "  FAIL  moves" in text
    assert f"{tmp_path}/eager.test.yaml:7:14: at 1h5m: expected move" in text
    assert "no       migrate.hold: 10m" in text
    assert f"{GCP}  $35.00/h" in text
    assert text.endswith("1 case, 1 failed\n")


def test_lost_work_is_counted(tmp_path: Path) -> None:
    body = f'job: {{saves_on_stop: false}}\nstock: {{{AWS}: "4x50m 0"}}\nfinally: {{redone_below: 1m}}'
    assert only(tmp_path, body).message.startswith("redone_below: expected less than 1m; got")


def test_an_expectation_before_the_first_answer_is_no_answer(tmp_path: Path) -> None:
    told = only(tmp_path, "poll: 1h\njob: {running_on: " + AWS + "}\nexpect: [{at: 0m..0m, decision: move}]")
    assert "the answer is stay" in told.message


def test_two_answers_at_one_moment_may_both_be_expected(tmp_path: Path) -> None:
    body = f"stock: {{{AWS}: 0}}\nexpect: [{{at: 0, decision: place, to: aws/*}}, {{at: 0, decision: place, to: gcp/*}}]"
    assert verdict(tmp_path, body).failures == ()


def test_the_report_counts_what_was_never_reached_and_names_what_has_no_test(tmp_path: Path) -> None:
    told = verdict(tmp_path, "expect: [{at: 20h, decision: stay}]")
    text = as_text([told], [Path("policies/bare.yaml")])
    assert "no test: policies/bare.yaml\n" in text
    assert text.endswith("1 case, 1 failed, 1 expectation never reached, 1 policy without a test\n")


def test_programs_get_the_same_as_plain_values(tmp_path: Path) -> None:
    plain = as_json([verdict(tmp_path, "expect: [{at: 65m, decision: move}]")], [Path("p.yaml")])
    (case,) = plain["cases"]
    assert (case["name"], case["passed"], case["policy"], case["mode"]) == ("moves", False, "eager", "act")
    assert (case["moves"], case["launches"], case["finished_s"]) == (0, 1, None)
    (failure,) = case["failures"]
    assert (failure["line"], failure["column"], failure["reached"]) == (7, 14, True)
    assert failure["answer"]["headline"].startswith("stay: stays on aws/use1-az6 p5.48xlarge spot")
    assert (plain["failed"], plain["untested"]) == (1, ["p.yaml"])


def test_the_scaffold_passes_under_the_tariffs_of_clouds_and_without_any(tmp_path: Path) -> None:
    from providers import tariffs

    (tmp_path / "mine.yaml").write_text(policy_text("mine"))
    (tmp_path / "mine.test.yaml").write_text(cases_text("mine"))
    file, errors = read_cases(tmp_path / "mine.test.yaml")
    assert errors == []
    for case in file.cases:
        for rule_of, egress in (
            (by_the_second, free),
            (tariffs.billing_rule, tariffs.egress_micro_usd_per_gib),
        ):
            told = judge(case, rule_of, egress)
            assert told.passed, as_text([told], [])


def test_bills_are_by_the_rules_that_are_given(tmp_path: Path) -> None:
    from providers.tariffs import billing_rule, egress_micro_usd_per_gib

    told = verdict(tmp_path, f'stock: {{{AWS}: "4x50m 0"}}\nuntil: 55m\nfinally: {{finished: false}}')
    free_hour = judge(told.case, billing_rule, egress_micro_usd_per_gib).outcome
    assert billing_rule("aws", Market.SPOT).free_if_interrupted_within_s == 3600
    assert told.outcome.bills[0].paid_micro_usd > 0
    assert free_hour.bills[0].paid_micro_usd == 0
