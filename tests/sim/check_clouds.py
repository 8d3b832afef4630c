"""What is asked of clouds, and who ends what (I4, I12, I18)."""

from typing import TYPE_CHECKING

from broker.core.model import Node, NodeState
from tests.sim.cloud import Deed

if TYPE_CHECKING:
    from tests.sim.truth import Truth


def judge(truth: "Truth", deed: Deed) -> None:
    """One of our processes asks something of a cloud, or the cloud does it."""
    row = truth.nodes.get(deed.token)
    if deed.what.startswith("ask "):
        _request(truth, deed, row)
    elif deed.what == "delete" and deed.who.startswith("collector") and not deed.late:
        _collected(truth, deed, row)
    elif deed.what == "create" and deed.machine is not None and (row is None or row.state == NodeState.GONE):
        truth.sim.chaos.reached("a create arrived after its row was closed")
        truth.sim.orphans.add(deed.token)


def _request(truth: "Truth", deed: Deed, row: Node | None) -> None:
    sim, now_s = truth.sim, truth.sim.loop.now_s
    latched = truth.report_only_since_s is not None and now_s - truth.report_only_since_s > 1
    paused = truth.paused_since_s is not None and now_s - truth.paused_since_s > 1
    if latched and deed.what in ("ask create", "ask delete"):
        sim.violate("I18 report-only", f"{deed.what} of {deed.token} by {deed.who} while latched")
    if paused and deed.what == "ask create":
        sim.violate("I18 report-only", f"{deed.what} of {deed.token} while paused")
    if sim.stale(deed.who):
        return  # its rows have moved on; what it asks for is harmless by its token, which is what we check
    if deed.what == "ask create" and (row is None or row.state != NodeState.UNKNOWN):
        sim.violate("I12 intent first", f"create of {deed.token} with its row {row and row.state}")
    if deed.what == "ask delete" and deed.who.startswith("reconciler"):
        if row is None or row.state not in (NodeState.RELEASING, NodeState.GONE):
            sim.violate("I12 intent first", f"delete of {deed.token} with its row {row and row.state}")
        _older_than_head(truth, deed)


def _older_than_head(truth: "Truth", deed: Deed) -> None:
    """Rows that are behind HEAD must not end what runs under HEAD's generation."""
    copy = truth.sim.training_on(deed.token)
    if copy is None:
        return
    job, head = truth.jobs.get(copy.order.job_id), truth.head(copy.order.job_id)
    if job is not None and copy.generation == head.generation > job.generation:
        truth.sim.violate(
            "I18 report-only",
            f"rows at generation {job.generation} end a node that runs {copy.generation}",
        )


def _collected(truth: "Truth", deed: Deed, row: Node | None) -> None:
    sim, machine = truth.sim, deed.machine
    assert machine is not None
    sim.chaos.reached("the collector ended an orphan")
    if row is not None and row.state != NodeState.GONE and not sim.stale(deed.who):
        sim.violate("I4 collector", f"it ends {deed.token}, whose row is {row.state}")
    age_s = sim.world.now_s() - machine.created_s
    if age_s < sim.rules.collect_grace_s - 5 and not sim.clock_was_wrong:
        sim.violate("I4 collector", f"it ends {deed.token}, {age_s} s old")
    copy = sim.training_on(deed.token)
    if copy is None or copy.generation != truth.head(copy.order.job_id).generation:
        return
    if row is None and sim.cleared:
        sim.chaos.reached("a node that the restored rows do not know was ended on an operator's word")
    elif not sim.was_disowned(deed.token):
        sim.violate("I4 collector", f"it ends {deed.token}, which runs the current generation")
