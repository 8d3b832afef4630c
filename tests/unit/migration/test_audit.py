"""What an audit concludes, as a table: rows, clouds and store in, disagreements out."""

from dataclasses import replace

import pytest

from broker.core.audit import Act, Kind
from broker.core.model import EndedBy, Job, Node, NodeState, Placement, PlacementState, Purpose
from broker.core.ports import CloudNode, CloudState
from broker.core.spec import GpuRequest, JobSpec, Resources
from broker.migration.adopt import catch_up
from broker.migration.audit import Log, Outside, Rows, compare, doubtful
from broker.migration.rules import Rules
from broker.wire.head import Head
from tests.unit.migration.scene import AWS

NOW_MS = 1_000_000_000
RULES = Rules(collect_grace_s=300)
OURS, THEIRS = "bi-ours", "bi-theirs"
OLD_MS, YOUNG_MS = NOW_MS - 301_000, NOW_MS - 299_000
TOKEN = "bk-" + "a" * 26 + "-0"
JOB = Job("train-1", JobSpec("train", "true", Resources((GpuRequest("H100"),))), "p", "ada", 0, generation=3)


def machine(
    token: str = TOKEN, installation: str = OURS, at_ms: int = OLD_MS, seq: int = 5, **more
) -> CloudNode:
    return CloudNode(
        token, f"i-{token[3:6]}", "aws", "us-east-1", "use1-az6", more.pop("state", CloudState.RUNNING), installation,
        seq, created_at_ms=at_ms, **more,
    )  # fmt: skip


def node(state: NodeState = NodeState.RUNNING, at_ms: int = OLD_MS, **more) -> Node:
    return Node(
        TOKEN, "train-1-p1", "train-1", 0, "aws", "us-east-1", "use1-az6", "p", "ada", at_ms, state=state,
        state_since_ms=more.pop("since_ms", at_ms), **more,
    )  # fmt: skip


def audit(
    listed=(),
    rows=(),
    *,
    asked=("aws",),
    jobs=(JOB,),
    log=Log(0, {5: OLD_MS - 1000}),
    **outside,
):
    listed = {cloud: listed if cloud == "aws" else () for cloud in asked}
    return compare(
        Outside(listed, **outside),
        Rows(OURS, log, {n.token: n for n in rows}, {j.id: j for j in jobs}),
        NOW_MS,
        RULES,
    )


FINAL = node(NodeState.GONE, reason="job finished", billed_from_ms=OLD_MS, ended_at_ms=OLD_MS + 1)
CLOUD_CASES = {
    "ours, old, no row": ([machine()], [], Kind.UNKNOWN, Act.END),
    "ours, young, no row": ([machine(at_ms=YOUNG_MS)], [], Kind.UNKNOWN, Act.WAIT),
    "ours, age unknown, no row": ([machine(at_ms=0)], [], Kind.UNKNOWN, Act.WAIT),
    "ours, old, row final": ([machine()], [FINAL], Kind.RELEASED, Act.END),
    "ours, young, row final": ([machine(at_ms=YOUNG_MS)], [FINAL], Kind.RELEASED, Act.WAIT),
    "stopped but not deleted is billed": ([machine(state=CloudState.STOPPING)], [], Kind.UNKNOWN, Act.END),
    "newer than the log": ([machine(seq=10)], [], Kind.NEWER, Act.LATCH),
    "newer than the log, young": ([machine(seq=10, at_ms=YOUNG_MS)], [], Kind.NEWER, Act.LATCH),
    "deleted for too long": ([machine()], [node(NodeState.RELEASING, NOW_MS - 601_000)], Kind.OVERDUE, Act.RECONCILE),
}  # fmt: skip


@pytest.mark.parametrize("case", CLOUD_CASES)
def test_a_machine_that_should_not_be(case):
    listed, rows, kind, act = CLOUD_CASES[case]
    (found,) = audit(listed, rows).discrepancies
    assert (found.kind, found.act, found.subject) == (kind, act, TOKEN)
    assert found.place == "us-east-1/use1-az6"


