"""Rows that are older than the world, or a copy of some in use: what is believed then, and what is not done."""

import asyncio
from dataclasses import replace

from broker.core.model import JobState, PlacementState
from broker.migration.effects import Fence
from broker.store.access import REPORT_ONLY
from tests.exhaustive.cases import calm
from tests.exhaustive.mischief import AHEAD
from tests.exhaustive.rows import Disk
from tests.exhaustive.scenarios import SCENARIOS
from tests.exhaustive.test_shell import begun, failure, number_of_the_fence, one_pass, shell, until


def test_a_pass_over_old_rows_latches_and_nothing_follows_from_it() -> None:
    harness = until(begun(), PlacementState.ACTIVE)
    harness.turn()
    harness.turn()
    (node,), (placement,) = harness.disk.nodes.values(), harness.disk.placements.values()
    commit = {**node.report["commit"], "generation": 9}
    harness.disk.nodes[node.token] = replace(node, report={**node.report, "commit": commit})
    # As in a copy of long ago: by these rows another job's placement is overdue.
    harness.disk.jobs["a"] = replace(harness.job, id="a", state=JobState.STARTING, active_placement_id=None)
    harness.disk.placements["a-p1"] = replace(
        placement, id="a-p1", job_id="a", state=PlacementState.INTENDED, deadline_ms=1
    )
    before = Disk(**harness.disk.image())
    calls = len(harness.calls)
    assert one_pass(harness) == 0
    latch = harness.disk.switches.pop(REPORT_ONLY)
    assert (latch.value, latch.set_by) == (True, "broker")
    assert latch.reason == f"{node.placement_id} has committed under generation 9, which no row has granted"
    assert harness.disk.same_as(before)
    assert len(harness.calls) == calls


def test_nothing_is_planned_while_it_is_latched() -> None:
    harness = begun()
    harness.turn()
    with harness.store.write() as tx:
        tx.set_switch(REPORT_ONLY, True)
    assert one_pass(harness) == 0
    assert harness.calls == {}


def test_a_fence_that_comes_too_late_changes_no_row() -> None:
    harness = until(begun({number_of_the_fence(): AHEAD}), PlacementState.READY)
    latch = harness.disk.switches[REPORT_ONLY]
    assert (latch.value, latch.reason) == (True, f"job {harness.job_id}: HEAD is ahead")
    assert not harness.placements()[-1].fenced


def test_head_names_the_first_node_of_the_placement_that_may_commit() -> None:
    end = calm(SCENARIOS["gang"], False).end
    head = shell(end).checkpoints.head(end.job_id)
    newest = end.placements()[-1]
    first = next(n for n in end.disk.nodes.values() if n.placement_id == newest.id and n.rank == 0)
    assert head is not None
    assert (head.generation, head.holder) == (newest.generation, first.token)


def test_a_move_changes_the_holder() -> None:
    end = calm(SCENARIOS["move"], False).end
    head = shell(end).checkpoints.head(end.job_id)
    holders = [n.token for n in end.disk.nodes.values() if n.placement_id == end.placements()[-1].id]
    assert head is not None
    assert [head.holder] == holders


def test_a_fence_that_hung_while_a_later_one_of_ours_was_made_latches_nothing() -> None:
    harness = until(begun(), PlacementState.ACTIVE)
    (placement,) = harness.placements()
    shell(harness).checkpoints.fence(harness.job_id, 2, "bk-later")
    harness.disk.jobs[harness.job_id] = replace(harness.job, generation=2)
    asyncio.run(shell(harness)._fence(Fence(harness.job_id, placement.id, 1)))
    assert REPORT_ONLY not in harness.disk.switches


def test_a_fence_under_a_generation_that_another_broker_has_given_away_latches() -> None:
    harness = until(begun({number_of_the_fence(): failure("fence", "StoreError")}), PlacementState.READY)
    (placement,) = harness.placements()
    shell(harness).checkpoints.fence(harness.job_id, 1, "bk-other")
    asyncio.run(shell(harness)._fence(Fence(harness.job_id, placement.id, 1)))
    assert "bk-other" in harness.disk.switches[REPORT_ONLY].reason
    assert not harness.placements()[-1].fenced
