"""What is known before the first pass: that the checkpoint store keeps its word, and that these rows are not old ones."""

import asyncio
from dataclasses import dataclass

import structlog

from broker.checkpoint.commits import CheckpointStore
from broker.core.errors import StoreError
from broker.migration.auditor import Auditor
from broker.migration.blocking import Blocking
from broker.migration.reconcile import CALL_TIMEOUT_S
from broker.store.state import StateStore

log = structlog.get_logger(__name__)

# How long a start waits for the checkpoint store before it serves agents without it, real seconds.
ANSWER_S = 10.0
# Between two tries, real seconds.
AGAIN_S = 5.0


@dataclass
class Start:
    """One start of a daemon.

    Attributes:
        proven: The checkpoint store has shown that it compares and swaps.
    """

    store: StateStore
    checkpoints: CheckpointStore
    blocking: Blocking
    auditor: Auditor
    proven: bool = False

    async def try_store(self) -> None:
        """Prove that the checkpoint store compares and swaps.

        While jobs are open, one that is away for now is waited for with the agents served: unheard, they would stop
        what they train when their run leases end.

        Raises:
            StoreError: it does not, or cannot be reached, and no job is open.
        """
        with self.store.read() as tx:
            jobs = tx.jobs(open_only=True)
        try:
            await self.blocking.call("store", self.checkpoints.self_test, ANSWER_S)
            self.proven = True
        except (StoreError, TimeoutError) as error:
            why = str(error) or f"the checkpoint store has not answered in {ANSWER_S:.0f} s"
            if not jobs:
                raise StoreError(why) from error
            log.error("start.waiting", reason=why, open_jobs=len(jobs))

    async def look_first(self) -> None:
        """Return when the store is proven, and it is known whether these rows are older than the world."""
        while True:
            try:
                if not self.proven:
                    await self.blocking.call("store", self.checkpoints.self_test, CALL_TIMEOUT_S)
                    self.proven = True
                return await self.auditor.look_first()
            except (StoreError, TimeoutError) as error:
                why = str(error) or "it does not answer"
                log.error("start.waiting", reason=f"the checkpoint store cannot be read: {why}")
                await asyncio.sleep(AGAIN_S)
