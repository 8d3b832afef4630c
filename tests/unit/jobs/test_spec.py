"""The job file: what it means, and where every mistake is."""

import json
import os
from pathlib import Path

import pytest

from broker.core.errors import SpecError
from broker.core.offer import Market
from broker.core.plain import from_plain, to_plain
from broker.core.spec import Checkpoint, DataSet, GpuRequest, JobSpec, KeepBest, Priority, Resources
from broker.core.time import from_iso
from broker.jobs.source import SourceRequest
from broker.jobs.spec import check_spec, load_job, parse_job

FULL = """\
name: llama-sft-7b
team: nlp
labels: {project: atlas}
priority: high
resources:
  nodes: 2
  gpus:
    - {type: h100, form: sxm, count: 8}
    - {type: A100, memory: ">=80GiB", count: 8}
    - H200:8
  market: [spot, on_demand]
  allow: [aws, gcp/us-*, azure/eastus/*]
  deny: [aws/us-east-1/use1-az3]
source: {path: ., exclude: [data/]}
setup: pip install -r requirements.txt
run: |
  cd work
  torchrun --nproc-per-node 8 train.py
env: {EPOCHS: 3, LR: 1e-4, EMPTY: "", FLAG: yes}
data:
  - {from: s3://acme/tokens, size: 300GiB}
checkpoint:
  dir: checkpoints
  every: 30m
  keep_last: 5
  keep_best: {metric: eval_loss}
stop: {deadline: 2026-12-04T08:00:00Z}
policy: night
"""


def test_every_field(tmp_path: Path):
    (tmp_path / "requirements.txt").touch()
    spec, source = parse_job(FULL, "train.yaml", tmp_path)
    assert spec == JobSpec(
        name="llama-sft-7b",
        team="nlp",
        labels={"project": "atlas"},
        priority=Priority.HIGH,
        resources=Resources(
            nodes=2,
            gpus=(
                GpuRequest("H100", 8, form="SXM"),
                GpuRequest("A100", 8, memory_gib_min=80),
                GpuRequest("H200", 8),
            ),
            markets=(Market.SPOT, Market.ON_DEMAND),
            allow=("aws", "gcp/us-*", "azure/eastus/*"),
            deny=("aws/us-east-1/use1-az3",),
        ),
        setup="pip install -r requirements.txt",
        run="cd work\ntorchrun --nproc-per-node 8 train.py\n",
        env={"EPOCHS": "3", "LR": "1e-4", "EMPTY": "", "FLAG": "yes"},
        data=(DataSet(300 * 1024**3, "s3://acme/tokens"),),
        checkpoint=Checkpoint("checkpoints", 1800, 5, KeepBest("eval_loss")),
        deadline_ms=from_iso("2026-12-04T08:00:00Z"),
        policy="night",
    )
    assert source == SourceRequest(tmp_path / ".", ("data/",))
    assert check_spec(from_plain(JobSpec, json.loads(json.dumps(to_plain(spec))))) == spec


def test_eight_lines_are_enough(tmp_path: Path):
    (tmp_path / "train.py").touch()
    file = tmp_path / "train.yaml"
    file.write_text(
        "name: t\nresources: {gpus: H100:8}\nsource: .\nrun: python train.py\ncheckpoint: {dir: ckpt}\n"
    )
    spec, _ = load_job(file)
    assert spec.resources == Resources((GpuRequest("H100", 8),))
    assert spec.checkpoint == Checkpoint("ckpt", every_s=600)


def test_a_job_without_checkpoints_runs_on_demand_unless_it_says_otherwise(tmp_path: Path):
    def markets(more: str) -> tuple[Market, ...]:
        return parse_job(f"name: t\nrun: nvidia-smi\nresources: {{gpus: L4{more}}}\n", "t", tmp_path)[
            0
        ].resources.markets

    assert markets("") == (Market.ON_DEMAND,)
    assert markets(", market: spot") == (Market.SPOT,)


