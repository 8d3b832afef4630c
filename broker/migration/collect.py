"""Orphans: machines that a cloud bills us for and no row of ours wants. Cloud first, rows second.

Why that order: a machine is only ever created *after* its row was committed. Listing the cloud first means that every
machine in the list has a row that we are about to read; the other way round, a node created between the two reads
would look like an orphan and a running job would be killed.

A machine is ended on two witnesses only: it carries our installation's tag, and its token is unknown to the rows or
final there, and it is older than the grace. A tag with the number of an event that is not in our log means that the
*rows* are the old ones (a restored backup): then nothing is ended, and report-only is latched.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from broker.core.audit import Asked, Audit
from broker.core.errors import ProviderError
from broker.core.model import EndedBy, Event
from broker.core.ports import Clock, CloudNode, Provider
from broker.core.time import format_duration
from broker.migration.audit import INTENT, Log, Orphans, describe, orphans
from broker.migration.blocking import Blocking
from broker.migration.reconcile import CALL_TIMEOUT_S, latch_report_only
from broker.migration.rules import Rules
from broker.store.access import REPORT_ONLY
from broker.store.state import StateStore, Tx

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Sweep:
    """What the last look at one cloud found.

    Attributes:
        at_ms: When the cloud last listed its machines in full; None: never yet.
        error: Why the newest try failed; empty when it did not. `orphans` are then of an older one.
    """

    at_ms: int | None = None
    orphans: Orphans = field(default_factory=Orphans)
    error: str = ""

    def unasked(self, now_ms: int) -> str:
        """Why this is not the whole truth of now; empty when it is."""
        if not self.error:
            return "" if self.at_ms is not None else "not listed yet"
        age = (
            "never listed"
            if self.at_ms is None
            else f"listed {format_duration((now_ms - self.at_ms) / 1000)} ago"
        )
        return f"{age}, since then: {self.error}"


@dataclass
class Collector:
    """Sweeps every cloud. Constant work, no input, safe to run at any time.

    Attributes:
        sweeps: The last look, by cloud.
    """

    store: StateStore
    providers: Mapping[str, Provider]
    clock: Clock
    blocking: Blocking
    rules: Rules
    sweeps: dict[str, Sweep] = field(default_factory=dict)

    @property
    def unowned(self) -> int | None:
        """Machines with our tag that no row wants, young ones too; None before the first look at any cloud."""
        seen = [s.orphans for s in self.sweeps.values() if s.at_ms is not None]
        return sum(len(o.unowned) + len(o.waiting) + len(o.newer) for o in seen) if seen else None

    def last(self) -> Audit:
        """What the last looks have found, without asking anybody."""
        now_ms = self.clock.now_ms()
        with self.store.read() as tx:
            found = [
                discrepancy
                for sweep in self.sweeps.values()
                for discrepancy in describe(sweep.orphans, tx.node, now_ms, self.rules)
            ]
            latch = next((s.reason for s in tx.switches() if s.name == REPORT_ONLY and s.value), None)
        sweeps = {cloud: self.sweeps.get(cloud, Sweep()) for cloud in sorted(self.providers)}
        asked = tuple(Asked(c, unasked=s.unasked(now_ms), at_ms=s.at_ms) for c, s in sweeps.items())
        return Audit(now_ms, latch, asked, tuple(found))

    async def one_pass(self) -> None:
        """Look, then end what has to end."""
        await self.look()
        for sweep in list(self.sweeps.values()):
            if not sweep.error:
                for machine in sweep.orphans.unowned:
                    await self.end(machine)

    async def look(self) -> None:
        """List and compare, all clouds at once: one that hangs keeps no other from being looked at."""
        await asyncio.gather(*(self._look(cloud, provider) for cloud, provider in self.providers.items()))

    async def end(self, machine: CloudNode, actor: str = "broker") -> str | None:
        """Write the intent, then delete; returns what went wrong. While report-only is latched it does nothing.

        That the token has no row, or a final one, cannot change any more: tokens are never made twice.
        """
        with self.store.write() as tx:  # the intent, as for every stop
            if tx.switch(REPORT_ONLY):
                return "report-only is latched"
            tx.emit(
                Event(
                    "node.unowned",
                    self.clock.now_ms(),
                    actor=actor,
                    node_token=machine.token,
                    data={"cloud": machine.cloud, "provider_id": machine.provider_id},
                )
            )
            self._meter(tx, machine, ended_at_ms=None)
        who = {"cloud": machine.cloud, "node_token": machine.token, "provider_id": machine.provider_id}
        log.warning("node.unowned", **who)
        provider = self.providers[machine.cloud]
        try:
            await self.blocking.call(machine.cloud, lambda: provider.delete(machine), CALL_TIMEOUT_S)
        except (ProviderError, TimeoutError) as error:
            log.warning("collect.delete_failed", **who, error=str(error))
            return str(error) or "no answer in time"
        with self.store.write() as tx:
            self._meter(tx, machine, ended_at_ms=self.clock.now_ms())
            tx.emit(_ended(tx, machine, actor, self.clock.now_ms()))
        return None

    @staticmethod
    def _meter(tx: Tx, machine: CloudNode, ended_at_ms: int | None) -> None:
        """An orphan costs money like any other node: its row stays final, its segment tells what it really ran.

        The end is when the cloud has taken the delete; most keep no record of it that we could wait for. One that was
        listed before it ran may run by now: its meter is taken to begin when it was made.
        """
        node = tx.node(machine.token)
        from_ms = machine.billed_from_ms or machine.created_at_ms or None
        if node is not None and from_ms is not None:
            tx.save(
                replace(
                    node,
                    provider_id=machine.provider_id,
                    billed_from_ms=from_ms,
                    ended_at_ms=ended_at_ms,
                    ended_by=EndedBy.US if ended_at_ms is not None else None,
                )
            )

    async def _look(self, cloud: str, provider: Provider) -> None:
        before = self.sweeps.get(cloud, Sweep())
        now_ms = self.clock.now_ms()
        try:
            listed = list(await self.blocking.call(cloud, provider.list_owned, CALL_TIMEOUT_S))
        except (ProviderError, TimeoutError) as error:
            log.warning("collect.failed", cloud=cloud, error=str(error))
            self.sweeps[cloud] = Sweep(before.at_ms, before.orphans, str(error) or "no answer in time")
            return
        with self.store.read() as tx:
            log_of_tags = read_log(tx, listed)
            found = orphans(
                listed,
                tx.node,
                log_of_tags,
                self.store.installation_id,
                self.clock.now_ms(),
                self.rules,
                asked_at_ms=now_ms,
            )
        self.sweeps[cloud] = Sweep(now_ms, found)
        if found.newer:
            tokens = ", ".join(machine.token for machine in found.newer[:3])
            latch_report_only(self.store, f"{cloud} runs nodes that are newer than this database: {tokens}")


def _ended(tx: Tx, machine: CloudNode, actor: str, now_ms: int) -> Event:
    """The cloud has taken the delete. What was rented is known where a row has its token."""
    data: dict[str, Any] = {"cloud": machine.cloud, "provider_id": machine.provider_id}
    data |= {"region": machine.region, "zone": machine.zone}
    if machine.created_at_ms:
        data["age_s"] = (now_ms - machine.created_at_ms) / 1000
    node = tx.node(machine.token)
    placement = tx.placement(node.placement_id) if node is not None else None
    if placement is not None:
        data["offer"] = placement.offer.key
    event = Event("node.unowned_ended", now_ms, actor=actor, node_token=machine.token, data=data)
    return event if node is None else replace(event, project_id=node.project_id, job_id=node.job_id)


def read_log(tx: Tx, machines: Iterable[CloudNode]) -> Log:
    """What the log says of the events that made those of the machines which no row knows: mostly none."""
    numbers = {machine.event_seq for machine in machines if tx.node(machine.token) is None}
    events = {seq: event for seq in numbers if (event := tx.event(seq)) is not None}
    intents = {seq: event.at_ms for seq, event in events.items() if event.kind == INTENT}
    return Log(tx.caught_up_to() if numbers else 0, intents)
