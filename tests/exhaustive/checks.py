"""What must hold: at every effect, in every turn, at the end. Each is a sentence that somebody would miss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.model import Event, NodeState, Placement, PlacementState
from broker.core.offer import Quote
from broker.core.time import MS
from broker.jobs.ledger import ledger
from broker.migration.states import JOB_EDGES, NODE_EDGES, PLACEMENT_EDGES
from broker.store.access import REPORT_ONLY
from broker.wire import messages as wire
from lab.machines import EndedBy
from tests.exhaustive.mischief import AHEAD, Call
from tests.exhaustive.rows import Disk

if TYPE_CHECKING:
    from tests.exhaustive.harness import Harness

_MACHINES = {
    "job": ({str(a): {str(b) for b in bs} for a, bs in JOB_EDGES.items()}, "queued", "job_id"),
    "placement": (
        {str(a): {str(b) for b in bs} for a, bs in PLACEMENT_EDGES.items()},
        "intended",
        "placement_id",
    ),
    "node": ({str(a): {str(b) for b in bs} for a, bs in NODE_EDGES.items()}, "intended", "node_token"),
}


def intended(disk: Disk, call: Call) -> None:
    """The committed rows said that this would be done before it is done."""
    match call.kind:
        case "create":
            node = disk.nodes[call.subject]
            # The reply may come when the row has moved on; the request may not.
            assert node.create_sent_at_ms is not None, f"{call}: sent before its row said so"
            assert node.state != NodeState.INTENDED, f"{call}: its row is still {node.state}"
        case "delete":
            node = disk.nodes[call.subject]
            assert node.delete_sent_at_ms is not None, f"{call}: sent before its row said so"
            assert node.state in (NodeState.RELEASING, NodeState.GONE), f"{call}: its row is {node.state}"
        case "fence":
            placement_id, generation = call.subject.split(" ")
            placement = disk.placements[placement_id]
            job = disk.jobs[placement.job_id]
            assert placement.generation == int(generation), f"{call}: {placement.generation} in its row"
            assert job.generation >= int(generation), f"{call}: the job's row says {job.generation}"
        case "collect":
            assert disk.events[-1].kind == "node.unowned", f"{call}: no event tells of it"


def in_its_pool(disk: Disk, call: Call, pool: str) -> None:
    """A call waits in the threads of its own cloud or of the store, so that one that hangs delays nobody else."""
    match call.kind:
        case "fence":
            assert pool == "store", f"{call} in the pool of {pool}"
        case "list" | "collect":
            assert pool in ("aws", "gcp"), f"{call} in the pool of {pool}"
        case _:
            assert pool == disk.nodes[call.subject].cloud, f"{call} in the pool of {pool}"


def ordered(placement: Placement, order: wire.Directive) -> None:
    """No copy is started before its fence, and none is stopped, before the committed row says so."""
    state = placement.state
    match order.order:
        case wire.ORDER_RUN:
            assert state == PlacementState.ACTIVE, f"{placement.id} is {state} and told to run"
            assert placement.fenced, f"{placement.id} is told to run before its fence is confirmed"
        case wire.ORDER_DRAIN:
            assert state == PlacementState.DRAINING, f"{placement.id} is {state} and told to stop"
        case wire.ORDER_EXIT:
            over = (PlacementState.RELEASING, PlacementState.GONE)
            assert state in over, f"{placement.id} is {state} and told to end"


def each_turn(harness: Harness) -> None:
    """What no moment may show."""
    assert not harness.problems, harness.problems[0]
    disk, commits = harness.disk_now(), harness.storage.commits
    latch = disk.switches.get(REPORT_ONLY)
    lied_to = AHEAD in harness.mischief.values()
    assert lied_to or latch is None or not latch.value, f"report-only was latched: {latch}"
    for (generation, step), (newer, later) in zip(
        commits[harness.seen_commits :], commits[harness.seen_commits + 1 :], strict=False
    ):
        assert newer >= generation, f"generation {generation} was given to {newer}, which is older"
        assert later >= step, f"a commit of step {later} after one of step {step}"
    harness.seen_commits = max(0, len(commits) - 1)
    head = harness.storage.head()
    job = disk.jobs[harness.job_id]
    if head is not None:
        assert head[0].generation <= job.generation, f"HEAD is ahead: {head[0]} of {job.generation}"
    if job.commit is not None and harness.told_commit is not None:
        assert (job.commit.generation, job.commit.seq) >= harness.told_commit, "the row forgot a commit"
    harness.told_commit = (job.commit.generation, job.commit.seq) if job.commit else None


def at_the_end(harness: Harness) -> None:
    """The end is the one that the scenario demands, and nothing is left over."""
    disk, scenario = harness.disk_now(), harness.scenario
    assert harness.struck >= set(harness.mischief), "the mischief never struck"
    assert not harness.steps, f"never came to be: {harness.steps[0].name}"
    job = disk.jobs[harness.job_id]
    assert job.state == scenario.ends, f"the job is {job.state}: {job.reason}"
    for placement in disk.placements.values():
        assert placement.state == PlacementState.GONE, f"{placement.id} is {placement.state}"
    for node in disk.nodes.values():
        assert node.state == NodeState.GONE, f"{node.token} is {node.state}"
    _head(harness)
    _machines(harness)
    _money(harness)
    edges(disk.events)
    assert harness.unowned() == 0, f"{harness.unowned()} machines are nobody's"


def _head(harness: Harness) -> None:
    """HEAD carries the job's generation, unless the last one was granted and its fence never needed."""
    job = harness.disk_now().jobs[harness.job_id]
    found = harness.storage.head()
    generation = found[0].generation if found else 0
    if job.exit_code == 0:
        assert generation == job.generation, f"HEAD carries {generation}, the job {job.generation}"
        trained = max(step for _, step in harness.storage.commits)
        assert found is not None
        assert harness.storage.step(found[0]) == trained, "the end is not the last commit"
    fenced = [p.generation or 0 for p in harness.disk_now().placements.values() if p.fenced]
    assert generation >= max(fenced, default=0), f"HEAD carries {generation}, rows say {fenced}"


