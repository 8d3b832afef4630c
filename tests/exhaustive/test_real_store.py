"""Rows in memory are believed because SQLite tells the same story: event for event, through the same crashes."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.store.state import StateStore
from tests.clocks import ManualClock
from tests.exhaustive.cases import DEEDS, calm, effects, points
from tests.exhaustive.harness import Harness
from tests.exhaustive.mischief import Kill, Mischief
from tests.exhaustive.rows import Disk
from tests.exhaustive.scenarios import SCENARIOS
from tests.exhaustive.script import Scenario
from tests.exhaustive.worlds import Names


class RealHarness(Harness):
    """The same, with ``state.db`` on a disk: each daemon opens the file anew."""

    def __init__(self, scenario: Scenario, mischief: Mischief, folder: Path) -> None:
        self.folder = folder
        super().__init__(scenario, mischief)

    def _open_disk(self) -> Disk:
        return Disk("")

    def _open_store(self) -> StateStore:
        return StateStore.open(self.folder / "state.db", self.clock, self.ids)

    def disk_now(self) -> Disk:
        if self.daemon is None:
            return self.disk
        with self.store.read() as tx:
            self.disk = Disk(
                self.store.installation_id,
                jobs={job.id: job for job in tx.jobs()},
                placements={placement.id: placement for placement in tx.placements()},
                nodes={node.token: node for node in tx.nodes()},
                events=tx.events(),
                switches={switch.name: switch for switch in tx.switches()},
            )
        return self.disk

    def segments(self) -> Any:
        with self.store.read() as tx:
            return tx.segments()


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty ``state.db`` of this release, to be copied: migrating one costs more than a whole life."""
    path = tmp_path_factory.mktemp("exhaustive") / "state.db"
    StateStore.open(path, ManualClock(), Names()).close()
    return path


@contextmanager
def in_memory_if_possible() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture
def folder() -> Iterator[Path]:
    with in_memory_if_possible() as found:
        yield found


def story(harness: Harness) -> list[object]:
    """What both must agree on. Numbers of epochs and of names drawn for an installation are their own."""
    events = harness.disk_now().events
    told = [(e.at_ms, e.kind, e.job_id, e.placement_id, e.node_token, dict(e.data)) for e in events]
    return [*told, *harness.calls.values()]


def both(scenario: Scenario, mischief: Mischief, migrated: Path, folder: Path) -> None:
    """Run one case in both ways, each checked for itself, and compare."""
    shutil.copy(migrated, folder / "state.db")
    in_memory = calm(scenario, False).struck(mischief, whole=True) if mischief else calm(scenario, False).end
    on_disk = RealHarness(scenario, mischief, folder)
    try:
        on_disk.run()
        assert story(on_disk) == story(in_memory)
    finally:
        on_disk.store.close()


@pytest.mark.parametrize("name", ["place", "move boundary cut", "gang loses a node"])
def test_a_calm_life_is_the_same(name: str, migrated: Path, folder: Path) -> None:
    both(SCENARIOS[name], {}, migrated, folder)


@pytest.mark.parametrize("kind", ["create", "fence", "delete"])
@pytest.mark.parametrize("deed", DEEDS)
def test_a_crash_is_the_same(kind: str, deed: bool, migrated: Path, folder: Path) -> None:
    calls = calm(SCENARIOS["place"], False).end.calls.values()
    number = next(call.number for call in calls if call.kind == kind)
    both(SCENARIOS["place"], {number: Kill(deed)}, migrated, folder)


@pytest.mark.slow
@pytest.mark.timeout(900)  # a hundred lives, each with dozens of commits to a file
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_is_the_same(name: str, migrated: Path) -> None:
    scenario = SCENARIOS[name]
    for mode in (effects, points):
        for _, mischief in mode(calm(scenario, False)):
            with tempfile.TemporaryDirectory() as folder:
                both(scenario, mischief, migrated, Path(folder))
