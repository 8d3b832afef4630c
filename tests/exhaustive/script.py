"""What a life is written with: what can be seen from outside, when something happens, and what.

What happens from outside waits for a state of the rows and not for a turn, since mischief shifts time. States are
waited for with "or later", since a pass after an outage may go through several at once.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.core.model import Job, JobState, Placement, PlacementState, Purpose
from broker.jobs.submit import cancel
from broker.policy.load import PolicySet
from broker.store.access import PAUSED
from lab.faults import Fault
from lab.machines import EndedBy
from lab.world import World
from tests.clocks import ManualClock
from tests.exhaustive.crew import Part, Store
from tests.exhaustive.rows import Disk

AWS_NEAR = "aws/use1-az6/p5.4xlarge/spot"
AWS_FAR = "aws/use1-az1/p5.4xlarge/spot"
GCP = "gcp/us-central1-a/a3-highgpu-1g/spot"
PRICES = {AWS_NEAR: "3.00", AWS_FAR: "6.00", "gcp/us-central1-*/a3-highgpu-1g/spot": "5.00"}
_POLICY = """\
policy: exhaustive
mode: {mode}
objective: cheapest
candidates: {{max_quote_age: 10m}}
place: {{order: [spot, on_demand]}}
migrate: {{min_saving: 20%, min_saving_usd: 0, max_payback: 6h, hold: 20s, cooldown: 1m}}
verify: {{on_inconclusive: accept}}
limits: {{migrations_per_job_per_day: 20}}
"""
_ORDER = list(PlacementState)


def _policies() -> dict[str, PolicySet]:
    """Read once: a policy never changes, only which of these is in force."""
    found = {}
    with tempfile.TemporaryDirectory() as root:
        for name in ("act", "observe", "broke", "removed"):
            folder = Path(root) / name
            folder.mkdir()
            if name == "broke":
                (folder / "exhaustive.yaml").write_text(
                    _POLICY.format(mode="act") + "budget: {run_usd: 0.50}\n"
                )
            elif name != "removed":
                (folder / "exhaustive.yaml").write_text(_POLICY.format(mode=name))
            found[name] = PolicySet(folder)
            assert not found[name].errors, found[name].errors
    return found


POLICIES = _policies()


class Outside:
    """What scripts see, and what they can do."""

    clock: ManualClock
    world: World
    storage: Store
    exit_code: int | None
    job_id: str
    turns: int

    def disk_now(self) -> Disk:
        """The committed rows."""
        raise NotImplementedError

    def use_policies(self, name: str) -> None:
        """Edit the policy folder."""
        raise NotImplementedError

    @property
    def store(self) -> Any:
        """Of the daemon that runs."""
        raise NotImplementedError

    @property
    def job(self) -> Job:
        """The one job."""
        return self.disk_now().jobs[self.job_id]

    def placements(self, *purposes: Purpose) -> list[Placement]:
        """By attempt, of these purposes or of all."""
        found = sorted(self.disk_now().placements.values(), key=lambda p: p.attempt)
        return [p for p in found if not purposes or p.purpose in purposes]

    def training(self) -> Placement | None:
        """The placement that trains and has committed."""
        generation = self.job.commit.generation if self.job.commit else 0
        return next(
            (p for p in self.placements() if p.state == PlacementState.ACTIVE and p.generation == generation),
            None,
        )

    def machine_ids(self, placement: Placement) -> list[str]:
        """Its machines at the cloud."""
        tokens = {n.token for n in self.disk_now().nodes.values() if n.placement_id == placement.id}
        return [m.id for m in self.world.machines() if m.labels["token"] in tokens]

    def end_from_inside(self, machine_id: str) -> None:
        """The dead-man switch."""
        self.world.terminate(machine_id, EndedBy.NODE)


When = Callable[[Outside], bool]


@dataclass(frozen=True)
class Step:
    """Something that a person or a cloud does, once, when its time has come."""

    name: str
    when: When
    act: Callable[[Any], None]


@dataclass(frozen=True, eq=False)
class Scenario:
    """A life of a job.

    Attributes:
        ends: State of the job at the end.
        parts: What agents do, by the number of their placement, else by its purpose.
        faults: What the clouds do wrong without any mischief.
        reached: What must have been the case at the end of a run without mischief, or the scenario tests nothing.
    """

    name: str
    script: Sequence[Step]
    ends: JobState = JobState.SUCCEEDED
    nodes: int = 1
    parts: Mapping[Purpose | int, Part] = field(default_factory=dict)
    faults: Sequence[Fault] = ()
    reached: When = lambda _: True

    def part(self, placement: Placement | None) -> Part:
        """Of the agents of a placement."""
        if placement is None:
            return Part()
        return self.parts.get(placement.attempt) or self.parts.get(placement.purpose, Part())


# -- when -------------------------------------------------------------------------------------------------------------


def trains(outside: Outside) -> bool:
    """A copy trains and has committed."""
    return outside.training() is not None


def taken(outside: Outside) -> bool:
    """The cloud has taken an order."""
    return any(node.provider_id for node in outside.disk_now().nodes.values())


def at_least(state: PlacementState, *purposes: Purpose) -> When:
    """The newest placement of these purposes is in this state or beyond."""

    def holds(outside: Outside) -> bool:
        found = outside.placements(*purposes)
        return bool(found) and _ORDER.index(found[-1].state) >= _ORDER.index(state)

    return holds


def trains_as(*purposes: Purpose) -> When:
    """The copy that trains came for one of these reasons."""

    def holds(outside: Outside) -> bool:
        training = outside.training()
        return training is not None and training.purpose in purposes

    return holds


def draining(outside: Outside) -> bool:
    """A move has come so far that the old copy has been asked to stop, or farther."""
    moves = outside.placements(Purpose.MOVE)
    return any(p.cut is not None for p in outside.placements()) or any(
        p.state in (PlacementState.ACTIVE, PlacementState.RELEASING, PlacementState.GONE) for p in moves
    )


def noticed(outside: Outside) -> bool:
    """The rows know that the cloud takes a placement back, or it is over."""
    return any(p.lost for p in outside.placements())


def noticed_or_draining(outside: Outside) -> bool:
    """A copy has been asked to stop, or its place is lost."""
    return noticed(outside) or any(p.cut is not None or p.drained for p in outside.placements())


def settled_or_lost(outside: Outside) -> bool:
    """`settled`, or there is nothing left that could settle."""
    return settled(outside) or all(p.state == PlacementState.GONE for p in outside.placements())


def settled(outside: Outside) -> bool:
    """Something trains, and every move has succeeded or been given up; at least one has been tried."""
    moves = outside.placements(Purpose.MOVE)
    done = all(p.state in (PlacementState.ACTIVE, PlacementState.GONE) for p in moves)
    return bool(moves) and done and trains(outside)


# -- what -------------------------------------------------------------------------------------------------------------


def dearer_here(outside: Outside) -> None:
    """Prices after which a move pays, wherever it trains."""
    training = outside.training()
    assert training is not None
    elsewhere = [key for key in (GCP, AWS_NEAR, AWS_FAR) if key != training.offer.key]
    outside.world.set_price(training.offer.key, 5_700_000)
    for key, price in zip(elsewhere, (2_400_000, 2_600_000), strict=True):
        outside.world.set_price(key, price)


def finish(outside: Outside) -> None:
    """The job's work is done: whichever copy trains exits next."""
    outside.exit_code = 0


