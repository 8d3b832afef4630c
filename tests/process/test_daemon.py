"""The daemon among clouds that fail it, beside a second one of its kind, and without the lab."""

import json
import os
import shutil
import ssl
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import httpx
import pytest

from tests.process.deployment import Deployment
from tests.process.lab_and_daemon import BROKER, LIMIT_S, ROOT, end, free_port

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


@pytest.mark.slow
def test_a_cloud_that_is_down_or_without_credentials_leaves_the_other_alone(fresh: Deployment) -> None:
    fresh.start_lab()
    fresh.lab.fault("aws", "*", "down", count=None)
    fresh.start_daemon()
    fresh.login("ada", "engineer")
    fresh.login("alan", "operator")
    lands_on(fresh, "aws-is-down", "gcp")
    assert fresh.polls("aws")
    assert not any(ok for ok, _ in fresh.polls("aws"))
    assert all(ok for ok, _ in fresh.polls("gcp"))
    said = doctor(fresh)
    assert said["gcp: credentials"][0] is True
    ok, detail = said["aws: credentials"]
    assert (ok, "onnection" in detail) == (False, True), detail

    assert fresh.stop_daemon() == 0
    fresh.lab.clear()
    before = len(fresh.polls("gcp"))
    fresh.start_daemon(without=["GOOGLE_APPLICATION_CREDENTIALS"], NO_GCE_CHECK="true")
    lands_on(fresh, "gcp-has-no-credentials", "aws")
    fresh.wait_for("gcp has been polled", lambda: len(fresh.polls("gcp")) > before)
    ok, error = fresh.polls("gcp")[-1]
    assert (ok, "credentials" in error) == (False, True), error
    assert fresh.polls("aws")[-1][0]
    said = doctor(fresh)
    assert said["aws: credentials"][0] is True
    ok, detail = said["gcp: credentials"]
    assert (ok, "GOOGLE_APPLICATION_CREDENTIALS" in detail) == (False, True), detail
    assert not fresh.living()


def lands_on(deployment: Deployment, name: str, cloud: str) -> None:
    job = deployment.submit(name, run="python3 count.py --steps 10")
    deployment.finish(job)
    assert deployment.placements(job)[-1]["key"].startswith(f"{cloud}/")


def doctor(deployment: Deployment) -> dict[str, tuple[bool | None, str]]:
    """What `broker doctor` says, by check."""
    done = deployment.broker("doctor", "--json", person="alan")
    assert done.code == 1, "something is wrong, and it says so"
    return {item["name"]: (item["ok"], item["detail"]) for item in json.loads(done.out)["items"]}


@pytest.mark.xdist_group("deployment")
def test_a_second_daemon_on_the_same_state_is_refused_by_name(deployment: Deployment) -> None:
    pid = json.loads((deployment.folder / "state" / "daemon.json").read_text())["pid"]
    done = subprocess.run(
        [*BROKER, "serve", "--config", str(deployment.config)],
        env=deployment.daemon_env(),
        cwd=deployment.folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 5
    assert f"process {pid} on" in done.stderr
    assert "Traceback" not in done.stderr
    assert deployment.ready(), "the first one does not mind"


_REAL_CLOUDS = """\
[server]
listen = "127.0.0.1:{port}"
[state]
dir = "state"
[policies]
dir = "policies"
[clouds.aws]
regions = ["us-east-1"]
image_id = "ami-0123456789abcdef0"
[clouds.gcp]
project = "some-project"
regions = ["us-central1"]
image = "projects/ml-images/global/images/family/common-gpu"
"""


def test_production_code_runs_without_the_lab(tmp_path: Path) -> None:
    """Everything but `lab/` and its packages' hooks: it serves, and says of each cloud what is missing."""
    for part in ("broker", "providers"):
        shutil.copytree(ROOT / part, tmp_path / "code" / part, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "policies").mkdir()
    shutil.copy(ROOT / "policies" / "default.yaml", tmp_path / "policies")
    port = free_port()
    (tmp_path / "broker.toml").write_text(_REAL_CLOUDS.format(port=port))
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "code"), sysconfig.get_path("purelib")]),
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_GCE_CHECK": "true",
    }
    python = [sys.executable, "-S"]  # no site, so that no .pth file brings the source tree back
    seen = subprocess.run(
        [*python, "-c", "import broker; print(broker.__file__); import lab"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert seen.stdout.startswith(str(tmp_path))
    assert "No module named 'lab'" in seen.stderr
    with (tmp_path / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [*python, "-m", "broker", "serve"], env=env, cwd=tmp_path, stdout=log, stderr=log
        )
    try:
        until_serving(tmp_path, port, daemon)
        wanted = {"aws": ["credentials"], "gcp": ["GOOGLE_APPLICATION_CREDENTIALS"]}
        deadline = time.monotonic() + LIMIT_S
        while missing := {cloud for cloud, words in wanted.items() if not told(tmp_path, cloud, words)}:
            assert time.monotonic() < deadline, (
                f"nothing is said of {missing}:\n{(tmp_path / 'log').read_text()}"
            )
            time.sleep(0.1)
    finally:
        code = end(daemon)
    text = (tmp_path / "log").read_text()
    assert code == 0, text
    assert "Traceback" not in text
    assert not (tmp_path / "state" / "daemon.json").exists()


def until_serving(folder: Path, port: int, daemon: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        assert daemon.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < deadline, (folder / "log").read_text()
        try:
            where = json.loads((folder / "state" / "daemon.json").read_text())
            trust = ssl.create_default_context(cafile=where["ca"])
            answer = httpx.get(f"https://127.0.0.1:{port}/healthz", verify=trust, trust_env=False)
        except (OSError, ValueError, httpx.HTTPError):
            time.sleep(0.1)
            continue
        assert answer.status_code == 200
        return


def told(folder: Path, cloud: str, words: list[str]) -> bool:
    """Whether the log says, in a line of its own, that a cloud cannot be used, and what is missing."""
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines() if line.startswith("{")]
    said = [line for line in lines if line.get("event") == "cloud.unusable" and line["cloud"] == cloud]
    return any(all(word in line["detail"] for word in words) for line in said)
