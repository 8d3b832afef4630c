"""The shell around the planner: how often it asks, what it makes of an answer, and what it leaves in the rows."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from broker.core.model import Job, Node, NodeState, Placement, PlacementState, Purpose
from broker.core.ports import CloudState, LaunchRequest
from broker.migration.effects import CreateNode, DeleteNode, Fence, FindNode
from broker.migration.reconcile import RETRY_S, as_cloud_node, load
from broker.migration.view import START_FAILED
from broker.store.access import PAUSED, REPORT_ONLY
from broker.store.memory import Launch
from lab.faults import Fault, FaultKind
from tests.exhaustive.cases import calm
from tests.exhaustive.daemon import Watched
from tests.exhaustive.harness import Harness
from tests.exhaustive.mischief import AHEAD, EVERY_FAILURE, Fail, Mischief
from tests.exhaustive.scenarios import SCENARIOS
from tests.exhaustive.script import AWS_FAR, AWS_NEAR, GCP, Scenario


def begun(mischief: Mischief | None = None, faults: tuple[Fault, ...] = ()) -> Harness:
    """A job that nothing happens to."""
    return Harness(Scenario("trains for ever", (), faults=faults), mischief or {})


def until(harness: Harness, state: PlacementState) -> Harness:
    for _ in range(100):
        if harness.placements() and harness.placements()[-1].state == state:
            return harness
        harness.turn()
    raise AssertionError(f"never {state}: {harness.placements()}")


def shell(harness: Harness) -> Watched:
    assert harness.daemon is not None
    return harness.daemon.reconciler


def one_pass(harness: Harness) -> int:
    """Of the reconciler alone, with its effects."""

    async def work() -> int:
        count = shell(harness).one_pass()
        for _ in range(6):
            await asyncio.sleep(0)
        return count

    return asyncio.run(work())


def kinds(harness: Harness, after: int = 0) -> list[str]:
    return [call.kind for number, call in harness.calls.items() if number > after]


def number_of_the_fence() -> int:
    calls = calm(SCENARIOS["place"], False).end.calls.values()
    return next(call.number for call in calls if call.kind == "fence")


def failure(kind: str, name: str, deed: str = "none") -> Fail:
    return next(f for f in EVERY_FAILURE[kind] if (f.name, f.deed) == (name, deed))


# -- how often --------------------------------------------------------------------------------------------------------


def test_a_look_up_is_repeated_after_ten_seconds_and_not_before() -> None:
    harness = begun(faults=(Fault("aws", "create", FaultKind.REQUEST_LOST),))
    harness.turn()
    harness.turn()
    assert kinds(harness) == ["create"]
    one_pass(harness)
    assert kinds(harness) == ["create", "find"]
    harness.clock.advance(9.999)
    one_pass(harness)
    assert kinds(harness) == ["create", "find"]
    harness.clock.advance(0.001)
    one_pass(harness)
    assert kinds(harness) == ["create", "find", "find"]


def test_a_fence_that_failed_is_repeated_after_its_pause() -> None:
    harness = until(begun({number_of_the_fence(): failure("fence", "StoreError")}), PlacementState.READY)
    assert kinds(harness)[-1] == "fence"
    before = len(harness.calls)
    harness.clock.advance(RETRY_S - 0.001)
    one_pass(harness)
    assert len(harness.calls) == before
    harness.clock.advance(0.001)
    one_pass(harness)
    assert kinds(harness, before) == ["fence"]
    assert harness.placements()[-1].state == PlacementState.ACTIVE
    assert RETRY_S == 5.0


def test_an_effect_under_way_is_not_started_again() -> None:
    harness = until(begun(), PlacementState.ACTIVE)
    (node,) = harness.disk.nodes.values()
    effect = DeleteNode(node.token)
    reconciler = shell(harness)

    async def work() -> list[int]:
        first = reconciler._start(effect)
        harness.clock.advance(60)
        second = reconciler._start(effect)
        for task in list(reconciler._running.values()):
            task.cancel()
        await asyncio.sleep(0)
        return [first, second]

    assert asyncio.run(work()) == [1, 0]
    assert not reconciler.busy


def test_a_pass_says_how_much_there_was_to_do() -> None:
    harness = begun()
    harness.turn()
    assert one_pass(harness) == 3, "a node and a job have changed, and a create was started"
    harness = until(begun(), PlacementState.ACTIVE)
    harness.turn()
    assert one_pass(harness) == 1, "the placement has trained another step"
    assert one_pass(harness) == 0


def test_every_effect_asks_for_another_pass() -> None:
    harness = begun()
    woken: list[int] = []
    shell(harness).wake = lambda: woken.append(len(harness.calls))
    harness.turn()
    harness.turn()
    assert woken == [1]


# -- answers ----------------------------------------------------------------------------------------------------------


def test_launches_are_remembered_with_their_outcome() -> None:
    harness = begun(faults=(Fault("aws", "create", FaultKind.CAPACITY),))
    until(harness, PlacementState.ACTIVE)
    refused, taken = harness.disk.launches
    assert (refused.offer_key, refused.ok, refused.error) == (AWS_NEAR, False, "a fault says so")
    assert (taken.offer_key, taken.ok, taken.error) == (GCP, True, "")
    assert isinstance(taken, Launch)
    assert taken.at_ms == harness.placements()[-1].created_at_ms + 20_000


def test_looking_up_and_deleting_are_no_launches() -> None:
    end = calm(SCENARIOS["place"], False).end
    assert len(end.disk.launches) == 1


@pytest.mark.parametrize(
    ("name", "empty"),
    [
        ("OutOfCapacity", {AWS_NEAR}),
        ("OutOfCapacity region", {AWS_NEAR, AWS_FAR}),
        ("OutOfQuota", {AWS_NEAR, AWS_FAR}),
        ("Denied", {AWS_NEAR, AWS_FAR}),
    ],
)
def test_how_far_around_a_refusal_pools_are_left_alone(name: str, empty: set[str]) -> None:
    harness = begun({1: failure("create", name)})
    harness.turn()
    harness.turn()
    until_ms = harness.clock.now_ms() + 900_000
    assert harness.disk.pools == dict.fromkeys(empty, until_ms)


def test_an_offer_that_is_no_longer_quoted_is_left_alone_too() -> None:
    harness = begun({1: failure("create", "OutOfCapacity")})
    harness.turn()
    quotes = harness.now()
    del quotes[AWS_NEAR]
    harness.now = lambda: quotes  # type: ignore[method-assign]
    one_pass(harness)
    assert set(harness.disk.pools) == {AWS_NEAR}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("UnknownOutcome", "create unanswered: the reply was lost"),
        ("TimeoutError", "create unanswered: no answer from aws in 60 s"),
        ("Throttled", "create unanswered: too many calls"),
    ],
)
def test_what_an_unanswered_create_leaves_behind(name: str, said: str) -> None:
    harness = begun({1: failure("create", name)})
    harness.turn()
    harness.turn()
    (node,) = harness.disk.nodes.values()
    assert (node.state, node.reason) == (NodeState.UNKNOWN, said)


def test_a_cloud_that_is_no_longer_configured_answers_nothing() -> None:
    harness = begun()
    harness.turn()
    shell(harness).providers = {}
    one_pass(harness)
    (node,) = harness.disk.nodes.values()
    said = f"create unanswered: aws is not configured; its node {node.token} cannot be reached"
    assert (node.state, node.reason) == (NodeState.UNKNOWN, said)


def test_a_request_is_made_of_the_rows_of_its_node() -> None:
    harness = begun()
    asked: list[tuple[str, str, str]] = []

    def launch(node: Node, placement: Placement, job: Job) -> LaunchRequest:
        asked.append((node.token, placement.id, job.id))
        return harness.launch(node, placement, job)

    shell(harness).launch = launch
    harness.turn()
    harness.turn()
    (node,) = harness.disk.nodes.values()
    assert asked == [(node.token, node.placement_id, harness.job_id)]


def test_a_node_is_looked_up_where_it_was_asked_for() -> None:
    harness = begun(faults=(Fault("aws", "create", FaultKind.REQUEST_LOST),))
    asked: list[tuple[str, str, str]] = []

    def find(token: str, region: str, zone: str) -> None:
        asked.append((token, region, zone))

    harness.clouds["aws"].find = find  # type: ignore[method-assign]
    harness.turn()
    harness.turn()
    one_pass(harness)
    (node,) = harness.disk.nodes.values()
    assert asked == [(node.token, "us-east-1", "use1-az6")]


@pytest.mark.parametrize("effect", [CreateNode("bk-none"), FindNode("bk-none"), DeleteNode("bk-none")])
def test_an_effect_without_rows_does_nothing(effect: Any) -> None:
    harness = begun()
    asyncio.run(shell(harness)._node_effect(effect))
    assert harness.calls == {}


def test_a_row_that_is_final_by_the_time_of_the_answer_is_left_alone() -> None:
    harness = until(begun(), PlacementState.ACTIVE)
    (node,) = harness.disk.nodes.values()
    (placement,) = harness.disk.placements.values()

    async def work() -> None:
        task = asyncio.get_running_loop().create_task(shell(harness)._node_effect(FindNode(node.token)))
        harness.disk.placements[placement.id] = replace(placement, state=PlacementState.GONE)
        await task

    asyncio.run(work())
    assert harness.disk.nodes[node.token] == node


# -- what is loaded ---------------------------------------------------------------------------------------------------


def test_what_a_pass_sees() -> None:
    harness = until(begun(), PlacementState.ACTIVE)
    with harness.store.write() as tx:
        tx.set_switch(PAUSED, True, by="ada", reason="invoice")
    with harness.store.read() as tx:
        seen = load(tx, 5, harness.rules)
    assert (seen.now_ms, seen.paused, seen.report_only) == (5, True, False)
    assert set(seen.nodes) == set(harness.disk.nodes)
    assert not any(seen.start_failures.values())
    with harness.store.write() as tx:
        tx.set_switch(PAUSED, False)
        tx.set_switch(REPORT_ONLY, True)
    with harness.store.read() as tx:
        seen = load(tx, 5, harness.rules)
    assert (seen.paused, seen.report_only) == (False, True)


def test_a_pass_does_not_see_what_is_over() -> None:
    harness = until(begun(faults=(Fault("aws", "create", FaultKind.CAPACITY),)), PlacementState.ACTIVE)
    first, second = harness.placements()
    assert first.state == PlacementState.GONE
    with harness.store.read() as tx:
        seen = load(tx, 5, harness.rules)
    assert set(seen.placements) == {second.id}
    assert {node.placement_id for node in seen.nodes.values()} == {second.id}


def test_starts_that_failed_are_counted_by_job() -> None:
    harness = until(begun(), PlacementState.ACTIVE)
    (placement,) = harness.placements()
    failed = {"state": PlacementState.GONE, "reason": f"{START_FAILED}: no disk"}
    harness.disk.jobs["a"] = replace(harness.job, id="a")
    for job_id, count in (("a", 2), (harness.job_id, 1)):
        for attempt in range(7, 7 + count):
            name = f"{job_id}-p{attempt}"
            harness.disk.placements[name] = replace(
                placement, id=name, job_id=job_id, attempt=attempt, **failed
            )
    with harness.store.read() as tx:
        assert load(tx, 5, harness.rules).start_failures == {"a": 2, harness.job_id: 1}


def test_a_final_job_is_seen_as_long_as_it_has_a_placement() -> None:
    harness = until(begun(), PlacementState.ACTIVE)
    harness.exit_code = 0
    until(harness, PlacementState.RELEASING)
    assert harness.job.state.final
    with harness.store.read() as tx:
        assert set(load(tx, 5, harness.rules).jobs) == {harness.job_id}
    until(harness, PlacementState.GONE)
    with harness.store.read() as tx:
        assert load(tx, 5, harness.rules).jobs == {}


def test_a_row_as_a_delete_wants_it() -> None:
    harness = until(begun(), PlacementState.ACTIVE)
    (node,) = harness.disk.nodes.values()
    seen = as_cloud_node(node)
    assert (seen.token, seen.provider_id, seen.cloud) == (node.token, node.provider_id, "aws")
    assert (seen.region, seen.zone, seen.state) == ("us-east-1", "use1-az6", CloudState.RUNNING)
    assert as_cloud_node(replace(node, provider_id=None)).provider_id == node.token


def test_a_move_is_fenced_for_its_own_placement() -> None:
    end = calm(SCENARIOS["move"], False).end
    fences = [call.subject for call in end.calls.values() if call.kind == "fence"]
    assert fences == [f"{p.id} {p.generation}" for p in end.placements()]
    assert [p.purpose for p in end.placements()] == [Purpose.PLACE, Purpose.MOVE]
    assert Fence("a", "b", 1) == Fence("a", "b", 1)


def test_a_fence_that_comes_too_late_latches_report_only() -> None:
    run = calm(SCENARIOS["place"], False)
    number = next(call.number for call in run.end.calls.values() if call.kind == "fence")
    told = run.struck({number: AHEAD}, whole=True).disk_now().events
    latches = [event.data for event in told if event.kind == "switch.set"]
    assert [latch["value"] for latch in latches] == [True, False]
    assert latches[0]["name"] == REPORT_ONLY
    assert latches[0]["reason"] == f"job {run.end.job_id}: HEAD is ahead"


def test_settling_waits_for_what_is_under_way() -> None:
    harness = calm(SCENARIOS["place"], False).branch({})
    assert harness.daemon is not None
    reconciler, done = harness.daemon.reconciler, []

    async def work() -> None:
        await asyncio.sleep(0.01)
        done.append(1)
        raise RuntimeError("its failure is not the waiter's")

    async def both() -> None:
        task = asyncio.get_running_loop().create_task(work())
        effect = FindNode("bk-1")
        reconciler._running[effect] = task
        task.add_done_callback(lambda _: reconciler._running.pop(effect, None))
        await reconciler.settle_all()

    asyncio.run(both())
    assert done == [1]
