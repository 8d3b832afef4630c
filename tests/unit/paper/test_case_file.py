"""Test files of policies: every mistake at its place, and what a file without one means."""

from pathlib import Path

import pytest

from broker.core.errors import PolicyError
from broker.core.model import DecisionKind
from broker.core.offer import Market
from broker.core.size import GIB
from broker.paper.job import Reports
from broker.paper.testing.case import Case, Measure, Pattern, Window
from broker.paper.testing.read import START_MS, read_cases
from broker.policy.schema import Mode

POLICY = "policy: eager\nmode: observe\nmigrate: {min_saving_usd: 0}\n"
GOOD = """\
policy: eager.yaml
cases:
  - name: starts
    job: {gpus: H100:8, work: 40h}
    prices: {aws/use1-az6/p5.48xlarge/spot: "32.0x30m 61.0"}
    expect: [{at: 0m, decision: place}]
"""


def written(folder: Path, text: str) -> tuple[tuple[Case, ...], list[PolicyError]]:
    (folder / "eager.yaml").write_text(POLICY)
    path = folder / "eager.test.yaml"
    path.write_text(text)
    file, errors = read_cases(path)
    return (file.cases if file else ()), errors


def case(folder: Path, **changed: str) -> Case:
    """The good case with other keys; an empty text takes a key out."""
    lines = {
        "name": "starts",
        "job": "{gpus: H100:8, work: 40h}",
        "prices": '{aws/use1-az6/p5.48xlarge/spot: "32.0x30m 61.0"}',
        "expect": "[{at: 0m, decision: place}]",
    } | changed
    body = "\n".join(f"    {key}: {value}" for key, value in lines.items() if value).replace(
        "    ", "  - ", 1
    )
    cases, errors = written(folder, f"policy: eager.yaml\ncases:\n{body}\n")
    assert not errors, "\n".join(map(str, errors))
    return cases[0]


def told(folder: Path, **changed: str) -> str:
    """The first mistake of the case, from its line on."""
    with pytest.raises(AssertionError) as error:
        case(folder, **changed)
    return str(error.value)


def test_a_case_has_a_start_a_market_and_a_job(tmp_path: Path) -> None:
    read = case(tmp_path)
    assert (read.name, read.start_ms, read.until_ms) == ("starts", START_MS, START_MS + 3_600_000)
    assert read.policy.mode is Mode.OBSERVE
    assert [o.key for o in read.offers] == ["aws/use1-az6/p5.48xlarge/spot"]
    assert read.job.total_steps == 40 * 3600
    assert read.job.pace.steps_per_s == {"H100-SXM5-80GB": 1.0}
    assert read.job.spec.checkpoint is not None
    assert read.expect[0].pattern == Pattern(DecisionKind.PLACE)


def test_a_job_is_told_in_the_words_of_a_job_file(tmp_path: Path) -> None:
    read = case(
        tmp_path,
        start="2026-03-01T08:00:00Z",
        job="{gpus: H100:8, nodes: 2, market: [spot], team: nlp, labels: {a: b}, priority: high, data: 300GiB,"
        " checkpoint: 20m, checkpoint_size: 80GiB, deadline: 60h, steps: 1000, steps_per_s: {H100-SXM5-80GB: 2.5},"
        " reports: from_the_start, saves_on_stop: true, project: p7, deny: [aws/us-west-2]}",
    )
    spec, job = read.job.spec, read.job
    assert (spec.resources.nodes, spec.resources.markets, spec.team) == (2, (Market.SPOT,), "nlp")
    assert (spec.labels, spec.priority.value, spec.data[0].size_bytes) == ({"a": "b"}, "high", 300 * GIB)
    assert spec.checkpoint.every_s == 1200
    assert spec.deadline_ms == read.start_ms + 60 * 3_600_000
    assert (job.total_steps, job.pace.steps_per_s) == (1000, {"H100-SXM5-80GB": 2.5})
    assert (job.reports, job.handles_term, job.job.project_id) == (Reports.FROM_THE_START, True, "p7")
    assert job.checkpoint_bytes == 80 * GIB


def test_a_job_that_cannot_resume_is_not_interrupted_unless_it_says_so(tmp_path: Path) -> None:
    read = case(tmp_path, job="{gpus: H100:8, work: 4h, checkpoint: none}")
    assert read.job.spec.checkpoint is None
    assert read.job.spec.resources.markets == (Market.ON_DEMAND,)


def test_a_job_may_run_already(tmp_path: Path) -> None:
    read = case(
        tmp_path, job="{gpus: H100:8, work: 40h, running_on: aws/use1-az6/p5.48xlarge/spot, trained: 3h}"
    )
    assert read.job.active.offer.key == "aws/use1-az6/p5.48xlarge/spot"
    assert (read.job.done_steps, read.job.saved_steps, read.job.now_ms) == (10_800, 10_800, START_MS)


