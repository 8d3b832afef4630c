"""Seeds 0 and 1: machines that the collector ended were billed by the cloud and stood in no ledger."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from broker.core.model import NodeState, PlacementState
from broker.jobs.submit import cancel
from tests.unit.migration.island import Island


@pytest.fixture
def island():
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        made = Island(Path(folder))
        yield made
        made.stop()


def test_what_the_collector_ends_is_in_the_ledger(island):
    job = island.submit()
    island.turn()
    island.turn()
    island.world.advance()
    with island.store.write() as tx:
        (node,) = tx.nodes()
        given_up = replace(node, state=NodeState.GONE, billed_from_ms=None, ended_at_ms=None)
        tx.save(given_up)
        tx.save(replace(tx.placement(node.placement_id), state=PlacementState.GONE))
        cancel(tx, tx.job(job.id), "ada", island.clock.now_ms())
    island.turn(island.rules.collect_grace_s + 60)
    island.sweep()
    assert not island.billed()
    assert island.paid_micro_usd() == sum(line.cost_micro_usd for line in island.world.bill()) > 0


def test_a_row_that_was_closed_too_early_gets_the_true_end(island):
    island.submit()
    island.turn()
    island.turn()
    island.turn()
    with island.store.write() as tx:
        (node,) = tx.nodes()
        assert node.billed_from_ms is not None
        tx.save(replace(node, state=NodeState.GONE, ended_at_ms=island.clock.now_ms()))
    for _ in range(3):
        island.turn(island.rules.collect_grace_s)
    island.sweep()
    with island.store.read() as tx:
        first = next(n for n in tx.nodes() if n.token == node.token)
    (line,) = [line for line in island.world.bill() if line.token == node.token]
    assert first.ended_at_ms == line.to_s * 1000
