"""The files in `deploy/` name only options, paths and settings that exist."""

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.core.errors import UsageError
from broker.core.time import parse_duration
from broker.settings import Settings
from broker.store.history import HistoryStore
from broker.store.state import StateStore
from providers.registry import CLOUDS, vendor_endpoints
from tests.clocks import CountingIds, ManualClock
from tests.docs import commands
from tests.docs.pages import ROOT

DEPLOY = ROOT / "deploy"
TOML = (DEPLOY / "broker.toml").read_text()
UNIT = (DEPLOY / "systemd" / "broker.service").read_text()
DOCKERFILE = (DEPLOY / "docker" / "Dockerfile").read_text()
ETC = Path("/etc/broker")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)


def shown() -> Settings:
    """The file with every line that is commented out switched on."""
    return Settings.parse(re.sub(r"^# (\[[\w.]+\]|\w+ = .*)$", r"\1", TOML, flags=re.M), "broker.toml", ETC)


def read_unit(text: str) -> configparser.ConfigParser:
    """A unit file of systemd."""
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    return unit


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


class TestSettings:
    def test_the_file_as_it_is(self) -> None:
        settings = Settings.parse(TOML, "broker.toml", ETC)
        assert settings.policies.dir == ETC / "policies"
        assert not settings.open_clouds

    def test_every_line_that_is_commented_out_is_understood(self) -> None:
        settings = shown()
        assert set(settings.open_clouds) == set(CLOUDS) - {"local"}
        for cloud, section in settings.open_clouds.items():
            assert vendor_endpoints(cloud, section.options)

    def test_defaults_are_shown_as_they_are(self) -> None:
        defaults = Settings.parse("")
        assert shown().timing == defaults.timing
        assert shown().log == defaults.log
        assert shown().market.keep_history_s == defaults.market.keep_history_s
        assert shown().limits.recoveries_per_hour == defaults.limits.recoveries_per_hour

    def test_every_key_is_shown(self) -> None:
        tables = tomllib.loads(re.sub(r"^# (\[[\w.]+\]|\w+ = .*)$", r"\1", TOML, flags=re.M))
        left_out = {"store": {"path", "ca_file", "sts_endpoint"}, "clock": {"rate", "anchor"}}
        for name, field in Settings.model_fields.items():
            if name != "clouds":
                model = field.annotation
                assert model is not None
                keys = {key.alias or key_name for key_name, key in model.model_fields.items()}
                assert keys - left_out.get(name, set()) == set(tables.get(name, {})), name

    def test_the_policies_to_start_from_observe(self) -> None:
        for name in ("default", "ride-the-spot", "finish-cheapest"):
            assert "mode: observe" in (ROOT / "policies" / f"{name}.yaml").read_text()


class TestUnit:
    service = read_unit(UNIT)["Service"]

    def test_it_starts_a_command_that_exists_with_the_file_of_the_how_to(self) -> None:
        commands.check(self.service["ExecStart"])
        config = Path(shlex.split(self.service["ExecStart"])[-1])
        page = (ROOT / "docs" / "how-to" / "run-as-a-service.md").read_text()
        for path in (config, Path("/opt/broker/bin"), Path("/etc/broker/environment")):
            assert str(path) in page

    def test_state_is_where_the_configuration_says(self) -> None:
        assert Settings.parse(TOML).state_dir == Path("/var/lib") / self.service["StateDirectory"]

    def test_it_speaks_of_readiness_and_is_watched(self) -> None:
        assert self.service["Type"] == "notify"
        passes_s = Settings.parse("").timing.reconcile_interval_s
        assert parse_duration(self.service["WatchdogSec"] + "s") >= 10 * passes_s
        assert self.service["Restart"] == "always"

    def test_a_wrong_configuration_is_not_tried_again(self) -> None:
        assert self.service["RestartPreventExitStatus"] == str(UsageError.exit_code)

    def test_it_may_do_little(self) -> None:
        for name in ("DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateTmp", "RestrictNamespaces"):
            assert self.service[name] == "yes", name
        assert self.service["ProtectSystem"] == "strict"
        assert self.service["CapabilityBoundingSet"] == ""

    @pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
    def test_systemd_knows_every_key(self, tmp_path: Path) -> None:
        file = tmp_path / "broker.service"
        file.write_text(UNIT.replace("/opt/broker/bin/broker", sys.executable))
        found = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, timeout=60
        )
        assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


