"""The collector by itself: what it finds, what it ends, what it leaves alone, and what it says of it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from broker.core.audit import Act, Asked
from broker.core.errors import Denied
from broker.core.model import EndedBy, Event, NodeState, Segment
from broker.core.ports import CloudNode, LaunchRequest
from broker.migration.collect import Collector, Sweep
from broker.store.access import REPORT_ONLY
from broker.store.rows import CAUGHT_UP
from lab.faults import Fault, FaultKind
from tests.exhaustive.harness import Harness
from tests.exhaustive.script import AWS_FAR, GCP, Scenario
from tests.exhaustive.worlds import Forgetful

GRACE_S = 180
STRANGER = "bk-" + "z" * 26 + "-0"


@pytest.fixture
def harness() -> Harness:
    """A job that trains on its only node; calls are done in place."""
    made = Harness(Scenario("trains for ever", ()), {})
    for _ in range(100):
        if made.training() is not None:
            return made
        made.turn()
    raise AssertionError("never trained")


@pytest.fixture
def collector(harness: Harness) -> Collector:
    assert harness.daemon is not None

    class InPlace:
        async def call(self, pool: str, work: Any, timeout_s: float) -> Any:
            assert pool in ("aws", "gcp")
            assert timeout_s == 60.0
            return work()

    return replace(harness.daemon.collector, blocking=InPlace(), sweeps={})


def plant(harness: Harness, key: str = AWS_FAR, token: str = STRANGER, seq: int = 3) -> CloudNode:
    """A machine with our tag. Event 3 is the one that intended our placement."""
    cloud = harness.clouds[key.split("/")[0]]
    return cloud.create(LaunchRequest(token, cloud.offer(key), "#!", harness.store.installation_id, seq))


def later(harness: Harness, seconds: float) -> None:
    harness.clock.advance(seconds)
    harness.world.advance()


def sweep(collector: Collector) -> None:
    asyncio.run(collector.one_pass())


def billed(harness: Harness) -> list[str]:
    return [m.id for m in harness.world.machines() if m.stopping_s is None]


def events(harness: Harness, kind: str) -> list[Event]:
    return [event for event in harness.disk.events if event.kind == kind]


def deletes(harness: Harness) -> int:
    return sum(cloud.calls.count("delete") for cloud in harness.clouds.values())


def test_what_is_ours_and_wanted_stays(harness: Harness, collector: Collector) -> None:
    later(harness, 1000)
    before = collector.unowned
    sweep(collector)
    assert (before, collector.unowned) == (None, 0), "nobody had looked yet"
    assert len(billed(harness)) == 1
    assert deletes(harness) == 0


def test_a_stranger_is_ended_after_its_grace(harness: Harness, collector: Collector) -> None:
    stranger = plant(harness)
    later(harness, GRACE_S)
    sweep(collector)
    assert stranger.provider_id in billed(harness)
    assert collector.unowned == 1
    assert collector.sweeps["aws"] == Sweep(harness.clock.now_ms(), collector.sweeps["aws"].orphans)
    (young,) = collector.sweeps["aws"].orphans.waiting
    assert young.token == STRANGER
    later(harness, 1)
    sweep(collector)
    assert stranger.provider_id not in billed(harness)
    (told,) = events(harness, "node.unowned")
    assert (told.node_token, told.actor, told.at_ms) == (STRANGER, "broker", harness.clock.now_ms())
    assert told.data == {"cloud": "aws", "provider_id": stranger.provider_id}
    (ended,) = events(harness, "node.unowned_ended")
    assert (ended.node_token, ended.actor, ended.at_ms) == (STRANGER, "broker", harness.clock.now_ms())
    assert (ended.job_id, ended.project_id) == (None, None)
    assert ended.data == told.data | {
        "region": stranger.region,
        "zone": stranger.zone,
        "age_s": GRACE_S + 1,
    }


def test_of_an_ended_machine_with_a_row_it_is_told_what_was_rented(
    harness: Harness, collector: Collector
) -> None:
    machine = final(harness)
    (node,) = harness.disk.nodes.values()
    assert asyncio.run(collector.end(replace(machine, created_at_ms=0), "ada")) is None
    (ended,) = events(harness, "node.unowned_ended")
    assert (ended.actor, ended.job_id, ended.project_id) == ("ada", node.job_id, node.project_id)
    assert ended.data["offer"] == harness.disk.placements[node.placement_id].offer.key
    assert "age_s" not in ended.data, "the cloud does not tell it"


def test_both_clouds_are_swept_and_each_end_is_asked_of_its_own(
    harness: Harness, collector: Collector
) -> None:
    here, there = plant(harness), plant(harness, GCP, STRANGER.replace("z", "y"))
    later(harness, GRACE_S + 1)
    sweep(collector)
    assert set(collector.sweeps) == {"aws", "gcp"}
    assert {here.provider_id, there.provider_id}.isdisjoint(billed(harness))
    assert harness.clouds["gcp"].calls.count("delete") == 1


def test_who_asked_for_an_end_is_in_the_log(harness: Harness, collector: Collector) -> None:
    stranger = plant(harness)
    later(harness, 10)
    assert asyncio.run(collector.end(stranger, "ada")) is None
    assert [event.actor for event in events(harness, "node.unowned")] == ["ada"]


def final(harness: Harness, **fields: Any) -> CloudNode:
    """The trained node's row is final, and its machine is still there."""
    (node,) = harness.disk.nodes.values()
    harness.disk.nodes[node.token] = replace(
        node, state=NodeState.GONE, state_since_ms=harness.clock.now_ms(), **fields
    )
    found = harness.clouds["aws"].find(node.token, node.region, node.zone)
    assert found is not None
    return found


