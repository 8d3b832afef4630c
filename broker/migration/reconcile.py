"""The shell around the planner: load, plan, commit the intent, perform, commit the result.

One pass is one write transaction; no transaction spans a call to the outside. Effects run beside the loop, at most
one of a kind a node, so that a cloud that hangs delays nobody else. A crash at any point leaves rows from which the
next pass goes on: what was intended is looked up or done again, what was not intended has not happened.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from broker.checkpoint.commits import CheckpointStore
from broker.core.errors import BrokerError, Conflict, LeaseLost, ProviderError, UnknownOutcome
from broker.core.model import Job, Node, Placement
from broker.core.ports import Clock, CloudNode, CloudState, LaunchRequest, Provider
from broker.migration.blocking import Blocking
from broker.migration.effects import CreateNode, DeleteNode, Effect, Fence, FindNode
from broker.migration.plan import plan_pass
from broker.migration.rules import Rules
from broker.migration.settle import Outcome, settle_create, settle_fence, settle_find
from broker.migration.view import START_FAILED, Plan
from broker.policy.load import PolicySet
from broker.policy.schema import OnInconclusive
from broker.store.access import PAUSED, REPORT_ONLY
from broker.store.history import HistoryStore
from broker.store.state import StateStore, Tx

log = structlog.get_logger(__name__)

# Real seconds that a call to a cloud may take before its outcome is taken for unknown.
CALL_TIMEOUT_S = 60.0
# Our seconds between two tries of one effect that failed.
RETRY_S = 5.0


@dataclass
class Reconciler:
    """Brings the world to what the rows say, one pass at a time.

    Attributes:
        launch: Node and placement to the request that its cloud needs; equal for equal rows.
        wake: Asks for another pass, after a result has come in.
    """

    store: StateStore
    history: HistoryStore
    providers: Mapping[str, Provider]
    checkpoints: CheckpointStore
    policies: PolicySet
    clock: Clock
    blocking: Blocking
    rules: Rules
    launch: Callable[[Node, Placement, Job], LaunchRequest]
    wake: Callable[[], None]
    _running: dict[Effect, asyncio.Task[None]] = field(default_factory=dict)
    _started_ms: dict[Effect, int] = field(default_factory=dict)

    def one_pass(self) -> int:
        """Plan, commit, and start what is to be done outside. Returns how much there was to change or do."""
        with self.store.write() as tx:
            if tx.switch(REPORT_ONLY):
                # These rows may be old ones: by them nodes are overdue or silent that in truth train. Nothing follows
                # from them until an operator has looked; nodes go on meanwhile for as long as they are renewed.
                return 0
            plan = load(tx, self.clock.now_ms(), self.rules)
            plan_pass(plan, self._on_inconclusive(plan))
            if plan.ahead is None:
                self._save(tx, plan)
        if plan.ahead is not None:
            # Found out in the middle of a pass: what it has planned from these rows so far is worth no more.
            latch_report_only(self.store, plan.ahead)
            return 0
        started = sum(self._start(effect) for effect in plan.effects)
        return len(plan.changed) + started

    async def settle_all(self) -> None:
        """Wait for the effects under way; used at shutdown and by tests."""
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _on_inconclusive(self, plan: Plan) -> dict[str, OnInconclusive]:
        policies = self.policies.policies
        jobs = {p.id: plan.jobs[p.job_id] for p in plan.placements.values()}
        return {
            placement_id: policies[job.policy].verify.on_inconclusive
            for placement_id, job in jobs.items()
            if job.policy is not None and job.policy in policies
        }

    def _save(self, tx: Tx, plan: Plan) -> None:
        for event in plan.events:
            tx.emit(event)
        for row in plan.changed.values():
            tx.save(row)
        until_ms = plan.now_ms + round(self.rules.empty_pool_s * 1000)
        if plan.avoided:
            offers = [quote.offer for quote in self.history.now().values()]
            for avoided in plan.avoided:
                keys = {avoided.offer.key} | {o.key for o in offers if avoided.covers(o)}
                for key in sorted(keys):
                    tx.mark_empty(key, until_ms, avoided.why)

    def _start(self, effect: Effect) -> int:
        """Start an effect unless it is under way or was tried a moment ago."""
        now_ms = self.clock.now_ms()
        if effect in self._running:
            return 0
        pause_s = self.rules.find_every_s if isinstance(effect, FindNode) else RETRY_S
        started_ms = self._started_ms.get(effect)
        # A start that is still to come was noted before the clock was set back: waiting for it would leave us blind.
        if started_ms is not None and 0 <= now_ms - started_ms < pause_s * 1000:
            return 0
        self._started_ms[effect] = now_ms
        task = asyncio.get_running_loop().create_task(self._perform(effect))
        self._running[effect] = task
        task.add_done_callback(lambda _: self._running.pop(effect, None))
        return 1

    async def _perform(self, effect: Effect) -> None:
        try:
            if isinstance(effect, Fence):
                await self._fence(effect)
            else:
                await self._node_effect(effect)
        except LeaseLost:
            log.critical("daemon.replaced", effect=repr(effect))
        except Exception:
            log.exception("effect.crashed", effect=repr(effect))
        finally:
            self.wake()

    async def _node_effect(self, effect: CreateNode | FindNode | DeleteNode) -> None:
        with self.store.read() as tx:
            node = tx.node(effect.token)
            placement = tx.placement(node.placement_id) if node else None
            job = tx.job(node.job_id) if node else None
        if node is None or placement is None or job is None:
            return
        outcome = await self._call(effect, node, placement, job)
        if isinstance(outcome, ProviderError):
            log.warning(
                "effect.failed",
                effect=type(effect).__name__,
                node_token=node.token,
                error=str(outcome),
                code=outcome.code,
            )
        with self.store.write() as tx:
            plan = load(tx, self.clock.now_ms(), self.rules)
            fresh = plan.nodes.get(node.token)
            if fresh is None:
                return  # gone meanwhile; a late machine is the collector's
            if isinstance(effect, CreateNode):
                settle_create(plan, fresh, outcome)
                tx.record_launch(
                    plan.now_ms, placement.offer, isinstance(outcome, CloudNode), _error(outcome)
                )
            elif isinstance(effect, FindNode):
                settle_find(plan, fresh, outcome)
            self._save(tx, plan)

    async def _call(self, effect: Effect, node: Node, placement: Placement, job: Job) -> Outcome:
        """One blocking call to a cloud, with everything that can come of it as a value."""
        provider = self.providers.get(node.cloud)
        if provider is None:
            return ProviderError(f"{node.cloud} is not configured; its node {node.token} cannot be reached")
        try:
            match effect:
                case CreateNode():
                    request = self.launch(node, placement, job)
                    return await self.blocking.call(
                        node.cloud, lambda: provider.create(request), CALL_TIMEOUT_S
                    )
                case FindNode():
                    return await self.blocking.call(
                        node.cloud, lambda: provider.find(node.token, node.region, node.zone), CALL_TIMEOUT_S
                    )
                case DeleteNode():
                    seen = as_cloud_node(node)
                    await self.blocking.call(node.cloud, lambda: provider.delete(seen), CALL_TIMEOUT_S)
                    return None
        except ProviderError as error:
            return error
        except TimeoutError:
            return UnknownOutcome(f"no answer from {node.cloud} in {CALL_TIMEOUT_S:.0f} s")
        raise AssertionError(f"{effect!r} is no effect on a node")

    async def _fence(self, effect: Fence) -> None:
        with self.store.read() as tx:
            nodes = tx.nodes(placement_id=effect.placement_id)
            had_a_head = any(placement.fenced for placement in tx.placements(job_id=effect.job_id))
        holder = nodes[0].token if nodes else ""
        try:
            head = await self.blocking.call(
                "store",
                lambda: self.checkpoints.fence(effect.job_id, effect.generation, holder, had_a_head),
                CALL_TIMEOUT_S,
            )
        except LeaseLost:
            raise
        except Conflict as error:
            self._fence_refused(effect, error)
            return
        except (BrokerError, TimeoutError) as error:
            log.warning("fence.failed", job=effect.job_id, generation=effect.generation, error=str(error))
            self._settle_fence(effect, str(error) or "no answer in time")
            return
        assert head.generation == effect.generation, (head, effect)
        self._settle_fence(effect)

    def _settle_fence(self, effect: Fence, error: str | None = None) -> None:
        with self.store.write() as tx:
            plan = load(tx, self.clock.now_ms(), self.rules)
            settle_fence(plan, effect, error)
            self._save(tx, plan)

    def _fence_refused(self, effect: Fence, error: Conflict) -> None:
        with self.store.read() as tx:
            job = tx.job(effect.job_id)
        if job is not None and job.generation > effect.generation:
            return  # it hung in a slow store while a later landing of ours was fenced
        # HEAD is ahead of every row that we have: this database is older than the world, or a copy of one in use.
        latch_report_only(self.store, f"job {effect.job_id}: {error}")


def load(tx: Tx, now_ms: int, rules: Rules) -> Plan:
    """Every row that can still change: open jobs, open placements with their jobs, and those placements' nodes."""
    placements = tx.placements(open_only=True)
    jobs = {job.id: job for job in tx.jobs(open_only=True)}
    for placement in placements:
        if placement.job_id not in jobs:
            job = tx.job(placement.job_id)
            assert job is not None, f"placement {placement.id} has no job"
            jobs[job.id] = job
    on = tx.switched_on()
    return Plan.of(
        now_ms,
        rules,
        jobs.values(),
        placements,
        tx.nodes_of_open_placements(),
        paused=PAUSED in on,
        report_only=REPORT_ONLY in on,
        start_failures=tx.placements_that_ended(START_FAILED),
    )


def latch_report_only(store: StateStore, why: str) -> None:
    """No creates, fences or deletes until an operator has looked: the rows are older than the world."""

    log.error("daemon.report_only", reason=why)
    with store.write() as tx:
        tx.set_switch(REPORT_ONLY, True, reason=why)


def as_cloud_node(node: Node) -> CloudNode:
    """A row as `Provider.delete` wants it."""

    return CloudNode(
        token=node.token,
        provider_id=node.provider_id or node.token,
        cloud=node.cloud,
        region=node.region,
        zone=node.zone,
        state=CloudState.RUNNING,
    )


def _error(outcome: Outcome) -> str:
    return "" if isinstance(outcome, CloudNode) or outcome is None else str(outcome)
