"""Collecting, old databases, one writer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tests.sim.faults import Kind
from tests.sim.mutants.mutant import Mutant, returns


async def _nothing(self: Any) -> None:
    return None


def _rows_first(real: Any) -> Any:
    class OldRows:
        """A store whose nodes and log were read before the cloud was asked."""

        def __init__(self, store: Any) -> None:
            self._store = store
            self.installation_id = store.installation_id
            self.write = store.write
            with store.read() as tx:
                self._known = {node.token: node for node in tx.nodes()}
                self._last = tx.last_seq()

        @contextmanager
        def read(self) -> Iterator[Any]:
            with self._store.read() as tx:
                event = tx.event
                tx.node = self._known.get
                tx.event = lambda seq: event(seq) if seq <= self._last else None
                yield tx

    async def look(self: Any, cloud: str, provider: Any) -> None:
        await real(replace(self, store=OldRows(self.store)), cloud, provider)

    return look


def _no_grace(real: Any) -> Any:
    def judged(
        listed: Any, row: Any, log: Any, id: str, now_ms: int, rules: Any, *more: Any, **named: Any
    ) -> Any:
        return real(listed, row, log, id, now_ms, replace(rules, collect_grace_s=-3600.0), *more, **named)

    return judged


def _never_foreign(real: Any) -> Any:
    return lambda self, seq: False


def _no_latch(real: Any) -> Any:
    return lambda store, why: None


async def _no_first_look(self: Any) -> None:
    return None


COLLECTING: dict[str, Mutant] = {
    "no_collector": Mutant(
        "nobody looks for orphans",
        "broker.migration.collect.Collector.one_pass",
        lambda real: _nothing,
        faults=frozenset({Kind.LATE, Kind.CAPACITY, Kind.NEVER_BOOTS, Kind.RECLAIM}),
        eager=4,
        seeds=(7,),
    ),
    "rows_first": Mutant(
        "the collector reads rows before the cloud",
        "broker.migration.collect.Collector._look",
        _rows_first,
        faults=frozenset({Kind.LATE, Kind.RECLAIM}),
        eager=6,
    ),
    "no_grace": Mutant(
        "the collector ends what has just been made",
        "broker.migration.collect.orphans",
        _no_grace,
        faults=frozenset({Kind.LATE, Kind.CAPACITY, Kind.QUOTA, Kind.PRICE_JUMP, Kind.RECLAIM}),
    ),
    "restored_kills": Mutant(
        "a restored database ends what it does not know",
        "broker.migration.audit.Log.foreign",
        _never_foreign,
        frozenset({Kind.RESTORE, Kind.PRICE_JUMP}),
        eager=3,
        seeds=(2,),
    ),
    "no_latch": Mutant(
        "report-only is never latched",
        "broker.migration.collect.latch_report_only",
        _no_latch,
        frozenset({Kind.RESTORE, Kind.RECLAIM}),
        eager=2,
        also=tuple(
            (f"broker.migration.{part}.latch_report_only", _no_latch) for part in ("auditor", "reconcile")
        ),
        seeds=(2,),
    ),
    "no_first_look": Mutant(
        "a daemon starts without looking at the HEADs",
        "broker.migration.auditor.Auditor.look_first",
        lambda real: _no_first_look,
        frozenset({Kind.RESTORE}),
        seeds=(3,),
    ),
    "epoch_unchecked": Mutant(
        "a replaced daemon goes on writing",
        "broker.store.state.check_lease",
        returns(None),
        frozenset({Kind.TWO_DAEMONS}),
    ),
}