def test_a_case_adds_to_what_is_given_key_by_key(tmp_path: Path) -> None:
    cases, errors = written(
        tmp_path,
        """\
policy: eager.yaml
mode: act
given:
  job: {gpus: H100:8, work: 40h, team: nlp}
  prices: {aws/use1-az6/p5.48xlarge/spot: "32.0", gcp/us-central1-a/a3-highgpu-8g/spot: "35.0"}
  until: 3h
cases:
  - {name: one, expect: [{at: 0, decision: place}]}
  - name: two
    mode: observe
    job: {work: 2h}
    prices: {aws/use1-az6/p5.48xlarge/spot: "9.0"}
    never: [{decision: move}]
""",
    )
    assert not errors, errors
    one, two = cases
    assert (one.policy.mode, two.policy.mode) == (Mode.ACT, Mode.OBSERVE)
    assert (one.job.total_steps, two.job.total_steps, two.job.spec.team) == (144_000, 7200, "nlp")
    assert two.job.spec.resources == one.job.spec.resources
    aws = next(o for o in two.offers if o.cloud == "aws")
    assert (two.market.points(aws)[0].price_micro_usd_h, len(two.offers)) == (9_000_000, 2)
    assert two.until_ms == START_MS + 3 * 3_600_000


def test_how_long_a_case_lasts(tmp_path: Path) -> None:
    def hours(**changed: str) -> float:
        return (case(tmp_path, **changed).until_ms - START_MS) / 3_600_000

    assert hours(expect="[{at: 7h, decision: stay}]") == 7
    assert hours(expect="[{at: 7h..9h, decision: stay}]") == 9
    assert hours(prices='{aws/use1-az6/p5.48xlarge/spot: "32.0x30h 61.0"}') == 30
    assert hours(never="[{at: 1h..20h, decision: move}]") == 20
    assert hours(until="5h") == 5
    assert hours(finally_="") == 1
    assert hours(**{"finally": "{finished: true}"}) == 720


def test_times_patterns_and_bounds(tmp_path: Path) -> None:
    read = case(
        tmp_path,
        expect="[{at: 40m..50m, decision: move, to: gcp/*, why: [a, b], acted: false}]",
        never='[{on: "*/on_demand"}]',
        **{
            "finally": "{done_by: 3h, cost_below: 500, cost_above: 2.5, moves: 0..2, launches: 1.., redone_below: 5m}"
        },
    )
    expected = read.expect[0]
    assert expected.when == Window(2_400_000, 3_000_000)
    assert expected.pattern == Pattern(DecisionKind.MOVE, "gcp/*", None, ("a", "b"), False)
    assert read.never[0].when is None
    bounds = {bound.key: bound for bound in read.finally_.bounds}
    assert (bounds["moves"].least, bounds["moves"].most) == (0, 2)
    assert (bounds["launches"].least, bounds["launches"].most) == (1, None)
    below, above = bounds["cost_below"], bounds["cost_above"]
    assert [below.allows(v) for v in (499.99, 500.0)] == [True, False]
    assert [above.allows(v) for v in (2.5, 2.51)] == [False, True]
    assert bounds["redone_below"].measure is Measure.REDONE_S
    assert read.finally_.done_by_ms == 3 * 3_600_000


def test_facts_of_a_machine_that_nobody_knows(tmp_path: Path) -> None:
    read = case(
        tmp_path,
        job="{gpus: [A100:2, H100:1], work: 1h}",
        prices='{local/rack-1/box/owned: "0.5", aws/nowhere/p5.48xlarge/spot: "1"}',
        offers="{local/*/box: {gpu: A100-SXM4-80GB, gpus: 2, region: lab, memory: 512GiB},"
        " aws/nowhere/*: {region: us-east-9}}",
    )
    box, aws = read.offers
    assert (box.gpu, box.gpus, box.region, box.memory_gib, box.interconnect) == (
        "A100-SXM4-80GB",
        2,
        "lab",
        512,
        "nvlink",
    )
    assert (aws.region, aws.gpus) == ("us-east-9", 8)