@pytest.mark.parametrize(
    ("listed", "rows"),
    [
        ([], []),
        ([machine()], [node()]),
        ([machine(seq=99)], [node()]),
        ([machine()], [node(NodeState.UNKNOWN)]),
        ([machine()], [node(NodeState.RELEASING, NOW_MS - 1000)]),
        ([machine(installation=THEIRS)], []),
        ([machine(installation=THEIRS, seq=99)], []),
        ([machine(state=CloudState.TERMINATED)], []),
        ([], [FINAL]),
        ([], [node(NodeState.UNKNOWN)]),
        ([], [node(NodeState.RELEASING, NOW_MS - 1000)]),
        ([], [node(at_ms=YOUNG_MS)]),
    ],
)
def test_what_agrees(listed, rows):
    found = audit(listed, rows)
    assert found.discrepancies == ()
    assert found.complete


@pytest.mark.parametrize(
    ("seq", "caught_up_to", "kind"),
    [
        (5, 0, Kind.UNKNOWN),  # our log knows that intent: a tag that was copied
        (6, 0, Kind.UNKNOWN),  # so does it this one, by a clock that is not quite the cloud's
        (8, 0, Kind.NEWER),  # an intent that is younger than the machine is not what made it
        (8, 9, Kind.UNKNOWN),
        (0, 0, Kind.UNKNOWN),  # no number on the tag
        (4, 0, Kind.NEWER),  # the log has grown over that number since it was restored
        (7, 0, Kind.NEWER),  # a number that was never given here
        (10, 0, Kind.NEWER),
        (10, 9, Kind.NEWER),
        (10, 10, Kind.UNKNOWN),  # an operator has accepted that these are missing
        (4, 10, Kind.UNKNOWN),
    ],
)
def test_which_machines_are_newer_than_the_rows(seq, caught_up_to, kind):
    log = Log(caught_up_to, {5: OLD_MS - 1000, 6: OLD_MS + 30_000, 8: OLD_MS + 61_000})
    (found,) = audit([machine(seq=seq)], log=log).discrepancies
    assert found.kind == kind


def test_strangers_are_counted():
    (aws, _) = audit([machine(), machine("bk-bbb", THEIRS)], [node()]).asked
    assert (aws.known, aws.strangers) == (1, 1)


ENDED = machine(state=CloudState.TERMINATED, ended_at_ms=OLD_MS + 5, ended_by=EndedBy.CLOUD)
UNENDED = node(NodeState.GONE, billed_from_ms=OLD_MS)


@pytest.mark.parametrize(
    ("row", "looked_up", "expected"),
    [
        (node(), {TOKEN: None}, (Kind.DENIED, Act.RECONCILE)),
        (node(), {TOKEN: ENDED}, (Kind.DENIED, Act.RECONCILE)),
        (node(NodeState.REQUESTED), {TOKEN: None}, (Kind.DENIED, Act.RECONCILE)),
        (node(), {TOKEN: machine()}, None),  # the list lags, or its region is not configured any more
        (UNENDED, {TOKEN: None}, (Kind.UNENDED, Act.CLOSE)),
        (UNENDED, {TOKEN: ENDED}, (Kind.UNENDED, Act.CLOSE)),
        (UNENDED, {TOKEN: machine()}, None),
    ],
)
def test_a_row_whose_machine_is_not_listed(row, looked_up, expected):
    assert doubtful({"aws": ()}, [row], NOW_MS, RULES) == [row]
    found = audit([], [row], looked_up=looked_up)
    assert [(d.kind, d.act) for d in found.discrepancies] == ([expected] if expected else [])
    assert found.complete


def test_silence_of_a_cloud_that_could_not_be_asked_proves_nothing():
    found = audit([], [node(), replace(UNENDED, token="bk-b")], asked=(), unasked={"aws": "down"})
    assert found.discrepancies == ()
    assert not found.complete
    assert [(a.name, a.known, a.unasked) for a in found.asked] == [("aws", None, "down"), ("store", 0, "")]


def test_a_look_up_that_failed_leaves_its_cloud_unknown():
    found = audit([], [node()])
    assert found.discrepancies == ()
    assert [a.unasked for a in found.asked] == ["a look-up of a node failed", ""]


def test_rows_of_a_cloud_that_is_not_configured_any_more_are_said():
    found = audit([], [node()], asked=("gcp",))
    assert [(a.name, bool(a.unasked)) for a in found.asked] == [
        ("gcp", False),
        ("aws", True),
        ("store", False),
    ]