BASE = "name: t\nrun: nvidia-smi\nresources: {gpus: L4}\n"
GPUS = "name: t\nrun: nvidia-smi\nresources:\n  gpus: "

MISTAKES = [
    # text, line, column, message, hint
    ("name: t\n", 1, 1, "run is missing", "the command that trains: run: python train.py"),
    ("nmae: t\n", 1, 1, "unknown key nmae", "did you mean name?"),
    (BASE + "name: u\n", 4, 1, "duplicate key name; first on line 1", None),
    (BASE + "team: 7\n", 4, 7, "team: expected text, got the number 7", 'put it in quotes: "7"'),
    (BASE.replace("t\n", "My Job\n", 1), 1, 7, "name: 'My Job' must be 1 to 48 lower-case letters, digits and dashes", "name: my-job"),
    (BASE + "priority: urgnet\n", 4, 11, "priority: 'urgnet' is not one of urgent, high, normal, low, scavenger", "did you mean urgent?"),
    (BASE + "labels: [a]\n", 4, 9, "labels: expected a mapping (key: value), got a list", None),
    # not yet
    (BASE + "budget: {run: 400}\n", 4, 1, "budget is not supported yet", "bound the spending per hour with the policy's limits"),
    (BASE + "stop: {max_runtime: 72h}\n", 4, 8, "stop.max_runtime is not supported yet", "use `timeout` in run"),
    (BASE.replace("L4}", "L4, disk: 1TiB}"), 3, 23, "resources.disk is not supported yet", None),
    (BASE + "checkpoint: {dir: c, format: hf}\n", 4, 22, "checkpoint.format is not supported yet", "it is recognised by its files"),
    (BASE + "data: [{size: 1GiB, to: /d}]\n", 4, 21, "data[0].to is not supported yet", "let the job fetch its data; from and size only price the move"),
    (GPUS + "{type: L4, speed: 2}\n", 4, 20, "resources.gpus.speed is not supported yet", "the broker measures it; leave it out"),
    # GPUs that cannot be
    (GPUS + "H10O:8\n", 4, 9, "resources.gpus: unknown GPU 'H10O'", "did you mean H100?"),
    (GPUS + "[L4, A100-80GB:8]\n", 4, 14, "resources.gpus[1]: unknown GPU 'A100-80GB'", "write {type: A100, memory: 80GiB}"),
    (GPUS + "H100:0\n", 4, 9, "resources.gpus: 0 GPUs is less than 1", None),
    (GPUS + "{type: H100, count: 0}\n", 4, 29, "resources.gpus.count: 0 is less than 1", None),
    (GPUS + f"H100:{10**26}\n", 4, 9, "resources.gpus: more than 1024 GPUs in one node", "for several nodes: resources.nodes"),
    (GPUS + f"[L4, H100:{'9' * 5000}]\n", 4, 14, "resources.gpus[1]: more than 1024 GPUs in one node", "for several nodes: resources.nodes"),
    (GPUS + "{type: H100, count: 1025}\n", 4, 29, "resources.gpus.count: 1025 is more than 1024", None),
    (GPUS + f"{{type: H100, memory: {'9' * 5000}GiB}}\n", 4, 30, 'resources.gpus.memory: expected GiB of each GPU, such as 80GiB or ">=80GiB", got the text ' + repr("9" * 40), None),
    (BASE.replace("L4}", "L4, nodes: 100000000000000000000000000}"), 3, 30, "resources.nodes: 10000000000000000000 is more than 1024", None),
    (GPUS + "{H100: 8}\n", 4, 9, "resources.gpus: expected type and count, got H100", "write H100:8, without a space"),
    (GPUS + "{type: L4, memory: 80GiB}\n", 4, 28, "resources.gpus.memory: there is no L4 with 80 GiB", "there are L4-24GB"),
    (GPUS + "{type: A100, memory: 60GiB}\n", 4, 30, "resources.gpus.memory: there is no A100 with 60 GiB", "there are A100-PCIe-40GB, A100-PCIe-80GB, A100-SXM4-40GB, A100-SXM4-80GB"),
    (GPUS + "{type: L4, memory: 24}\n", 4, 28, 'resources.gpus.memory: expected GiB of each GPU, such as 80GiB or ">=80GiB", got the number 24', None),
    (GPUS + "{type: L4, form: SXM}\n", 4, 26, "resources.gpus.form: there is no L4 with form SXM", "there are L4-24GB"),
    (GPUS + "8\n", 4, 9, "resources.gpus: expected a GPU, got the number 8", "write H100:8, or {type: A100, count: 8, memory: 80GiB}, or a list of alternatives"),
    (GPUS + "[]\n", 4, 9, "resources.gpus is empty", "write H100:8, or {type: A100, count: 8, memory: 80GiB}, or a list of alternatives"),
    (BASE.replace("L4}", "L4, nodes: two}"), 3, 30, "resources.nodes: expected a whole number, got the text 'two'", None),
    # places and markets
    (BASE.replace("L4}", "L4, market: on-demand}"), 3, 31, "resources.market: 'on-demand' is not one of owned, spot, on_demand, reserved", "did you mean on_demand?"),
    (BASE.replace("L4}", "L4, market: [spot, spot]}"), 3, 38, "resources.market[1]: spot is there twice", None),
    (BASE.replace("L4}", "L4, deny: [asw/us-*]}"), 3, 30, "resources.deny[0]: unknown cloud 'asw'", "did you mean aws?"),
    (BASE.replace("L4}", "L4, deny: [aws/a/b/c]}"), 3, 30, "resources.deny[0]: 'aws/a/b/c' is not cloud, cloud/region or cloud/region/zone", None),
    # the rest
    (BASE + "env: {BROKER_RANK: 1}\n", 4, 7, "env.BROKER_RANK: names with this start are set by the broker", None),
    (BASE + "env: {A-B: 1}\n", 4, 7, "env.A-B: not a name that a shell can set", None),
    (BASE + "env: {A: }\n", 4, 9, "env.A: expected text or a number, got nothing", 'an empty value is ""'),
    (BASE + "data: [{size: 300}]\n", 4, 15, "data[0].size: expected a size, got the number 300", "as in 300GiB"),
    (BASE + "data: [{size: 300G}]\n", 4, 15, "data[0].size: '300G' is not a size; write 500MiB, 80GiB or 2TiB", None),
    (BASE + "checkpoint: {every: 10m}\n", 4, 13, "checkpoint.dir is missing", "where the job writes its checkpoints: dir: checkpoints"),
    (BASE + "checkpoint: {dir: ., every: 10m}\n", 4, 19, "checkpoint.dir: . is not a folder of its own", "dir: checkpoints"),
    (BASE + "checkpoint: {dir: c, every: 10}\n", 4, 29, "checkpoint.every: expected a duration, got the number 10", "as in 10m"),
    (BASE + "checkpoint: {dir: c, every: 0s}\n", 4, 29, "checkpoint.every: '0s' must be at least 1s", None),
    (BASE + "checkpoint: {dir: c, keep_last: 0}\n", 4, 33, "checkpoint.keep_last: 0 is less than 1", None),
    (BASE + "checkpoint: {dir: c, keep_last: 2000}\n", 4, 33, "checkpoint.keep_last: 2000 is more than 1000", None),
    (BASE + f"checkpoint: {{dir: c, every: {'9' * 400}s}}\n", 4, 29, "checkpoint.every: " + repr("9" * 40) + " is longer than 100 years", None),
    (BASE + f"data: [{{size: {'9' * 400}TiB}}]\n", 4, 15, "data[0].size: " + repr("9" * 40) + " is more than 1048576TiB", None),
    (BASE + "checkpoint: {dir: c, keep_best: {mode: max}}\n", 4, 33, "checkpoint.keep_best.metric is missing", "metric: eval_loss"),
    (BASE + "stop: {deadline: 2026-12-04T08:00:00}\n", 4, 18, "stop.deadline: '2026-12-04T08:00:00' has no time zone; append Z for UTC", None),
    (BASE + "stop: {deadline: soon}\n", 4, 18, "stop.deadline: 'soon' is not a date and time; write 2026-11-30T12:00:00Z", None),
    # scripts that are not there
    (BASE.replace("nvidia-smi", "python train.py"), 2, 13, "run starts train.py, but nothing brings it to the node", "add source: ."),
    (BASE + "source: .\nsetup: pip install -r requirments.txt\n", 5, 23, "setup installs requirments.txt, which is not in source", "did you mean requirements.txt?"),
    (BASE + "setup: pip install -r requirements.txt\n", 4, 23, "setup installs requirements.txt, but nothing brings it to the node", "add source: ."),
    ("name: t\nresources: {gpus: L4}\nsource: .\nrun: |\n  set -e\n  python -u trian.py\n", 6, 13, "run starts trian.py, which is not in source", "did you mean train.py?"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "column", "message", "hint"), MISTAKES, ids=[m[3][:40] for m in MISTAKES]
)
def test_every_mistake_has_its_place(
    tmp_path: Path, text: str, line: int, column: int, message: str, hint: str | None
):
    for name in ("train.py", "requirements.txt"):
        (tmp_path / name).touch()
    with pytest.raises(SpecError) as caught:
        parse_job(text, "t.yaml", tmp_path)
    error = caught.value
    assert error.place is not None
    assert (error.message, error.hint) == (message, hint)
    assert (error.place.line, error.place.column) == (line, column)
    assert error.place.source == text.splitlines()[line - 1]


