"""The ledger against the clouds' own bill (I6)."""

from typing import Any

from broker.jobs.ledger import Bill, ledger
from lab.machines import EndedBy, Machine
from tests.clocks import START_MS
from tests.sim.faults import Kind
from tests.sim.sim import Sim

MINIMUM_MS = 60_000  # of both clouds


def ledger_is_the_bill(sim: Sim) -> None:
    """Row by row, where the cloud told the end; where it keeps no record, never less than its bill."""
    daemon = next(d for d in sim.daemons if d.alive)
    now_ms = sim.world_clock.now_ms()
    with daemon.store.read() as tx:
        segments = tx.segments()
    points = {s.offer.key: daemon.history.points(s.offer.key, 0, now_ms + 1) for s in segments}
    rule: Any = lambda cloud, market: daemon.clouds[cloud].billing_rule(market)  # noqa: E731
    paid = {bill.segment.node_token: bill for bill in ledger(segments, points, rule, now_ms)}
    for line in sim.world.bill():
        machine = sim.world.machine(line.machine)
        if machine.running_s is None or machine.holds_stock:
            continue
        token = machine.labels["token"]
        bill = paid.get(token)
        if bill is None and token not in sim.truth.nodes:
            sim.chaos.reached("a machine whose row was lost with a restored database")
            continue  # nobody knows whose it was
        if bill is None and _forgotten(sim, machine):
            sim.chaos.reached("a meter that was known only to rows that a restore has replaced")
            continue
        if bill is None and machine.ended_by is not EndedBy.USER and _never_written(sim, machine):
            sim.chaos.reached("a machine ended before a look-up showed it")
            continue  # the reply was lost or late, and the cloud took it back and keeps no record
        if bill is None and machine.ended_by is not EndedBy.USER and token in sim.orphans:
            sim.chaos.reached("an orphan ended before it could be collected")
            continue  # nobody has seen its meter
        if bill is None:
            sim.violate("I6 ledger", f"{token} cost {line.cost_micro_usd} and is in no ledger")
        assert bill is not None
        if sim.clock_was_wrong:
            continue  # an end that no cloud tells, and a price that is newer than now, are dated by our clock
        end_ms = bill.segment.ended_at_ms or 0
        told = machine.stopping_s is not None and end_ms == machine.stopping_s * 1000
        if told and bill.paid_micro_usd != line.cost_micro_usd:
            sim.violate("I6 ledger", f"{token} cost {line.cost_micro_usd} ({line}); the ledger has {bill}")
        if not told:
            sim.chaos.reached("the end of a meter was inferred")
            # Inferred bounds hold the true ones; but a minimum that is owed from an earlier start ends earlier, too, and
            # may end before a rise that the cloud charges.
            from_ms, to_ms = _span(bill, machine)
            changes = sim.world.pools[machine.offer_key].changes
            moved = any(from_ms <= change.at_s * 1000 <= to_ms for change in changes)
            if bill.billed_s < line.seconds or (bill.paid_micro_usd < line.cost_micro_usd and not moved):
                sim.violate(
                    "I6 ledger", f"{token} cost {line.cost_micro_usd} ({line}); the ledger has less: {bill}"
                )


def _never_written(sim: Sim, machine: Machine) -> bool:
    """Its cloud never showed it to us; or a crash or a full disk may have kept the answer from the rows."""
    token = machine.labels["token"]
    interrupted = len(sim.daemons) > 1 or sim.chaos.counts[Kind.DISK_FULL] > 0
    return token not in sim.truth.metered and (interrupted or token not in sim.clouds[machine.cloud].shown)


def _span(bill: Bill, machine: Machine) -> tuple[int, int]:
    """From the first to the last moment that the ledger or the cloud charges, in milliseconds."""
    assert machine.running_s is not None
    start_ms = bill.segment.started_at_ms
    ended_ms = (machine.stopping_s or machine.running_s) * 1000
    minimum_ms = machine.running_s * 1000 + MINIMUM_MS
    return min(start_ms, machine.running_s * 1000), max(start_ms + bill.billed_s * 1000, ended_ms, minimum_ms)


def _forgotten(sim: Sim, machine: Machine) -> bool:
    """The rows that knew its meter were replaced by a backup, and nobody could ask its cloud again while it knew.

    Either it has ended before the backup was put back; or its cloud has taken it back since, while report-only forbade
    to conclude anything from the rows.
    """
    if sim.restored_at_s is None or machine.ended_s is None or machine.running_s is None:
        return False
    restored_ms = START_MS + sim.restored_at_s * 1000
    if machine.ended_s * 1000 <= restored_ms:
        return True
    return machine.ended_by is not EndedBy.USER and machine.running_s * 1000 <= restored_ms