def test_the_checkpoint_store():
    found = audit(heads={"train-1": Head(4, 0, "n")}, prefixes=["train-1", "train-9"])
    assert [(d.kind, d.act, d.subject) for d in found.discrepancies] == [
        (Kind.HEAD_AHEAD, Act.LATCH, "train-1"),
        (Kind.STRAY, Act.PERSON, "train-9"),
    ]
    assert audit(heads={"train-1": Head(3, 0, "n")}).discrepancies == ()
    assert audit(heads={"train-1": Head(3, 0, "n", holder=TOKEN)}, rows=[node()]).discrepancies == ()
    (damaged,) = audit(heads={"train-1": None}).discrepancies
    assert (damaged.kind, damaged.act) == (Kind.HEAD_DAMAGED, Act.PERSON)


def test_a_head_that_a_copy_of_this_database_has_fenced():
    (other,) = audit(heads={"train-1": Head(3, 0, "n", holder="bk-of-the-copy-0")}).discrepancies
    assert (other.kind, other.act) == (Kind.HEAD_AHEAD, Act.LATCH)
    assert other.detail == "HEAD carries generation 3 for bk-of-the-copy-0, which is no node of ours"


def test_only_machines_and_segments_are_ever_touched():
    assert {act for act in Act if act.applies} == {Act.END, Act.CLOSE}


# -- catching up ------------------------------------------------------------------------------------------------------


def placement(state: PlacementState, generation: int | None = None, fenced: bool = False) -> Placement:
    return Placement(
        "train-1-p1", "train-1", 1, AWS, 1, Purpose.PLACE, "p", "ada", 0, state=state, generation=generation, fenced=fenced,
        deadline_ms=RULES.deadline_ms(state, NOW_MS - 10_000_000),
    )  # fmt: skip


def test_generations_rise_to_what_head_carries_and_never_fall():
    (job,) = catch_up([JOB], [], [], {"train-1": Head(7, 0, "n")}, NOW_MS, RULES)
    assert job.generation == 7
    assert catch_up([JOB], [], [], {"train-1": Head(2, 0, "n")}, NOW_MS, RULES) == []
    (job,) = catch_up([JOB], [], [], {"train-1": Head(7, 0, "n", holder="bk-unknown-0")}, NOW_MS, RULES)
    assert job.generation == 8, "or the audit would say for ever that HEAD is another's"
    assert catch_up([JOB], [], [node()], {"train-1": Head(3, 0, "n", holder=TOKEN)}, NOW_MS, RULES) == []
    assert catch_up([JOB], [], [], {}, NOW_MS, RULES) == []


def test_deadlines_start_again():
    (booting,) = catch_up([JOB], [placement(PlacementState.BOOTING)], [], {}, NOW_MS, RULES)
    assert booting.deadline_ms > NOW_MS
    assert catch_up([JOB], [placement(PlacementState.ACTIVE, 3)], [], {}, NOW_MS, RULES) == []


@pytest.mark.parametrize(
    ("head", "holder", "granted"),
    [(2, "", 3), (3, "", 3), (3, TOKEN, 3), (3, "bk-of-the-copy-0", None), (4, "", None), (2, "bk-old-0", 3)],
)
def test_a_fence_that_head_would_refuse_for_ever_is_granted_anew(head, holder, granted):
    heads = {"train-1": Head(head, 0, "n", holder=holder)}
    changed = catch_up([JOB], [placement(PlacementState.READY, 3)], [node()], heads, NOW_MS, RULES)
    (ready,) = [value for value in changed if isinstance(value, Placement)]
    assert ready.generation == granted


@pytest.mark.parametrize(
    ("head", "fenced", "generation"),
    [(2, True, 4), (3, True, 3), (2, False, 3), (5, True, 5)],
    ids=["put back", "as it should be", "not swapped yet", "ahead"],
)
def test_the_number_of_a_copy_whose_head_was_put_back_is_spent(head, fenced, generation):
    """It can commit no more, and would say so in every pass; with a newer number it is a copy like any that was fenced."""
    heads = {"train-1": Head(head, 0, "n")}
    active = placement(PlacementState.ACTIVE, 3, fenced)
    changed = catch_up([JOB], [active], [], heads, NOW_MS, RULES)
    jobs = [value for value in changed if isinstance(value, Job)]
    assert [job.generation for job in jobs] == ([generation] if generation != JOB.generation else [])


def test_silence_is_counted_from_now():
    (heard,) = catch_up([JOB], [], [node(seen_at_ms=OLD_MS)], {}, NOW_MS, RULES)
    assert heard.seen_at_ms == NOW_MS
    assert catch_up([JOB], [], [node(seen_at_ms=None)], {}, NOW_MS, RULES) == []