def segment(harness: Harness) -> Segment:
    (found,) = harness.segments()
    return found


def test_what_outlives_its_row_is_ended_and_paid_for(harness: Harness, collector: Collector) -> None:
    machine = final(
        harness, billed_from_ms=1, provider_id="i-forgotten", ended_at_ms=2, ended_by=EndedBy.NODE
    )
    later(harness, GRACE_S + 1)
    sweep(collector)
    assert billed(harness) == []
    node = harness.disk.nodes[machine.token]
    assert (node.state, node.provider_id) == (NodeState.GONE, machine.provider_id)
    assert segment(harness).started_at_ms == machine.billed_from_ms
    assert (segment(harness).ended_at_ms, segment(harness).ended_by) == (harness.clock.now_ms(), EndedBy.US)


def test_an_end_that_is_not_confirmed_leaves_the_meter_running(
    harness: Harness, collector: Collector
) -> None:
    machine = final(harness, ended_at_ms=2, ended_by=EndedBy.NODE)
    harness.world.faults.add(Fault("aws", "delete", FaultKind.DOWN))
    assert asyncio.run(collector.end(machine)) == "down"
    assert events(harness, "node.unowned_ended") == []
    assert (segment(harness).ended_at_ms, segment(harness).ended_by) == (None, None)


def test_what_was_listed_before_it_ran_is_paid_from_when_it_was_made(
    harness: Harness, collector: Collector
) -> None:
    machine = final(harness, ended_at_ms=2, ended_by=EndedBy.NODE)
    made_ms = machine.created_at_ms - 5000
    asyncio.run(collector.end(replace(machine, billed_from_ms=None, created_at_ms=made_ms)))
    assert segment(harness).started_at_ms == made_ms
    assert segment(harness).ended_at_ms == harness.clock.now_ms()


def test_what_nobody_knows_a_start_of_has_no_meter(harness: Harness, collector: Collector) -> None:
    machine = final(harness, ended_at_ms=2, ended_by=EndedBy.NODE)
    asyncio.run(collector.end(replace(machine, billed_from_ms=None, created_at_ms=0)))
    assert segment(harness).ended_at_ms == 2


def test_a_row_that_ends_while_the_list_is_on_its_way_makes_no_orphan(
    harness: Harness, collector: Collector
) -> None:
    later(harness, GRACE_S + 1)
    listing = harness.clouds["aws"].list_owned

    def slow() -> Any:
        found = listing()
        later(harness, 5)
        final(harness, ended_at_ms=harness.clock.now_ms())
        return found

    harness.clouds["aws"].list_owned = slow  # type: ignore[method-assign]
    sweep(collector)
    assert events(harness, "node.unowned") == []
    assert collector.unowned == 0


def test_report_only_ends_nothing(harness: Harness, collector: Collector) -> None:
    stranger = plant(harness)
    with harness.store.write() as tx:
        tx.set_switch(REPORT_ONLY, True, by="ada", reason="restored")
    later(harness, GRACE_S + 1)
    sweep(collector)
    assert stranger.provider_id in billed(harness)
    assert asyncio.run(collector.end(stranger)) == "report-only is latched"
    assert events(harness, "node.unowned") == []
    assert collector.last().report_only == "restored"


def test_a_machine_of_an_event_that_never_was_latches_report_only(
    harness: Harness, collector: Collector
) -> None:
    tokens = [STRANGER.replace("z", letter) for letter in "wxyz"]
    for token in tokens:
        plant(harness, token=token, seq=9_999)
    later(harness, GRACE_S + 1)
    sweep(collector)
    (latch,) = (switch for switch in harness.disk.switches.values() if switch.name == REPORT_ONLY)
    shown = ", ".join(tokens[:3])
    assert latch.value
    assert latch.reason == f"aws runs nodes that are newer than this database: {shown}"
    assert collector.unowned == 4
    assert len(billed(harness)) == 5


