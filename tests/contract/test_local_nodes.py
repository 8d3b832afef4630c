"""Nodes on this host: real processes that outlive the daemon and leave nothing behind."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.core.errors import OutOfCapacity
from broker.core.model import EndedBy
from broker.core.ports import CloudState
from providers.local import keeper
from tests.contract.conftest import TOKENS, Cloud

pytestmark = pytest.mark.process


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.02)


def root(cloud: Cloud) -> Path:
    return Path(cloud.options["dir"]) / TOKENS[0]


def run(cloud: Cloud, script: str) -> None:
    cloud.provider.create(cloud.request(user_data=f"#!/bin/sh\n{script}\n"))


def test_a_node_survives_the_daemon(local_cloud: Cloud) -> None:
    run(local_cloud, "exec sleep 600")
    until(lambda: len(keeper.marked(root(local_cloud))) == 1)
    later = local_cloud.opened_with()
    (node,) = later.list_owned()
    assert node.state is CloudState.RUNNING
    later.delete(node)
    local_cloud.until_ended()


def test_its_end_takes_every_process_and_the_directory(local_cloud: Cloud) -> None:
    # One ignores SIGTERM, one has left the session: both are of the node.
    run(local_cloud, "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.2; done' & setsid sleep 600 & wait")
    until(lambda: len(keeper.marked(root(local_cloud))) >= 4)
    node = local_cloud.find()
    assert node is not None
    local_cloud.provider.delete(node)
    ended = local_cloud.until_ended()
    assert ended is not None
    assert ended.ended_by is EndedBy.US
    assert keeper.marked(root(local_cloud)) == []
    assert not root(local_cloud).exists()


@pytest.mark.parametrize("command", ["shutdown -h now", "poweroff", "systemctl poweroff"])
def test_its_own_shutdown_ends_the_node_and_only_that(local_cloud: Cloud, command: str) -> None:
    run(local_cloud, f"{command}; exec sleep 600")
    ended = local_cloud.until_ended()
    assert ended is not None
    assert ended.ended_by is EndedBy.NODE
    assert ended.ended_at_ms is not None
    assert ended.billed_from_ms is not None
    assert 0 <= ended.ended_at_ms - ended.billed_from_ms < 10_000


def test_a_node_stays_up_when_its_first_script_has_ended(local_cloud: Cloud) -> None:
    run(local_cloud, "echo booted")
    console = root(local_cloud) / "console.log"
    until(lambda: console.exists() and "booted" in console.read_text())
    until(lambda: keeper.marked(root(local_cloud)) == [])
    node = local_cloud.find()
    assert node is not None
    assert node.state is CloudState.RUNNING


def test_a_node_sees_none_of_the_daemons_secrets(local_cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-daemon")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    run(local_cloud, 'env > "$HOME/seen"; exec sleep 600')
    seen = root(local_cloud) / "seen"
    until(lambda: seen.exists() and "CUDA_VISIBLE_DEVICES=0" in seen.read_text())
    assert "of-the-daemon" not in seen.read_text()


def test_a_killed_keeper_is_noticed_and_its_processes_are_ended(local_cloud: Cloud) -> None:
    run(local_cloud, "exec sleep 600")
    until(lambda: len(keeper.marked(root(local_cloud))) == 1)
    status = Path(local_cloud.options["dir"]) / f"{TOKENS[0]}.status"
    os.kill(int(status.read_text().split(":")[1].strip(" }")), signal.SIGKILL)
    ended = local_cloud.until_ended()
    assert ended is not None
    assert ended.ended_by is EndedBy.CLOUD
    assert keeper.marked(root(local_cloud)) == []


def test_a_claim_without_a_keeper_is_taken_up_again(local_cloud: Cloud) -> None:
    """The daemon died between writing the claim and starting the keeper."""
    run(local_cloud, "exec sleep 600")
    node = local_cloud.find()
    assert node is not None
    local_cloud.provider.delete(node)
    local_cloud.until_ended()
    for suffix in ("status", "lock"):
        (Path(local_cloud.options["dir"]) / f"{TOKENS[0]}.{suffix}").unlink()
    claimed = local_cloud.find()
    assert claimed is not None
    assert claimed.state is CloudState.PENDING
    run(local_cloud, "exec sleep 600")
    until(lambda: len(keeper.marked(root(local_cloud))) == 1)


def test_this_host_holds_so_many_nodes_and_no_more(local_cloud: Cloud) -> None:
    run(local_cloud, "exec sleep 600")
    with pytest.raises(OutOfCapacity):
        local_cloud.provider.create(local_cloud.request(TOKENS[1]))
    assert local_cloud.find(TOKENS[1]) is None