def _machines(harness: Harness) -> None:
    """One machine a token, none without a row, none that is billed."""
    tokens = [str(m.labels["token"]) for m in harness.world.machines()]
    assert len(tokens) == len(set(tokens)), f"a token bought two machines: {tokens}"
    strangers = set(tokens) - set(harness.disk_now().nodes)
    assert not strangers, f"machines without a row: {strangers}"
    billed = [m.id for m in harness.world.machines() if m.stopping_s is None]
    assert not billed, f"still billed: {billed}"
    by_themselves = [m.id for m in harness.world.machines() if m.ended_by is EndedBy.NODE]
    assert not by_themselves or harness.was_down, f"only the dead-man switch has ended {by_themselves}"


def _money(harness: Harness) -> None:
    """The ledger is the world's bill.

    GCP denies a machine as soon as it is terminated: an end that was never shown is taken for later than it was, and
    a start that was never shown (the whole life fell into an outage) is on no ledger.
    """
    segments = harness.segments()
    points = {}
    for segment in segments:
        changes = harness.world.pools[segment.offer.key].changes
        points[segment.offer.key] = [
            Quote(segment.offer, c.price_micro_usd_h, c.at_s * MS, c.at_s * MS, "world") for c in changes
        ]
    bills = ledger(segments, points, harness.billing_rule, harness.clock.now_ms())
    ours = {bill.segment.node_token: bill for bill in bills}
    for line, machine in zip(harness.world.bill(), harness.world.machines(), strict=True):
        token = str(machine.labels["token"])
        bill, forgotten = ours.pop(token, None), machine.cloud == "gcp"
        paid = bill.paid_micro_usd if bill else 0
        if bill is None and forgotten and not harness.disk_now().nodes[token].billed_from_ms:
            continue
        if bill and forgotten and bill.segment.ended_at_ms != (machine.stopping_s or 0) * MS:
            assert paid >= line.cost_micro_usd, f"{token}: ledger {paid}, bill {line.cost_micro_usd}"
        else:
            assert paid == line.cost_micro_usd, f"{token}: ledger {paid}, bill {line.cost_micro_usd}"
    assert not ours, f"in the ledger and on no bill: {ours}"


def edges(events: list[Event]) -> None:
    """Every change of state is in the log, from the state before, along a drawn edge."""
    states: dict[str, str] = {}
    for event in events:
        noun, _, after = event.kind.partition(".")
        if noun not in _MACHINES:
            continue
        table, first, key = _MACHINES[noun]
        if after not in table or (noun == "placement" and after == first):
            continue
        name = getattr(event, key)
        before = states.get(name, first)
        assert event.data["before"] == before, (
            f"{name}: {event.kind} comes from {event.data['before']}, was {before}"
        )
        assert after in table[before], f"{name}: no edge {before} -> {after}"
        assert event.data["reason"], f"{name}: {event.kind} without a reason"
        states[name] = after


def story(harness: Harness, error: Exception) -> str:
    """Everything that a person needs to see what went wrong."""
    start_ms = harness.journal[0][0] if harness.journal else 0
    lines = [(at_ms, 0, f"   {what}") for at_ms, what in harness.journal]
    for event in harness.disk_now().events:
        data = {
            k: v for k, v in event.data.items() if k in ("before", "reason", "offer", "summary", "generation")
        }
        name = event.node_token or event.placement_id or event.job_id or ""
        lines.append((event.at_ms, 1, f"{event.kind:24} {name:34} {data}"))
    lines.sort(key=lambda line: line[0])
    text = "\n".join(f"  {(at_ms - start_ms) / MS:7.0f}s {line}" for at_ms, _, line in lines)
    rows = "\n".join(
        f"  {name}: {row.state}: {row.reason}"
        for table in (harness.disk_now().jobs, harness.disk_now().placements, harness.disk_now().nodes)
        for name, row in table.items()
    )
    return (
        f"{type(error).__name__}: {error}\n"
        f"scenario: {harness.scenario.name}{' (swept)' if harness.sweep else ''}\nmischief: {harness.told()}\n"
        f"history:\n{text}\nrows:\n{rows}"
    )