def test_a_machine_of_an_event_that_was_no_intent_latches_too(harness: Harness, collector: Collector) -> None:
    plant(harness, seq=1)
    later(harness, GRACE_S + 1)
    sweep(collector)
    assert harness.disk.switches[REPORT_ONLY].value


def test_what_was_made_before_an_accepted_gap_in_the_log_is_ended(
    harness: Harness, collector: Collector
) -> None:
    stranger = plant(harness, seq=1)
    with harness.store.write() as tx:
        tx.emit(Event(CAUGHT_UP, harness.clock.now_ms(), actor="ada"))
    later(harness, GRACE_S + 1)
    sweep(collector)
    assert REPORT_ONLY not in harness.disk.switches
    assert stranger.provider_id not in billed(harness)


@pytest.mark.parametrize(
    ("error", "said"), [(Denied("not allowed"), "not allowed"), (TimeoutError(), "no answer in time")]
)
def test_a_list_that_fails_leaves_the_one_before(
    harness: Harness, collector: Collector, error: Exception, said: str
) -> None:
    stranger = plant(harness)
    later(harness, 100)
    sweep(collector)
    listed_ms = harness.clock.now_ms()
    later(harness, GRACE_S)

    def failing() -> Any:
        raise error

    harness.clouds["aws"].list_owned = failing  # type: ignore[method-assign]
    sweep(collector)
    kept = collector.sweeps["aws"]
    assert (kept.at_ms, kept.error) == (listed_ms, said)
    assert [machine.token for machine in kept.orphans.waiting] == [STRANGER]
    assert collector.unowned == 1
    assert stranger.provider_id in billed(harness), "what an old list shows may have ended since"


def test_what_an_old_list_found_is_not_ended_again(harness: Harness, collector: Collector) -> None:
    plant(harness)
    later(harness, GRACE_S + 1)
    asyncio.run(collector.look())
    harness.world.faults.add(Fault("aws", "list", FaultKind.DOWN))
    sweep(collector)
    assert collector.sweeps["aws"].orphans.unowned
    assert deletes(harness) == 0
    sweep(collector)
    assert deletes(harness) == 1


def test_a_cloud_that_fails_keeps_no_other_from_being_swept(harness: Harness, collector: Collector) -> None:
    stranger = plant(harness, GCP)
    later(harness, GRACE_S + 1)
    harness.world.faults.add(Fault("aws", "list", FaultKind.DOWN))
    sweep(collector)
    assert stranger.provider_id not in billed(harness)
    assert list(collector.sweeps["aws"].unasked(0)), "and says so"


@pytest.mark.parametrize(
    ("error", "said"), [(Denied("not allowed"), "not allowed"), (TimeoutError(), "no answer in time")]
)
def test_an_end_that_fails_says_why(
    harness: Harness, collector: Collector, error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = plant(harness, GCP)

    def failing(self: Forgetful, node: CloudNode) -> None:
        raise error

    monkeypatch.setattr(Forgetful, "delete", failing)
    assert asyncio.run(collector.end(stranger)) == said


def test_how_old_an_answer_is() -> None:
    assert Sweep().unasked(10) == "not listed yet"
    assert Sweep(0).unasked(10) == Sweep(5).unasked(10) == ""
    assert Sweep(error="503").unasked(10) == "never listed, since then: 503"
    assert Sweep(60_000, error="503").unasked(7_260_000) == "listed 2h ago, since then: 503"


def test_before_the_first_look_nothing_is_known(collector: Collector) -> None:
    assert [(a.name, a.unasked, a.at_ms) for a in collector.last().asked] == [
        ("aws", "not listed yet", None),
        ("gcp", "not listed yet", None),
    ]
    told = collector.last().without({"lambda": "no key"})
    assert (told.asked[:2], told.asked[2]) == (collector.last().asked, Asked("lambda", unasked="no key"))
    assert not told.complete


def test_the_last_looks_told_without_asking(harness: Harness, collector: Collector) -> None:
    plant(harness)
    later(harness, GRACE_S + 1)
    asyncio.run(collector.look())
    harness.world.faults.add(Fault("gcp", "list", FaultKind.DOWN))
    later(harness, 60)
    asyncio.run(collector.look())
    with harness.store.write() as tx:
        tx.set_switch("paused", True, by="ada", reason="invoice")
    asked = sum(len(cloud.calls) for cloud in harness.clouds.values())
    last = collector.last()
    assert sum(len(cloud.calls) for cloud in harness.clouds.values()) == asked
    assert (last.at_ms, last.report_only) == (harness.clock.now_ms(), None)
    now_ms = harness.clock.now_ms()
    assert [(a.name, a.unasked, a.at_ms) for a in last.asked] == [
        ("aws", "", now_ms),
        ("gcp", "listed 1m ago, since then: down", now_ms - 60_000),
    ]
    (found,) = last.discrepancies
    assert (found.subject, found.act) == (STRANGER, Act.END)
