"""Files that a person got wrong: refused with their line and a way out, exit code 2, and nothing is stored."""

from pathlib import Path

import pytest

from tests.process.deployment import Deployment

pytestmark = [pytest.mark.process, pytest.mark.timeout(240), pytest.mark.xdist_group("deployment")]

JOBS = {
    "wrong type": (
        "name: train\nresources: {gpus: H100:1, nodes: two}\nrun: echo\n",
        ["job.yaml:2:", "resources.nodes: expected a whole number, got the text 'two'"],
    ),
    "unknown key": (
        "name: train\nresources: {gpus: H100:1}\nrun: echo\nchekpoint: {dir: ck}\n",
        ["job.yaml:4:1", "unknown key chekpoint", "did you mean checkpoint?"],
    ),
    "no such GPU": (
        "name: train\nresources: {gpus: H1000:1}\nrun: echo\n",
        ["job.yaml:2:", "H1000", "hint: did you mean H100"],
    ),
    "no such script": (
        "name: train\nresources: {gpus: H100:1}\nsource: .\nrun: |\n  set -e\n  python3 cuont.py\n",
        ["job.yaml:6:11", "run starts cuont.py, which is not in source", "did you mean count.py?"],
    ),
    "two things under one key": (
        "name: train\nname: other\nresources: {gpus: H100:1}\nrun: echo\n",
        ["job.yaml:2:1", "duplicate key name; first on line 1"],
    ),
}


def test_job_files(deployment: Deployment) -> None:
    before = deployment.get("/jobs", all=True)["items"]
    for name, (text, wanted) in JOBS.items():
        file = deployment.job_file("wrong", text)
        done = deployment.broker("submit", str(file))
        assert done.code == 2, f"{name}: {done}"
        assert done.out == ""
        for part in wanted:
            assert part in done.err, f"{name}: {part!r} not in\n{done.err}"
        assert "Traceback" not in done.err
    assert deployment.get("/jobs", all=True)["items"] == before, "nothing was stored"


def test_a_client_with_a_reader_of_its_own_is_checked_too(deployment: Deployment) -> None:
    before = deployment.get("/jobs", all=True)["items"]
    gpus = [{"type": "H100", "count": 1}]
    specs = {
        "no such GPU": {
            "name": "train",
            "run": "echo",
            "resources": {"gpus": [{"type": "H1000", "count": 1}]},
        },
        "wrong type": {"name": "train", "run": 7, "resources": {"gpus": gpus}},
        "unknown key": {"name": "train", "run": "echo", "resources": {"gpus": gpus}, "budget": 3},
        "not a name": {"name": "Train it!", "run": "echo", "resources": {"gpus": gpus}},
    }
    for number, (name, spec) in enumerate(specs.items()):
        key = {"Idempotency-Key": f"by-hand-{number}"}
        answer = deployment.api.post("/jobs", json={"spec": spec}, headers=key)
        assert answer.status_code in (400, 422), f"{name}: {answer.status_code} {answer.text}"
        assert answer.json()["exit_code"] == 2, f"{name}: {answer.text}"
    assert deployment.get("/jobs", all=True)["items"] == before


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("policy: p\nmigrate: {min_saving: lots}\n", ["p.yaml:2:", "min_saving", "20%"]),
        ("policy: p\nmigrat: {}\n", ["p.yaml:2:1", "unknown key migrat", "did you mean migrate?"]),
        ("policy: p\ncandidates:\n  where: ['offer.gpus.memory_gib > 3']\n", ["p.yaml:3:", "offer.gpu"]),
    ],
)
def test_policy_files(deployment: Deployment, tmp_path: Path, text: str, wanted: list[str]) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    done = deployment.broker("policy", "check", str(file))
    assert done.code == 2
    for part in wanted:
        assert part in done.err, done.err


def test_a_broken_edit_keeps_the_policy_in_force(deployment: Deployment) -> None:
    file = deployment.policies / "default.yaml"
    good = file.read_text()
    try:
        file.write_text(good.replace("objective: cheapest", "objective: cheepest"))
        state = deployment.call("POST", "/policies/reload")
        assert [policy["name"] for policy in state["policies"]] == ["default"]
        (mistake,) = state["mistakes"]
        assert (mistake["line"], mistake["hint"]) == (3, "did you mean cheapest?")
    finally:
        file.write_text(good)
    assert deployment.call("POST", "/policies/reload")["mistakes"] == []
