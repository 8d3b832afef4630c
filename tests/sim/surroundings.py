"""What a node asks of the world around it: the daemon behind a network that loses calls, the store, its own end."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.core.errors import AuthError, BrokerError
from broker.serve.problem import Gone, Unauthenticated
from broker.wire import messages as wire
from lab.machines import EndedBy
from tests.sim import check_head
from tests.sim.copy import Copy, Plan
from tests.sim.daemon import SimDaemon
from tests.sim.faults import Kind
from tests.sim.node import LinkDown, SimNode
from tests.sim.objects import StoreClient
from tests.sim.parts import Crash

if TYPE_CHECKING:
    from tests.sim.sim import Sim


class Surroundings:
    """`tests.sim.node.Surroundings` of all nodes of a simulation."""

    def __init__(self, sim: "Sim") -> None:
        self.sim = sim
        self.loop = sim.loop
        self.chaos = sim.chaos
        self.note = sim.note
        self.watch = sim.watch

    async def hello(self, node: SimNode, message: wire.Hello) -> wire.Welcome:
        return await self._call(node, lambda daemon: daemon.serve_hello(message))

    async def beat(self, node: SimNode, message: wire.Beat) -> wire.Directive:
        return await self._call(node, lambda daemon: daemon.serve_beat(node.token, node.secret, message))

    async def _call(self, node: SimNode, handler: Callable[[SimDaemon], Any]) -> Any:
        random, loop, chaos = node.random, self.loop, self.chaos
        await asyncio.sleep(random.uniform(0.02, 0.3))
        up = [d for d in self.sim.daemons if d.alive]
        if loop.now_s < node.cut_until_s and not chaos.calm:
            await asyncio.sleep(10)
            raise LinkDown("no route")
        if not up or chaos.strikes(Kind.CALL_LOST):
            await asyncio.sleep(2)
            raise LinkDown("connection refused")
        try:
            answer = handler(random.choice(up))
        except (AuthError, Unauthenticated) as error:
            if self.sim.restored_at_s is not None:
                chaos.reached("a node that the restored rows do not know was refused")
            raise LinkDown(str(error), 403) from error
        except (Gone, BrokerError) as error:
            raise LinkDown(str(error), 500) from error
        except Crash as error:
            raise LinkDown("connection reset") from error
        await asyncio.sleep(random.uniform(0.02, 0.3))
        if chaos.strikes(Kind.CALL_LOST) or loop.now_s < node.cut_until_s:
            raise LinkDown("the reply was lost")
        return answer

    def store_client(self, node: SimNode) -> StoreClient:
        return StoreClient(self.sim.bucket, self.sim.weather, node.token, self.chaos, self.loop, node.gate)

    def plan_of(self, job_id: str) -> Plan:
        return self.sim.plans[job_id]

    def contended(self, job_id: str) -> bool:
        """Whether more than one placement may touch the job's objects."""
        if self.chaos.calm:
            return False
        placements = [p for p in self.sim.truth.placements.values() if p.job_id == job_id]
        return sum(p.state in ("ready", "active", "draining", "releasing") for p in placements) != 1

    def end_machine(self, machine_id: str) -> None:
        self.sim.world.terminate(machine_id, EndedBy.NODE)

    def fell_back(self, node: SimNode, copy: Copy) -> None:
        check_head.fell_back(self.sim.truth, node, copy)

    def committed(self, node: SimNode, copy: Copy, seq: int, step: int) -> None:
        check_head.said_committed(self.sim.truth, node, copy, seq, step)
