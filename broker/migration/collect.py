"""Orphans: machines that a cloud bills us for and no row of ours wants. Cloud first, rows second.

Why that order: a machine is only ever created *after* its row was committed. Listing the cloud first means that every
machine in the list has a row that we are about to read; the other way round, a node created between the two reads
would look like an orphan and a running job would be killed.

A machine is ended on two witnesses only: it carries our installation's tag, and its token is unknown to the rows or
final there, and it is older than the grace. A tag whose event number is newer than our log means that the *rows* are
the old ones (a restored backup): then nothing is ended, and report-only is latched.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from broker.core.errors import ProviderError
from broker.core.model import Event, NodeState
from broker.core.ports import Clock, CloudNode, CloudState, Provider
from broker.migration.blocking import Blocking
from broker.migration.reconcile import CALL_TIMEOUT_S, latch_report_only
from broker.migration.rules import Rules
from broker.store.access import REPORT_ONLY
from broker.store.state import StateStore, Tx

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Finding:
    """What a sweep of one cloud found.

    Attributes:
        unowned: Ours by tag, wanted by no row, past the grace: to be ended.
        waiting: The same, but within the grace.
        newer: Tags from the future of our log.
    """

    unowned: tuple[CloudNode, ...] = ()
    waiting: tuple[CloudNode, ...] = ()
    newer: tuple[CloudNode, ...] = ()


def judge(tx: Tx, listed: list[CloudNode], installation_id: str, now_ms: int, rules: Rules) -> Finding:
    """Compare a list that was read *before* this transaction began with the rows."""
    unowned, waiting, newer = [], [], []
    newest_event = tx.last_seq()
    for machine in listed:
        if machine.installation_id != installation_id or machine.state == CloudState.TERMINATED:
            continue
        row = tx.node(machine.token)
        if row is not None and row.state != NodeState.GONE:
            continue
        if machine.event_seq > newest_event:
            newer.append(machine)
        elif now_ms - machine.created_at_ms > rules.collect_grace_s * 1000:
            unowned.append(machine)
        else:
            waiting.append(machine)
    return Finding(tuple(unowned), tuple(waiting), tuple(newer))


@dataclass
class Collector:
    """Sweeps every cloud. Constant work, no input, safe to run at any time.

    Attributes:
        unowned: Machines found last time, by cloud; the metric that should be zero.
    """

    store: StateStore
    providers: Mapping[str, Provider]
    clock: Clock
    blocking: Blocking
    rules: Rules
    unowned: dict[str, int] = field(default_factory=dict)

    async def one_pass(self) -> None:
        """List, compare, end."""
        for cloud, provider in self.providers.items():
            try:
                listed = list(await self.blocking.call(cloud, provider.list_owned, CALL_TIMEOUT_S))
            except (ProviderError, TimeoutError) as error:
                log.warning("collect.failed", cloud=cloud, error=str(error))
                continue
            with self.store.read() as tx:
                finding = judge(tx, listed, self.store.installation_id, self.clock.now_ms(), self.rules)
                report_only = tx.switch(REPORT_ONLY)
            self.unowned[cloud] = len(finding.unowned) + len(finding.waiting)
            if finding.newer:
                tokens = ", ".join(m.token for m in finding.newer[:3])
                latch_report_only(
                    self.store,
                    f"{cloud} runs nodes that are newer than this database: {tokens}",
                )
                continue
            if not report_only:
                await self._end(cloud, provider, finding)

    async def _end(self, cloud: str, provider: Provider, finding: Finding) -> None:
        for machine in finding.unowned:
            log.warning(
                "node.unowned", cloud=cloud, node_token=machine.token, provider_id=machine.provider_id
            )
            with self.store.write() as tx:  # the intent, as for every stop
                tx.emit(
                    Event(
                        "node.unowned",
                        self.clock.now_ms(),
                        node_token=machine.token,
                        data={"cloud": cloud, "provider_id": machine.provider_id},
                    )
                )
            try:
                await self.blocking.call(cloud, lambda m=machine: provider.delete(m), CALL_TIMEOUT_S)  # type: ignore[misc]
            except (ProviderError, TimeoutError) as error:
                log.warning("collect.delete_failed", cloud=cloud, node_token=machine.token, error=str(error))
