"""One daemon of the harness: its shell tells which effect a call belongs to, and once it is dead nothing of it gets out."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from broker.migration.collect import Collector
from broker.migration.decide import Decider
from broker.migration.effects import CreateNode, DeleteNode, Effect, Fence, FindNode
from broker.migration.reconcile import CALL_TIMEOUT_S, Reconciler
from tests.exhaustive.mischief import Call, Kill, Planted

T = TypeVar("T")
EFFECT: ContextVar[Effect | str] = ContextVar("effect")
"""What the call that is made now belongs to."""


class Watched(Reconciler):
    """The reconciler, telling the hook which effect a call belongs to, and of every error that it would only log."""

    problems: list[str]

    @property
    def busy(self) -> bool:
        """Effects are under way."""
        return bool(self._running)

    async def _node_effect(self, effect: CreateNode | FindNode | DeleteNode) -> None:
        EFFECT.set(effect)
        with self._honest():
            await super()._node_effect(effect)

    async def _fence(self, effect: Fence) -> None:
        EFFECT.set(effect)
        with self._honest():
            await super()._fence(effect)

    @contextmanager
    def _honest(self) -> Iterator[None]:
        try:
            yield
        except Planted:
            raise
        except Exception as error:
            self.problems.append(f"{EFFECT.get()}: {type(error).__name__}: {error}")
            raise


class Gate:
    """`Blocking` of one daemon. Once that is dead, nothing of it reaches the outside any more."""

    def __init__(self, perform: Callable[["Gate", str, Callable[[], Any]], Awaitable[Any]]) -> None:
        self.dead = False
        self.down_s = 0.0
        self._perform = perform

    async def call(self, pool: str, work: Callable[[], T], timeout_s: float) -> T:
        """Hand the deed over."""
        if self.dead:
            await never()
        assert timeout_s == CALL_TIMEOUT_S, f"{pool}: {timeout_s} s"
        answer: T = await self._perform(self, pool, work)
        return answer

    def kill(self, act: Kill) -> None:
        """From here on the daemon is dead."""
        self.dead, self.down_s = True, act.down_s


@dataclass
class Daemon:
    """Everything that a crash forgets."""

    gate: Gate
    store: Any
    reconciler: Watched
    decider: Decider
    collector: Collector
    sweep: asyncio.Task[None] | None = None

    def remember(self, other: "Daemon") -> None:
        """Take over what `other` has in memory: between two turns, this is all of it."""
        self.reconciler._started_ms = other.reconciler._started_ms.copy()
        self.decider._answered = other.decider._answered.copy()
        self.collector.sweeps = other.collector.sweeps.copy()


def named(number: int, work: Callable[[], Any]) -> Call:
    """A call by the effect that it belongs to."""
    match EFFECT.get():
        case CreateNode() as node:
            return Call(number, "create", node.token)
        case FindNode() as node:
            return Call(number, "find", node.token)
        case DeleteNode() as node:
            return Call(number, "delete", node.token)
        case Fence() as fence:
            return Call(number, "fence", f"{fence.placement_id} {fence.generation}")
        case _:
            listing = getattr(work, "__name__", "") == "list_owned"
            return Call(number, "list" if listing else "collect", "collector")


async def never() -> None:
    """What a dead process does next."""
    await asyncio.get_running_loop().create_future()


async def forget_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
