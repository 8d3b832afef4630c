"""The lab's world in a form that can be copied in the middle of a run, and what else of the outside needs that."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from types import CellType, FunctionType

from broker.core.ports import Clock, CloudNode, CloudState
from lab.catalog import Scenario
from lab.faults import Faults
from lab.pools import Pool
from lab.world import World
from tests.clocks import CountingIds
from tests.world_provider import WorldProvider


class Names:
    """`tests.clocks.CountingIds`, of which a copy goes on by itself."""

    def __init__(self) -> None:
        self.drawn = 0

    def base32(self, length: int) -> str:
        """The next one."""
        self.drawn += 1
        return CountingIds(self.drawn).base32(length)


class Forgetful(WorldProvider):
    """A cloud that denies a machine as soon as it is terminated, as GCP does; AWS goes on showing it for an hour."""

    def find(self, token: str, region: str, zone: str) -> CloudNode | None:
        """None for what is over."""
        found = super().find(token, region, zone)
        return None if found is None or found.state is CloudState.TERMINATED else found


class SmallWorld(World):
    """The lab's world, which can be compared and copied."""

    def same_as(self, other: World) -> bool:
        """Its machines and prices are equal, and so is what is due."""
        due = sorted((at_s, act.__qualname__) for at_s, _, act in self._due)
        return (
            self._machines == other._machines
            and {k: p.changes for k, p in self.pools.items()}
            == {k: p.changes for k, p in other.pools.items()}
            and due == sorted((at_s, act.__qualname__) for at_s, _, act in other._due)
            and self.faults.pending() == other.faults.pending()
        )


def open_world(clock: Clock, prices: Mapping[str, str], keys: Iterable[str]) -> SmallWorld:
    """A world that sells nothing but these offers."""
    world = SmallWorld(clock, Scenario.of({"prices": prices}))
    world.pools = {key: world.pools[key] for key in keys}
    return world


def clone_world(world: SmallWorld, clock: Clock) -> SmallWorld:
    """The same world, going its own way from here. Machines are frozen and shared; nobody may listen."""
    assert not world._listeners, "a listener belongs to one world"
    twin = copy(world)
    twin.clock = clock
    twin.faults = Faults()
    for fault in world.faults.pending():
        twin.faults.add(fault)
    twin.pools = {key: Pool(p.listing, p.changes.copy(), p.stock) for key, p in world.pools.items()}
    twin._machines, twin._tokens, twin._log = world._machines.copy(), world._tokens.copy(), world._log.copy()
    twin._due = [(at_s, order, _rebound(act, world, twin)) for at_s, order, act in world._due]
    twin._outbox = deque()
    return twin


def _rebound(act: Callable[[int], None], old: World, new: World) -> Callable[[int], None]:
    """A closure of the old world as one of the new: what is due is kept as functions that hold their world."""
    assert isinstance(act, FunctionType), act
    cells = tuple(
        CellType(new if cell.cell_contents is old else cell.cell_contents) for cell in act.__closure__ or ()
    )
    return FunctionType(act.__code__, act.__globals__, act.__name__, act.__defaults__, cells)