def test_a_source_that_does_not_exist(tmp_path: Path):
    with pytest.raises(SpecError, match=r"source: .*/code does not exist") as caught:
        parse_job(BASE + "source: code\n", "t.yaml", tmp_path)
    assert str(caught.value.place) == "t.yaml:4:9"


def test_a_file_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(SpecError, match=r"cannot read .*: No such file or directory"):
        load_job(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="it is not UTF-8 text"):
        load_job(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "../x"}, "name has a value that no job file may have"),
        ({"run": " "}, "run has a value"),
        ({"resources": {"gpus": []}}, r"resources\.gpus has a value"),
        ({"resources": {"gpus": [{"type": "H1000"}]}}, "unknown GPU 'H1000'"),
        ({"resources": {"gpus": [{"type": "H100", "count": 0}]}}, "0 GPUs is less than 1"),
        ({"resources": {"gpus": [{"type": "H100"}], "nodes": 0}}, r"resources\.nodes"),
        ({"resources": {"gpus": [{"type": "H100", "count": 10**26}]}}, "more than 1024 GPUs in one node"),
        ({"resources": {"gpus": [{"type": "H100"}], "nodes": 1025}}, r"resources\.nodes"),
        ({"data": [{"size_bytes": 10**400}]}, r"data\.size_bytes"),
        ({"deadline_ms": 10**20}, "deadline_ms"),
        ({"checkpoint": {"dir": "c", "every_s": 10**400}}, r"checkpoint\.every_s"),
        ({"env": {"BROKER_X": "1"}}, "env has a value"),
        ({"checkpoint": {"dir": "c", "keep_last": 0}}, r"checkpoint\.keep_last"),
        ({"checkpoint": {"dir": "../.."}}, r"checkpoint\.dir"),
    ],
)
def test_a_spec_from_outside_is_checked_again(tmp_path: Path, change: dict[str, object], message: str):
    plain = to_plain(parse_job(BASE, "t", tmp_path)[0])
    with pytest.raises(SpecError, match=message):
        check_spec(from_plain(JobSpec, plain | change))


def test_what_cannot_be_sent_is_told_at_the_source_and_not_at_what_runs(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    text = "name: a\nresources: {gpus: H100}\nsource: .\nrun: python train.py\n"
    with pytest.raises(SpecError, match="pipe cannot be sent") as refused:
        parse_job(text, "train.yaml", tmp_path)
    assert refused.value.place is not None
    assert (refused.value.place.line, refused.value.place.source) == (3, "source: .")
