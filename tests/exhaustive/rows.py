"""``state.db`` in memory: what survives a daemon, and transactions over it.

An exhaustive test restarts a daemon thousands of times; SQLite would spend minutes on what dictionaries of frozen
rows do in a second. That both give the same history is not believed but tested, in `test_real_store.py`.

Every save goes through the same questions: is there a reason, is there a deadline, does at most one placement of a
job train. So no scenario can forget to ask them.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from broker.core.errors import LeaseLost
from broker.core.model import Decision, Event, Job, Node, NodeState, Placement, PlacementState, Segment
from broker.core.offer import Offer
from broker.store.access import SWITCHES, Project, Switch
from broker.store.memory import AnyHold, Launch, Wish
from broker.store.rows import CAUGHT_UP

_NO_DEADLINE = (PlacementState.ACTIVE, PlacementState.GONE)


@dataclass
class Disk:
    """Committed rows. Values are frozen, so a copy of the dictionaries is a copy of everything."""

    installation_id: str = "bi-exhaustive"
    epoch: int = 0
    jobs: dict[str, Job] = field(default_factory=dict)
    placements: dict[str, Placement] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    decisions: dict[str, Decision] = field(default_factory=dict)
    holds: dict[tuple[str, str], Wish] = field(default_factory=dict)
    pools: dict[str, int] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    switches: dict[str, Switch] = field(default_factory=dict)

    def image(self) -> dict[str, Any]:
        """Everything as it is now; `restore` takes it back."""
        return {
            name: value if isinstance(value, int | str) else value.copy()
            for name, value in vars(self).items()
        }

    def same_as(self, other: "Disk") -> bool:
        """The rows that decide what comes next are equal; which events have been written does not decide anything."""
        return (
            (self.jobs, self.placements, self.nodes) == (other.jobs, other.placements, other.nodes)
            and (self.holds, self.pools, self.launches) == (other.holds, other.pools, other.launches)
            and self.switches == other.switches
        )

    def restore(self, image: dict[str, Any]) -> None:
        """Undo whatever was written since `image`."""
        vars(self).update(image)


class Tx:
    """The part of `broker.store.state.Tx` that the protocol uses."""

    def __init__(self, disk: Disk, now_ms: int, writing: bool) -> None:
        self._disk = disk
        self._now_ms = now_ms
        self._writing = writing

    # -- jobs, placements, nodes ------------------------------------------------------------------------------------

    def jobs(self, *, open_only: bool = False) -> list[Job]:
        found = sorted(self._disk.jobs.values(), key=lambda j: (j.created_at_ms, j.id))
        return [j for j in found if not (open_only and j.state.final)]

    def job(self, job_id: str) -> Job | None:
        return self._disk.jobs.get(job_id)

    def job_by_key(self, project_id: str, idempotency_key: str) -> Job | None:
        wanted = (project_id, idempotency_key)
        return next((j for j in self.jobs() if (j.project_id, j.idempotency_key) == wanted), None)

    def placements(self, *, open_only: bool = False, job_id: str | None = None) -> list[Placement]:
        found = sorted(self._disk.placements.values(), key=lambda p: (p.created_at_ms, p.attempt))
        return [
            p
            for p in found
            if job_id in (None, p.job_id) and not (open_only and p.state == PlacementState.GONE)
        ]

    def placement(self, placement_id: str) -> Placement | None:
        return self._disk.placements.get(placement_id)

    def nodes(self, *, open_only: bool = False, placement_id: str | None = None) -> list[Node]:
        found = sorted(self._disk.nodes.values(), key=lambda n: (n.created_at_ms, n.placement_id, n.rank))
        return [
            n
            for n in found
            if placement_id in (None, n.placement_id) and not (open_only and n.state == NodeState.GONE)
        ]

    def nodes_of_open_placements(self) -> list[Node]:
        return [node for p in self.placements(open_only=True) for node in self.nodes(placement_id=p.id)]

    def placements_that_ended(self, reason: str) -> dict[str, int]:
        jobs = {job.id for job in self.jobs(open_only=True)}
        return Counter(
            p.job_id for p in self.placements() if p.reason.startswith(reason) and p.job_id in jobs
        )

    def node(self, token: str) -> Node | None:
        return self._disk.nodes.get(token)

    def save(self, value: Job | Placement | Node) -> None:
        assert self._writing, "a write in a read"
        table, key = self._table(value)
        before = table.get(key)
        assert value.reason, f"{key} is {value.state} without a reason"
        if isinstance(value, Placement):
            bounded = value.deadline_ms is not None or value.state in _NO_DEADLINE
            assert bounded, f"{key} may stay {value.state} for ever"
        if isinstance(value, Job) and isinstance(before, Job):
            assert value.generation >= before.generation, f"generation of {key} has sunk"
        table[key] = value

    def _table(self, value: Job | Placement | Node) -> tuple[dict[str, Any], str]:
        match value:
            case Job():
                return self._disk.jobs, value.id
            case Placement():
                return self._disk.placements, value.id
            case Node():
                return self._disk.nodes, value.token

    def segments(self) -> list[Segment]:
        metered = [n for n in self._disk.nodes.values() if n.billed_from_ms is not None]
        return [
            Segment(
                n.token, n.placement_id, n.job_id, n.project_id, self._disk.placements[n.placement_id].offer,
                n.billed_from_ms or 0, n.ended_at_ms, n.ended_by,
            )
            for n in sorted(metered, key=lambda n: (n.billed_from_ms, n.token))
        ]  # fmt: skip

    # -- events, decisions, memory ----------------------------------------------------------------------------------

    def emit(self, event: Event) -> int:
        assert self._writing, "a write in a read"
        assert event.seq == 0, "the store numbers events"
        seq = len(self._disk.events) + 1
        self._disk.events.append(replace(event, seq=seq))
        return seq

    def events(self, after: int = 0) -> list[Event]:
        return self._disk.events[after:]

    def last_seq(self) -> int:
        return len(self._disk.events)

    def event(self, seq: int) -> Event | None:
        return self._disk.events[seq - 1] if 0 < seq <= len(self._disk.events) else None

    def caught_up_to(self) -> int:
        return max((event.seq for event in self._disk.events if event.kind == CAUGHT_UP), default=0)

    def save_decision(self, decision: Decision) -> None:
        self._disk.decisions[decision.id] = decision

    def hold(self, job_id: str, policy: str) -> Wish | None:
        return self._disk.holds.get((job_id, policy))

    def save_hold(self, job_id: str, policy: str, hold: AnyHold | None) -> None:
        if hold is None:
            self._disk.holds.pop((job_id, policy), None)
        else:
            self._disk.holds[job_id, policy] = Wish(hold.target_key, hold.since_ms, hold.quote_at_ms)

    def pools(self) -> dict[str, int]:
        return {key: until for key, until in self._disk.pools.items() if until > self._now_ms}

    def mark_empty(self, offer_key: str, until_ms: int, reason: str) -> None:
        assert reason, offer_key
        self._disk.pools[offer_key] = until_ms

    def record_launch(self, at_ms: int, offer: Offer, ok: bool, error: str = "") -> None:
        self._disk.launches.append(Launch(at_ms, offer.key, offer.market, ok, error))

    def launches(self, since_ms: int) -> list[Launch]:
        return [launch for launch in self._disk.launches if launch.at_ms >= since_ms]

    # -- switches and projects --------------------------------------------------------------------------------------

    def projects(self) -> list[Project]:
        return [Project("default", "broker", 0)]

    def switches(self) -> list[Switch]:
        return sorted(self._disk.switches.values(), key=lambda switch: switch.name)

    def switched_on(self) -> set[str]:
        return {name for name, switch in self._disk.switches.items() if switch.value}

    def switch(self, name: str) -> bool:
        assert name in SWITCHES, name
        return name in self._disk.switches and self._disk.switches[name].value

    def set_switch(self, name: str, value: bool, *, by: str = "broker", reason: str = "") -> bool:
        if self.switch(name) == value:
            return False
        self._disk.switches[name] = Switch(name, value, reason, by, self._now_ms)
        data = {"name": name, "value": value, "reason": reason}
        self.emit(Event("switch.set", self._now_ms, actor=by, data=data))
        return True


class MemoryStore:
    """`broker.store.state.StateStore` over a `Disk`. A newer one on the same disk takes over."""

    def __init__(self, disk: Disk, clock: Any) -> None:
        self._disk = disk
        self._clock = clock
        self._writing = False
        disk.epoch += 1
        self.epoch = disk.epoch
        self.installation_id = disk.installation_id

    @contextmanager
    def write(self) -> Iterator[Tx]:
        """Commits when the block ends, and does nothing at all when it raises."""
        assert not self._writing, "a write inside a write"
        if self._disk.epoch != self.epoch:
            raise LeaseLost("another daemon has taken over; nothing was written")
        self._writing = True
        image = self._disk.image()
        try:
            yield Tx(self._disk, self._clock.now_ms(), writing=True)
            _one_trains(self._disk)
        except BaseException:
            self._disk.restore(image)
            raise
        finally:
            self._writing = False

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """Sees the committed rows; writing in it fails."""
        yield Tx(self._disk, self._clock.now_ms(), writing=False)

    def close(self) -> None:
        """Nothing is held open."""


def _one_trains(disk: Disk) -> None:
    training = Counter(p.job_id for p in disk.placements.values() if p.state == PlacementState.ACTIVE)
    assert all(count == 1 for count in training.values()), f"two placements of one job train: {training}"