class TestBackupTimer:
    """What systemd would run is run here, on a state folder and a backup folder of the test's own."""

    service, timer = (
        read_unit((DEPLOY / "systemd" / f"broker-backup.{kind}").read_text()) for kind in ("service", "timer")
    )

    def run(self, key: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
        """A command of the unit, with its paths in `tmp_path`."""
        line = self.service["Service"][key].replace("%%", "%").replace("$$", "$")
        broker = tmp_path / "broker"
        broker.write_text(f'#!/bin/sh\nexec {sys.executable} -m broker "$@"\n')
        broker.chmod(0o755)
        for theirs, ours in (
            ("/opt/broker/bin/broker", broker),
            ("/backup/broker", tmp_path / "backup"),
            ("/etc/broker/broker.toml", tmp_path / "broker.toml"),
        ):
            line = line.replace(theirs, str(ours))
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        return subprocess.run(
            shlex.split(line), cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
        )

    def test_it_makes_a_copy_by_the_time(self, tmp_path: Path) -> None:
        StateStore.open(_made(tmp_path / "state") / "state.db", ManualClock(), CountingIds()).close()
        HistoryStore.open(tmp_path / "state" / "history.db").close()
        (tmp_path / "broker.toml").write_text(f'[state]\ndir = "{tmp_path}/state"\n')
        done = self.run("ExecStart", _made(tmp_path / "backup").parent)
        assert done.returncode == 0, done.stderr
        (copy,) = (tmp_path / "backup").iterdir()
        assert re.fullmatch(r"\d{8}T\d{6}Z", copy.name)
        assert (copy / "state.db").exists()

    def test_it_keeps_a_week_and_what_is_not_its_own(self, tmp_path: Path) -> None:
        day_s = 86_400
        ages = {
            "20260101T000000Z": 9, ".20260101T010000Z.x1.partial": 9, "20260103T000000Z": 6, "before-upgrade": 99,
        }  # fmt: skip
        for name, days in ages.items():
            folder = _made(tmp_path / "backup" / name)
            (folder / "state.db").write_text("")
            os.utime(folder, (time.time() - days * day_s,) * 2)
        done = self.run("ExecStartPost", tmp_path)
        assert done.returncode == 0, done.stderr
        assert {folder.name for folder in (tmp_path / "backup").iterdir()} == {
            "20260103T000000Z",
            "before-upgrade",
        }

    def test_the_timer_starts_it_and_can_be_enabled(self) -> None:
        assert self.service["Service"]["Type"] == "oneshot"
        assert self.timer["Timer"]["OnCalendar"] == "hourly"
        assert self.timer["Install"]["WantedBy"] == "timers.target"

    def test_it_may_write_where_it_has_to(self) -> None:
        writable = self.service["Service"]["ReadWritePaths"].split()
        assert writable == ["/backup/broker", str(Settings.parse(TOML).state_dir)]

    @pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
    def test_systemd_knows_every_key(self, tmp_path: Path) -> None:
        for kind in ("service", "timer"):
            text = (DEPLOY / "systemd" / f"broker-backup.{kind}").read_text()
            (tmp_path / f"broker-backup.{kind}").write_text(text)
        files = [str(tmp_path / f"broker-backup.{kind}") for kind in ("service", "timer")]
        found = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True, timeout=60
        )
        assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


class TestImage:
    def lines(self, instruction: str) -> Iterator[str]:
        for line in DOCKERFILE.replace("\\\n", " ").splitlines():
            if line.startswith(f"{instruction} "):
                yield line.removeprefix(instruction).strip()

    def test_what_it_copies_exists_and_the_lab_stays_out(self) -> None:
        for line in self.lines("COPY"):
            if "--from" not in line:
                *sources, _ = line.split()
                for source in sources:
                    assert (ROOT / source).exists(), source
                assert not {"lab", "tests", "."} & set(sources)

    def test_it_has_what_every_cloud_needs_and_nothing_of_another_version(self) -> None:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        (installed,) = re.findall(r"'\.\[([a-z,]+)\]'", DOCKERFILE)
        assert set(installed.split(",")) == extras.keys() & CLOUDS.keys()
        pinned = {line.partition("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines()}
        for extra in installed.split(","):
            assert {re.split("[<>=]", needed)[0] for needed in extras[extra]} <= pinned

    def test_its_python_is_one_that_the_daemon_runs_on(self) -> None:
        needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
        least = tuple(map(int, needs.removeprefix(">=").split(".")))
        for image in self.lines("FROM"):
            found = re.match(r"python:(\d+)\.(\d+)-slim", image)
            assert found
            assert (int(found[1]), int(found[2])) >= least

    def test_it_starts_the_daemon_as_nobody_special(self) -> None:
        (entry,), (arguments,) = self.lines("ENTRYPOINT"), self.lines("CMD")
        commands.check(" ".join(re.findall(r'"([^"]+)"', entry + arguments)))
        assert list(self.lines("USER")) == ["broker"]

    def test_its_environment_and_paths_are_the_configurations(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert f"VOLUME {Settings.parse(TOML).state_dir}\n" in DOCKERFILE
        variables = dict(re.findall(r"(BROKER_\w+)=(\S+)", DOCKERFILE))
        assert variables
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        settings = Settings.parse(TOML)
        assert settings.server.public_url == variables["BROKER_SERVER__PUBLIC_URL"]
        assert f"EXPOSE {settings.server.port}\n" in DOCKERFILE


def test_dependencies_of_the_daemon_are_none_of_the_labs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    def names(wanted: list[str]) -> set[str]:
        return {re.sub(r"[-_.]+", "-", re.split(r"[<>=\[ ]", text)[0].lower()) for text in wanted}

    assert not names(project["project"]["dependencies"]) & names(project["dependency-groups"]["lab"])
    lock = names((ROOT / "requirements.lock").read_text().splitlines())
    assert names(project["project"]["dependencies"]) <= lock


_SANDBOX = """\
mount --make-rprivate / && mount -t tmpfs none {state} && mount -o remount,ro,bind / || exit 77
touch {outside} 2>/dev/null && exit 77
exec {python} -m broker serve --config {config} 2>{state}/log
"""


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root")
def test_the_daemon_writes_nothing_but_its_state_folder(tmp_path: Path) -> None:
    """As in a container with a read-only root: everything else is mounted so."""
    state = tmp_path / "state"
    state.mkdir()
    config = tmp_path / "broker.toml"
    config.write_text(f'[server]\nlisten = "127.0.0.1:0"\n[state]\ndir = "{state}/broker"\n')
    script = _SANDBOX.format(state=state, outside=tmp_path / "x", python=sys.executable, config=config)
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
    child = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
    )
    try:
        inside = Path(f"/proc/{child.pid}/root{state}")
        ready = _until(lambda: (inside / "broker" / "daemon.json").exists() or child.poll() is not None)
        if child.poll() == 77:
            pytest.skip("this machine does not let root mount")
        assert ready
        assert child.poll() is None
    finally:
        child.terminate()
        code = child.wait(30)
    assert code == 0


def _until(holds: Callable[[], bool], limit_s: float = 40.0) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.1)
    return False