MISTAKES = [
    ({"job": "{gpus: H100:8}"}, "4:10: job.work is missing"),
    ({"job": "{work: 4h}"}, "4:10: job.gpus is missing"),
    ({"job": "{gpus: H1OO:8, work: 4h}"}, "unknown GPU 'H1OO'"),
    ({"job": "{gpus: H100:8, wrok: 4h}"}, "unknown key cases[0].job.wrok"),
    ({"job": ""}, "3:5: job is missing"),
    ({"job": "{gpus: H100:8, steps: 5}"}, "4:25: steps and steps_per_s belong together"),
    ({"job": "{gpus: H100:8, work: 4h, trained: 1h}"}, "say where: running_on"),
    ({"job": "{gpus: H100:8, work: 4h, running_on: aws/x/p5.48xlarge/spot}"}, "is not in prices"),
    (
        {"job": "{gpus: H100:8, work: 4h, trained: 4h, running_on: aws/use1-az6/p5.48xlarge/spot}"},
        "the job is done already",
    ),
    ({"job": "{gpus: H100:8, steps: 5, steps_per_s: {H100: 1}}"}, "unknown GPU H100"),
    ({"prices": ""}, "prices is missing"),
    ({"prices": "{aws/use1-az6/p5.48xlarge: 3}"}, "'aws/use1-az6/p5.48xlarge' is not an offer"),
    ({"prices": "{aws/use1-az6/p5.48xlarge/spto: 3}"}, "did you mean spot?"),
    ({"prices": "{asw/use1-az6/p5.48xlarge/spot: 3}"}, "did you mean aws?"),
    ({"prices": "{aws/use1-az6/p5.48xlage/spot: 3}"}, "did you mean p5.48xlarge?"),
    ({"prices": "{aws/here/p5.48xlarge/spot: 3}"}, "in which region is here of aws?"),
    (
        {"prices": '{aws/use1-az6/p5.48xlarge/spot: "3x5m 4.O"}'},
        "5:51: cases[0].prices.aws/use1-az6/p5.48xlarge/spot",
    ),
    ({"stock": "{aws/use1-az6/p5.48xlarge/on_demand: 3}"}, "which has no price"),
    ({"expect": "[{decision: place}]"}, "at is missing"),
    ({"expect": "[{at: 5m}]"}, "any answer would do"),
    ({"expect": "[{at: 9m..5m, decision: stay}]"}, "ends before it begins"),
    ({"expect": "[{at: soon, decision: stay}]"}, "'soon' is not a duration"),
    ({"expect": "[{at: 5m, decision: mvoe}]"}, "did you mean move?"),
    ({"expect": ""}, "the case expects nothing"),
    ({"never": "[{at: 5m}]"}, "every answer would be wrong"),
    ({"finally": "{moves: few}"}, "write 2, 0..2, or 1.. for at least one"),
    ({"finally": "{moves: 3..1}"}, "no number is from 3 to 1"),
    ({"finally": "{cost_below: -3}"}, "out of range"),
    ({"until": "366d", "poll": "1s"}, "20000 are allowed"),
    ({"start": "tomorrow"}, "is not a date and time"),
    ({"mode": "actt"}, "did you mean act?"),
    ({"policy": "eagre.yaml"}, "there is no file"),
    ({"spot_life": "{aws/p5: 2h}"}, "is not cloud/zone/instance_type"),
    ({"offers": "{aws/x: {gpu: A100-SXM4-80GB, gpus: 2}}"}, "is not cloud/zone/instance_type"),
    ({"offers": "{aws/x/y: {gpu: A100-SXM4-80GB}}"}, "gpu and gpus belong together"),
    ({"timing": "{boots: 5m}"}, "unknown key cases[0].timing.boots"),
]


@pytest.mark.parametrize(("changed", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_a_mistake_is_told_at_its_place(tmp_path: Path, changed: dict[str, str], message: str) -> None:
    text = told(tmp_path, **changed)
    assert message in text
    assert f"{tmp_path}/eager.test.yaml:" in text


def test_all_mistakes_of_a_file_are_told_once_and_in_order(tmp_path: Path) -> None:
    _, errors = written(
        tmp_path,
        """\
policy: eager.yaml
given: {prices: {aws/use1-az6/p5.48xlarge/spot: "3x"}}
cases:
  - {name: one, job: {gpus: H100:8, work: 4x}, expect: [{at: 0, decision: place}]}
  - {name: one, job: {gpus: H100:8, work: 4h}, expct: []}
""",
    )
    places = [(e.place.line, e.message.split(":")[0]) for e in errors]
    assert places == [
        (2, "given.prices.aws/use1-az6/p5.48xlarge/spot"),
        (4, "cases[0].job.work"),
        (5, "the case expects nothing"),
        (5, "unknown key cases[1].expct"),
    ]


def test_two_cases_of_one_name_are_a_mistake(tmp_path: Path) -> None:
    _, errors = written(tmp_path, GOOD + GOOD.split("cases:\n")[1])
    assert [e.message for e in errors] == ["the name 'starts' is taken on line 3"]


def test_a_mistake_in_the_policy_is_told_there(tmp_path: Path) -> None:
    path = tmp_path / "eager.test.yaml"
    path.write_text(GOOD)
    (tmp_path / "eager.yaml").write_text("policy: eager\nmigrate: {min_saving: 20}\n")
    _, errors = read_cases(path)
    assert [(e.place.file, e.place.line) for e in errors] == [(str(tmp_path / "eager.yaml"), 2)]


@pytest.mark.parametrize(
    "text", ["", "- a\n", "policy: [\n", "cases: []\n", "policy: eager.yaml\ncases: 3\n"]
)
def test_what_is_no_file_of_tests_is_refused(tmp_path: Path, text: str) -> None:
    cases, errors = written(tmp_path, text)
    assert cases == ()
    assert errors
