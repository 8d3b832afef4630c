"""Policies, tests of policies and job files that were written to hurt: read or refused in under a second, in little memory."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.core.errors import PolicyError, SpecError
from broker.jobs.spec import MAX_BYTES as JOB_BYTES
from broker.jobs.spec import load_job, parse_job
from broker.paper.testing.read import read_cases
from broker.policy.load import MAX_BYTES as POLICY_BYTES
from broker.policy.load import mistakes, read_file

JOB = "name: j\nresources: {gpus: H100}\n"
RUNS = f"{JOB}run: nvidia-smi\n"

POLICIES = {
    "as many values as fit": "policy: p\nmatch: {team: [" + "a," * 32_000 + "]}",
    "keys that all are nearly right": "policy: p\n" + "".join(f"objective{i}: 1\n" for i in range(3000)),
    "a list of conditions without end": "policy: p\ncandidates: {where: ["
    + ",".join(f"offer.price<3.0 && offer.gpus == {i}" for i in range(1600))
    + "]}",
    "the dearest conditions that are allowed": "policy: p\ncandidates:\n  where:\n"
    + "".join(
        f'    - job.name.matches("{"a{1000}" * 13}") || job.name.matches("{"b{1000}" * 13}") || offer.gpus == {i}\n'
        for i in range(30)
    ),
    "20,000 terms": "policy: p\ncandidates: {where: ['" + " && ".join(["!job.has_commit"] * 20_000) + "']}",
    "brackets in a condition": "policy: p\ncandidates: {where: ['" + "(" * 900 + "']}",
    "brackets": "policy: " + "[" * 65_000,
    "dashes": "- " * 32_000,
    "an alias that grows": "a: &a [x]\n" + "".join(f"b{i}: &b{i} [*a, *a, *a]\n" for i in range(2000)),
    "one line": "policy: " + "x" * 65_000,
    "escapes": 'policy: "' + "\\x41" * 16_000 + '"',
    "words": "policy: " + "x " * 32_000,
    "blank lines": "policy: p\n" + "\n" * 65_000,
    "a long key": "policy: p\n? " + "x" * 65_000 + "\n: 1\n",
    "durations": "policy: p\nmigrate: {hold: " + "1h" * 32_000 + "}",
    "stars": 'policy: p\ncandidates: {regions: {allow: ["' + "*a" * 32_000 + '"]}}',
    "a huge exponent": "policy: p\nmigrate: {min_saving_usd: 1e999999999999, min_saving: 1e999999999999%}",
    "digits": "policy: p\nprecedence: 0x" + "f" * 60_000,
}
JOBS = {
    "as many values as fit": RUNS + "labels: [" + "a," * 64_000 + "]",
    "scripts that something fetches": JOB
    + "setup: wget y\nrun: |\n"
    + "".join(f"  python a{i}.py\n" for i in range(7000)),
    "requirements again and again": JOB + "setup: |\n  touch " + "x" * 60_000 + "\n"
    "  pip install -r x\n" * 3000 + "run: nvidia-smi\n",
    "assignments": JOB + "run: " + "A=1 " * 32_000 + "x.py\n",
    "half a quotation": JOB + "run: python '" + "x " * 60_000,
    "gpus": "name: j\nrun: nvidia-smi\nresources: {gpus: [" + ",".join(["H100"] * 9000) + "]}\n",
    "places": f"{JOB[:-2]}, allow: [{','.join(['aws/us-*/x'] * 9000)}]}}\nrun: nvidia-smi\n",
    "a long script": JOB + "run: |\n" + "  echo hello\n" * 9000,
}


CASE = 'policy: p.yaml\ncases:\n  - name: c\n    prices: {aws/use1-az6/p5.48xlarge/spot: "%s"}\n    expect: [{at: 0s, decision: place}]\n'
CASES = {
    "changes without end": CASE % ("32.0x1m 61.0x1m " * 2500),
    "a change after many years": CASE % "32.0x99999999999h 61.0",
    "a price of many digits": CASE % ("9" * 3000 + "x1h"),
    "a price beyond all": CASE % "1e999999999999x1h",
    "cases without end": CASE + '  - {name: c, prices: {a: "1.0"}, expect: []}\n' * 1500,
}


def told(text: str, kind: str) -> list[str]:
    """What a person reads of it; whatever it raises but a mistake of its writer fails the test."""
    if kind == "test":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "p.test.yaml"
            path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
            (path.parent / "p.yaml").write_text("policy: p\n")
            return [str(error) for error in read_cases(path)[1]]
    if kind == "policy":
        errors = mistakes(text, "hostile.yaml")
        assert all(error.place for error in errors)
        return [str(error) for error in errors]
    try:
        parse_job(text, "hostile.yaml", Path("/nowhere"))
    except SpecError as error:
        return [str(error)]
    return []


def spent(name: str, text: str, kind: str) -> float:
    """CPU seconds that a file takes."""
    began_s = time.process_time()
    assert all(len(message) < 1500 for message in told(text, kind)), name
    return time.process_time() - began_s


def measure() -> dict[str, object]:
    """All of them, in a process of their own whose memory cannot grow by more than 256 MiB."""
    mistakes(POLICIES["brackets in a condition"], "warm.yaml")
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (256 << 20), resource.RLIM_INFINITY))
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = {
        f"policy: {name}": spent(name, text[:POLICY_BYTES], "policy") for name, text in POLICIES.items()
    }
    seconds |= {f"job: {name}": spent(name, text[:JOB_BYTES], "job") for name, text in JOBS.items()}
    seconds |= {f"test: {name}": spent(name, text, "test") for name, text in CASES.items()}
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    return {"seconds": seconds, "grown_mib": grown_kib / 1024}


def test_every_hostile_file_is_done_with_in_a_second_and_in_little_memory() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "import json; from tests.unit.test_hostile_files import *; print(json.dumps(measure()))"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    slow = {name: seconds for name, seconds in found["seconds"].items() if seconds >= 1.0}
    assert not slow
    assert found["grown_mib"] < 64


@pytest.mark.parametrize(("read", "error"), [(read_file, PolicyError), (load_job, SpecError)])
def test_a_hundred_megabytes_are_refused_unread(tmp_path: Path, read, error) -> None:
    path = tmp_path / "big.yaml"
    path.touch()
    with path.open("r+b") as file:
        file.truncate(100 << 20)
    began_s = time.process_time()
    with pytest.raises(error, match=r"big\.yaml: it is longer than \d+ bytes"):
        read(path)
    assert time.process_time() - began_s < 0.2


WORDS = st.sampled_from(
    [
        *["name:", "run:", "policy:", "resources:", "gpus:", "H100:8", "candidates:", "where:", "-", "[", "]", "{", "}", ",", "|", ">", "'", '"', "#", "&", "*", "!", "?", "%", "---", "...", "~", "<<"],
        "\n", "\t",
        "\n  ", "\r", "\r\n", "\ufeff", "\u202e", "\u200b", "\x00", "\ud800", "\\ud800", "%YAML 1.1", "е", "9" * 50, "1e999",
        "offer.price < 3.0", "duration(\"1h\")", "matches(\"(\")",
    ]
)  # fmt: skip
ANY_TEXT = st.one_of(
    st.text(st.characters(), max_size=80), st.lists(WORDS, max_size=30).map(" ".join), st.lists(WORDS).map("".join)
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(ANY_TEXT, st.sampled_from(["", "name: j\nrun: nvidia-smi\n", RUNS, f"{RUNS}env:\n  A: "]))
@example("\ud800", "")
@example('data: [{size: "9e999GiB"}]', RUNS)
def test_any_text_is_a_job_or_a_mistake_for_a_person(text: str, start: str) -> None:
    assert all(message.replace("\n", "").isprintable() for message in told(start + text, "job"))


@settings(max_examples=150, deadline=None)
@given(
    ANY_TEXT,
    st.sampled_from(
        ["", "policy: p\n", "policy: p\ncandidates:\n  where:\n    - ", "policy: p\nmigrate: {hold: "]
    ),
)
def test_any_text_is_a_policy_or_mistakes_for_a_person(text: str, start: str) -> None:
    assert all(message.replace("\n", "").isprintable() for message in told(start + text, "policy"))


@settings(max_examples=100, deadline=None)
@given(
    ANY_TEXT,
    st.sampled_from(
        ["", "policy: p.yaml\n", CASE % "1.0", "policy: p.yaml\ncases:\n  - {name: c, prices: {a: "]
    ),
)
def test_any_text_is_a_test_of_a_policy_or_mistakes_for_a_person(text: str, start: str) -> None:
    assert all(message.replace("\n", "").isprintable() for message in told(start + text, "test"))
