"""Real daemon, real lab: orphans are named exactly, and a restored backup touches nothing before it is told to."""

import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from broker import assembly
from broker.clock import SystemClock
from broker.core.ports import CloudNode, LaunchRequest
from broker.settings import Settings
from lab.seaweed import SeaweedFS
from tests.process.conftest import FIRST, SCENARIO
from tests.process.deployment import Deployment, key_of

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("leaks")]

GRACE_S = 6.0  # real seconds: six minutes of the lab's clock
LONG = "python3 count.py --steps 100000 --pace 0.05 --save-every 20"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, seaweed: SeaweedFS) -> Iterator[Deployment]:
    """A deployment whose collector looks once, at the start: what is ended later, an operator has ended."""
    deployment = Deployment(
        tmp_path_factory.mktemp("leaks") / "deployment",
        seaweed,
        scenario=SCENARIO,
        timing={"collect_interval": "24h", "collect_grace": "6m"},
    )
    try:
        deployment.start_lab()
        deployment.start_daemon()
        deployment.login("ada", "engineer")
        deployment.login("alan", "operator")
        yield deployment
    finally:
        deployment.close()


def plant(deployment: Deployment, letter: str, installation: str | None = None) -> CloudNode:
    """A machine that the daemon knows nothing of, made through the cloud's own API."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in deployment.daemon_env().items():
            patch.setenv(name, value)
        settings = Settings.load(deployment.config)
        with closing(sqlite3.connect(f"file:{settings.state_dir}/state.db?mode=ro", uri=True)) as rows:
            (ours,) = rows.execute("SELECT id FROM installation").fetchone()
        clock = SystemClock(settings.clock.rate, settings.clock.anchor_ms)
        aws = assembly.open_clouds(settings, clock, ours)[0]["aws"]
        offer = next(quote.offer for quote in aws.quotes() if quote.offer.key == FIRST)
        request = LaunchRequest(f"bk-{letter * 26}-0", offer, "#!/bin/sh\nsleep 600\n", ours, event_seq=0)
        return aws.create(replace(request, installation_id=installation or ours))


def audit(deployment: Deployment) -> tuple[int, dict[str, list[str]], dict[str, int | None]]:
    """Exit code, subjects by what would be done with them, strangers by cloud."""
    done = deployment.broker("audit", "--json", person="alan")
    found = json.loads(done.out)
    acts: dict[str, list[str]] = {}
    for item in found["discrepancies"]:
        acts.setdefault(item["act"], []).append(item["subject"])
    return done.code, acts, {part["name"]: part["strangers"] for part in found["asked"]}


def test_of_three_planted_machines_exactly_the_old_one_of_ours_is_ended(watched: Deployment) -> None:
    assert audit(watched)[:2] == (0, {})
    old, stranger = plant(watched, "a"), plant(watched, "b", "bi-somebody-else")
    time.sleep(GRACE_S)
    young = plant(watched, "c")
    code, acts, strangers = audit(watched)
    assert (code, acts) == (8, {"end": [old.token], "wait": [young.token]})
    assert strangers == {"aws": 1, "gcp": 0, "store": None}
    assert watched.broker("audit", "--apply", person="ada").code == 4
    applied = watched.broker("audit", "--apply", person="alan")
    assert applied.code == 0, applied.err
    watched.wait_for(
        "it is gone", lambda: {m["id"] for m in watched.living()} == {young.provider_id, stranger.provider_id}
    )
    time.sleep(GRACE_S)
    assert watched.broker("audit", "--apply", person="alan").code == 0
    watched.wait_for("the other too", lambda: [m["id"] for m in watched.living()] == [stranger.provider_id])


def restore(deployment: Deployment, copy: Path) -> None:
    """As docs/how-to/backup.md says."""
    deployment.stop_daemon()
    state = deployment.folder / "state"
    state.rename(deployment.folder / "state.before")
    shutil.copytree(copy, state)
    deployment.start_daemon()


def test_a_restored_backup_touches_nothing_until_an_operator_clears_it(watched: Deployment) -> None:
    first = watched.submit("first", run=LONG)
    watched.wait_for_commit(first)
    copy = watched.folder / "copy"
    done = watched.broker("backup", str(copy), "--config", str(watched.config))
    assert done.code == 0, done.err
    second = watched.submit("second", run=LONG)
    watched.wait_for_commit(second)
    before = [(m["id"], m["state"]) for m in watched.machines()]

    restore(watched, copy)
    step = watched.step(first)
    time.sleep(GRACE_S)  # every interval and grace there is goes by
    assert [(m["id"], m["state"]) for m in watched.machines()] == before
    watched.wait_for("its agent is still heard and still trains", lambda: watched.step(first) > step)
    code, acts, _ = audit(watched)
    (lost,) = watched.machines(second)
    assert code == 8
    assert acts["person"] == [second]
    assert len(acts["latch"]) == 1, "the machine of the job that these rows do not have"
    assert "end" not in acts
    refused = watched.broker("audit", "--apply", person="alan")
    assert (refused.code, "report-only is latched" in refused.err) == (6, True)

    assert watched.broker("resume", "--report-only", person="alan").code == 0
    code, acts, _ = audit(watched)
    assert (code, sorted(acts), len(acts["end"])) == (8, ["end", "person"], 1)
    assert watched.broker("audit", "--apply", person="alan").code == 0
    watched.wait_for(
        "the lost job's machine is gone", lambda: lost["id"] not in {m["id"] for m in watched.living()}
    )
    assert [key_of(p["offer"]) for p in watched.placements(first)] == [FIRST], "it has never been disturbed"
    assert watched.broker("cancel", first).code == 0
    watched.wait_for_job(first, "cancelled")
    watched.wait_for_gone(first)
    assert audit(watched)[:2] == (0, {"person": [second]}), "a stray is shown, and a person's to decide"
