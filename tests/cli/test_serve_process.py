"""The real daemon as a process: starts, tells systemd, serves, takes a job, stops at SIGTERM."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from broker.serve.checks import NO_CLOUD

pytestmark = pytest.mark.process


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def broker(env, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "broker", *arguments], env=env, capture_output=True, text=True, timeout=60
    )


def test_a_day_in_the_life(tmp_path):
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "default.yaml").write_text("policy: default\n")
    (tmp_path / "broker.toml").write_text(f'[server]\nlisten = "127.0.0.1:{free_port()}"\n')
    (tmp_path / "job.yaml").write_text("name: train\nresources: {gpus: {type: H100}}\nrun: echo hello\n")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "STATE_DIRECTORY": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "BROKER_CONFIG": str(tmp_path / "broker.toml"),
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(env["NOTIFY_SOCKET"])
        systemd.settimeout(60)
        with (tmp_path / "log").open("w") as log:
            daemon = subprocess.Popen([sys.executable, "-m", "broker", "serve"], env=env, stderr=log)
        try:
            assert systemd.recv(1000).startswith(b"READY=1"), (tmp_path / "log").read_text()
            assert systemd.recv(1000).startswith(b"WATCHDOG=1")
            second = broker(env, "serve")
            assert second.returncode == 5
            assert f"process {daemon.pid} on" in second.stderr
            assert broker(env, "login").returncode == 0
            checked = broker(env, "doctor")
            assert (checked.returncode, NO_CLOUD in checked.stdout) == (1, True)
            submitted = broker(env, "submit", str(tmp_path / "job.yaml"))
            assert submitted.returncode == 0, submitted.stderr
            listed = broker(env, "jobs")
            assert listed.stdout.split("\t")[0] == submitted.stdout.strip()
            token = broker(env, "token", "create", "--role", "viewer").stdout.strip()
            refused = broker(env | {"BROKER_TOKEN": token}, "pause")
            assert (refused.returncode, "this needs operator" in refused.stderr) == (4, True)
        finally:
            daemon.send_signal(signal.SIGTERM)
            code = daemon.wait(30)
    text = (tmp_path / "log").read_text()
    assert code == 0, text
    assert token not in text
    lines = {line["event"]: line for line in map(json.loads, text.splitlines())}
    assert lines["cloud.none"]["level"] == "warning"
    ready = lines["daemon.ready"]
    assert ready["installation_id"].startswith("bi-"), "the tag of all its machines"
    assert not (tmp_path / "state" / "daemon.json").exists()
    # The database was let go: the next command opens it by itself.
    assert broker(env, "token", "create", "--role", "viewer").returncode == 0
