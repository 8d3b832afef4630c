"""The shell around the audit: ask clouds and store, read the rows, compare; end what was shown; clear the latch.

Outside first, rows second, as in `broker.migration.collect`, whose code ends machines here too.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from broker.checkpoint.commits import CheckpointStore
from broker.core.audit import Act, Applied, Audit, Discrepancy
from broker.core.errors import Corrupt, ProviderError, Refused, StoreError
from broker.core.model import EndedBy, Event, Job, Node, NodeState
from broker.core.ports import CloudNode
from broker.migration.adopt import catch_up
from broker.migration.audit import STORE, Outside, Rows, compare, disowned, doubtful
from broker.migration.collect import Collector, read_log
from broker.migration.reconcile import CALL_TIMEOUT_S, latch_report_only
from broker.store.access import REPORT_ONLY
from broker.store.state import Tx
from broker.wire.head import Head

log = structlog.get_logger(__name__)


@dataclass
class Auditor:
    """Compares everything with everything, on demand and once before the first pass.

    Attributes:
        closed: Configured clouds that could not be opened, and why.
    """

    collector: Collector
    checkpoints: CheckpointStore
    closed: Mapping[str, str] = field(default_factory=dict)

    async def look_first(self) -> None:
        """Before the first pass of a start: is this database older than the world? Then latch report-only.

        The HEADs are what matters. A job whose HEAD is ahead of its row would be placed again, and be granted the very
        generation that a copy holds which the row does not know: two copies that both may commit. Clouds are looked
        at too, but one that does not answer delays a start by no more than a call's time-out.

        Raises:
            StoreError: a HEAD could not be read; without that nothing may be started. Call it again.
        """
        heads = await self._heads()
        with self.collector.store.read() as tx:
            tokens = {node.token for node in tx.nodes()}
            ahead = [
                job.id
                for job in tx.jobs(open_only=True)
                if (head := heads.get(job.id)) and disowned(head, job.generation, tokens)
            ]
        if ahead:
            why = f"HEAD is ahead of the rows of {len(ahead)} jobs: {', '.join(ahead[:3])}"
            latch_report_only(self.collector.store, why)
        await self.collector.look()

    async def audit(self) -> Audit:
        """Ask and compare. Changes nothing."""
        return self._compare(*await self._ask())

    async def apply(self, ids: Collection[str], by: str) -> Applied:
        """Do what an audit has shown, as far as it still is so; nothing that is not in `ids`.

        Raises:
            Refused: report-only is latched.
        """
        outside, rows = await self._ask()
        audit = self._compare(outside, rows)
        if audit.report_only is not None:
            raise Refused(
                f"report-only is latched ({audit.report_only}): nothing is ended until an operator has looked and "
                "cleared it with `broker resume --report-only`"
            )
        wanted = [d for d in audit.discrepancies if d.id in ids and d.act.applies]
        done: list[Discrepancy] = []
        failed: list[Discrepancy] = []
        for discrepancy in wanted:
            error = await self._carry_out(discrepancy, outside, by)
            if error is None:
                done.append(discrepancy)
            else:
                failed.append(replace(discrepancy, detail=error))
        return Applied(tuple(done), tuple(failed), tuple(sorted(set(ids) - {d.id for d in wanted})))

    async def clear(self, by: str, reason: str) -> Audit:
        """Clear report-only, and let the rows catch up with the world, or it would be latched again at once.

        Returns:
            The audit as it is once cleared: what will be done now. A cloud that could not be asked may latch it again
            later.

        Raises:
            StoreError: the HEADs could not be read, so a job might be fenced backwards. Nothing was changed.
        """
        outside, rows = await self._ask()
        if STORE in outside.unasked:
            raise StoreError(f"report-only stays latched, the HEADs cannot be read: {outside.unasked[STORE]}")
        ours = (
            machine.event_seq
            for machines in outside.listed.values()
            for machine in machines
            if machine.installation_id == rows.installation_id
        )
        heads = {job_id: head for job_id, head in outside.heads.items() if head is not None}
        now_ms = self.collector.clock.now_ms()
        with self.collector.store.write() as tx:
            tx.catch_up(max(ours, default=0), by)
            jobs, placements = tx.jobs(open_only=True), tx.placements(open_only=True)
            nodes = tx.nodes(open_only=True)
            for value in catch_up(jobs, placements, nodes, heads, now_ms, self.collector.rules):
                tx.save(value)
                if isinstance(value, Job):
                    tx.emit(_caught_up(value, by, now_ms))
            tx.set_switch(REPORT_ONLY, False, by=by, reason=reason)
            machines = [machine for machines in outside.listed.values() for machine in machines]
            rows = _rows(tx, rows.installation_id, machines)
        log.warning("report_only.cleared", by=by, reason=reason)
        return self._compare(outside, rows)

    def _compare(self, outside: Outside, rows: Rows) -> Audit:
        return compare(outside, rows, self.collector.clock.now_ms(), self.collector.rules)

    async def _carry_out(self, discrepancy: Discrepancy, outside: Outside, by: str) -> str | None:
        if discrepancy.act == Act.CLOSE:
            self._close(discrepancy.subject, outside.looked_up[discrepancy.subject], by)
            return None
        machine = next(
            m for m in outside.listed[discrepancy.cloud] if m.provider_id == discrepancy.provider_id
        )
        return await self.collector.end(machine, by)

    def _close(self, token: str, machine: CloudNode | None, by: str) -> None:
        """Write the end of a final node's segment: by the cloud's word, else when its row became final."""
        with self.collector.store.write() as tx:
            node = tx.node(token)
            if node is None or node.state != NodeState.GONE or node.ended_at_ms is not None:
                return
            ended_at_ms = (machine.ended_at_ms if machine else None) or node.state_since_ms
            ended_by = (machine.ended_by if machine else None) or EndedBy.NODE
            tx.save(replace(node, ended_at_ms=ended_at_ms, ended_by=ended_by))
            tx.emit(
                Event(
                    "segment.closed",
                    self.collector.clock.now_ms(),
                    actor=by,
                    project_id=node.project_id,
                    job_id=node.job_id,
                    placement_id=node.placement_id,
                    node_token=node.token,
                    data={"ended_at_ms": ended_at_ms, "ended_by": str(ended_by)},
                )
            )

    # -- asking -----------------------------------------------------------------------------------------------------

    async def _ask(self) -> tuple[Outside, Rows]:
        asked_at_ms = self.collector.clock.now_ms()
        listed, unasked = await self._list()
        heads: Mapping[str, Head | None] = {}
        prefixes: Collection[str] = ()
        try:
            heads = await self._heads()
            prefixes = await self.collector.blocking.call("store", self.checkpoints.job_ids, CALL_TIMEOUT_S)
        except (StoreError, TimeoutError) as error:
            unasked[STORE] = str(error) or "no answer in time"
        with self.collector.store.read() as tx:
            machines = [machine for machines in listed.values() for machine in machines]
            rows = _rows(tx, self.collector.store.installation_id, machines)
        now_ms, rules = self.collector.clock.now_ms(), self.collector.rules
        looked_up = await self._look_up(doubtful(listed, rows.nodes.values(), now_ms, rules))
        return Outside(listed, unasked, looked_up, heads, prefixes, asked_at_ms), rows

    async def _list(self) -> tuple[dict[str, list[CloudNode]], dict[str, str]]:
        listed: dict[str, list[CloudNode]] = {}
        unasked = dict(self.closed)

        async def one(cloud: str) -> None:
            provider = self.collector.providers[cloud]
            try:
                found = await self.collector.blocking.call(cloud, provider.list_tagged, CALL_TIMEOUT_S)
                listed[cloud] = list(found)
            except (ProviderError, TimeoutError) as error:
                unasked[cloud] = str(error) or "no answer in time"

        await asyncio.gather(*(one(cloud) for cloud in self.collector.providers))
        return listed, unasked

    async def _look_up(self, nodes: Iterable[Node]) -> dict[str, CloudNode | None]:
        found: dict[str, CloudNode | None] = {}

        async def one(node: Node) -> None:
            provider = self.collector.providers[node.cloud]
            try:
                found[node.token] = await self.collector.blocking.call(
                    node.cloud, lambda: provider.find(node.token, node.region, node.zone), CALL_TIMEOUT_S
                )
            except (ProviderError, TimeoutError) as error:
                log.warning("audit.look_up_failed", node_token=node.token, error=str(error))

        await asyncio.gather(*(one(node) for node in nodes))
        return found

    async def _heads(self) -> dict[str, Head | None]:
        """HEAD by open job, None where it is damaged; jobs without a HEAD are left out.

        Raises:
            StoreError: one could not be read.
        """
        with self.collector.store.read() as tx:
            job_ids = [job.id for job in tx.jobs(open_only=True)]
        heads: dict[str, Head | None] = {}

        async def one(job_id: str) -> None:
            try:
                head = await self.collector.blocking.call(
                    "store", lambda: self.checkpoints.head(job_id), CALL_TIMEOUT_S
                )
            except Corrupt:
                heads[job_id] = None
            except TimeoutError as error:
                raise StoreError(f"HEAD of {job_id}: no answer in {CALL_TIMEOUT_S:.0f} s") from error
            else:
                if head is not None:
                    heads[job_id] = head

        await asyncio.gather(*(one(job_id) for job_id in job_ids))
        return heads


def _rows(tx: Tx, installation_id: str, machines: Iterable[CloudNode]) -> Rows:
    latch = next((s for s in tx.switches() if s.name == REPORT_ONLY and s.value), None)
    return Rows(
        installation_id=installation_id,
        log=read_log(tx, machines),
        nodes={node.token: node for node in tx.nodes()},
        jobs={job.id: job for job in tx.jobs()},
        report_only=None if latch is None else latch.reason or "no reason given",
    )


def _caught_up(job: Job, by: str, now_ms: int) -> Event:
    data = {"generation": job.generation}
    return Event("job.caught_up", now_ms, actor=by, project_id=job.project_id, job_id=job.id, data=data)