def crash(outside: Outside) -> None:
    """The job has a bug: whichever copy trains exits next, and badly."""
    outside.exit_code = 3


def cancel_job(outside: Outside) -> None:
    """What `broker cancel` does."""
    with outside.store.write() as tx:
        job = tx.job(outside.job_id)
        if not job.state.final:
            cancel(tx, job, "ada", outside.clock.now_ms())


def take_back(notice_s: int) -> Callable[[Outside], None]:
    """The cloud wants the training machine back."""

    def act(outside: Outside) -> None:
        for placement in outside.placements():
            if placement.state == PlacementState.ACTIVE:
                for machine_id in outside.machine_ids(placement):
                    outside.world.interrupt(machine_id, notice_s)

    return act


def take_back_oldest(outside: Outside) -> None:
    """The cloud wants the first placement's machine back."""
    for machine_id in outside.machine_ids(outside.placements()[0]):
        outside.world.interrupt(machine_id, 30)


def take_back_newest(outside: Outside) -> None:
    """The cloud takes back what it has only just given."""
    for machine_id in outside.machine_ids(outside.placements()[-1]):
        outside.world.interrupt(machine_id, 0)


def pause(value: bool) -> Callable[[Outside], None]:
    """`broker pause` and `broker resume`."""

    def act(outside: Outside) -> None:
        with outside.store.write() as tx:
            tx.set_switch(PAUSED, value, by="ada", reason="invoice")

    return act
