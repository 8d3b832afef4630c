"""Checks with bounds: who hangs is named within seconds, who fails says why, and nobody waits for another."""

import asyncio
import socket
import threading
import time

import pytest

import broker.daemon as daemon_module
from broker.checkpoint.commits import CheckpointStore
from broker.checkpoint.credentials import StoreSettings
from broker.core.errors import Denied
from broker.core.ports import Check
from broker.daemon import Daemon
from broker.serve.checks import Asked, BoundedChecks
from broker.settings import Settings

FINE = [Check("credentials", True, "as ann")]


def asked(work, within_s=0.3, name="answers", whom="aws"):
    return Asked(name, whom, within_s, work)


@pytest.fixture
def deaf_store(monkeypatch):
    """A checkpoint store that takes connections, and never says a word."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        yield CheckpointStore(StoreSettings(kind="s3", endpoint=url, bucket="b")), url


def test_a_store_that_hangs_is_named_in_time_and_hides_nothing_else(deaf_store):
    store, url = deaf_store

    def check():
        store.self_test()
        return [Check("compare and swap", True, "")]

    checks = BoundedChecks()
    parties = {
        "aws": asked(lambda: FINE),
        "store": asked(check, within_s=0.5, name="compare and swap", whom=f"{url}/b"),
        "gcp": asked(lambda: FINE),
    }
    began_s = time.monotonic()
    found = checks.run(parties)
    assert time.monotonic() - began_s < 5
    assert [(subject, check.ok) for subject, check in found] == [
        ("aws", True),
        ("store", False),
        ("gcp", True),
    ]
    assert found[1][1].name == "compare and swap"
    assert found[1][1].detail == f"no answer from {url}/b for 1s: it cannot be reached, or hangs"
    threads = threading.active_count()
    assert [check.ok for _, check in checks.run(parties)] == [True, False, True]
    assert threading.active_count() == threads, "what hangs is not asked once more"


def test_bounds_run_side_by_side():
    never = threading.Event()
    parties = {name: asked(lambda: [] * never.wait(20)) for name in ("aws", "gcp", "store")}
    began_s = time.monotonic()
    assert [check.ok for _, check in BoundedChecks().run(parties)] == [False] * 3
    assert time.monotonic() - began_s < 0.3 * 3
    never.set()


def test_who_answers_late_is_asked_again():
    late = threading.Event()
    checks = BoundedChecks()
    parties = {"aws": asked(lambda: FINE if late.wait(20) else [])}
    assert [check.ok for _, check in checks.run(parties)] == [False]
    late.set()
    assert checks.run(parties) == [("aws", FINE[0])]
    assert checks.run(parties) == [("aws", FINE[0])]


@pytest.mark.parametrize(
    ("error", "detail"), [(Denied("may not list"), "may not list"), (KeyError("Zone"), "KeyError: 'Zone'")]
)
def test_an_error_is_a_finding(error, detail):
    def fails():
        raise error

    assert BoundedChecks().run({"aws": asked(fails)}) == [("aws", Check("answers", False, detail))]


def test_the_daemon_names_its_store_and_goes_on(deaf_store, monkeypatch, tmp_path):
    store, _ = deaf_store
    monkeypatch.setattr(daemon_module, "STORE_S", 0.3)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "default.yaml").write_text("policy: default\n")
    settings = Settings.parse(f'[state]\ndir = "{tmp_path}/state"\n', folder=tmp_path)

    async def ask():
        daemon = Daemon(settings)
        try:
            daemon.checkpoints = store
            return await asyncio.to_thread(daemon.checks)
        finally:
            daemon.store.close()
            daemon.history.close()

    found = {(subject, check.name): check for subject, check in asyncio.run(ask())}
    assert found["store", "compare and swap"].detail.startswith(f"no answer from the folder {tmp_path}")
    assert found["policies", "files"].ok
