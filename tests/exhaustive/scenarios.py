"""The lives of a job that are looked at exhaustively, and how each has to end."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from broker.core.model import JobState, PlacementState, Purpose
from lab.faults import Fault, FaultKind
from tests.exhaustive.crew import Part
from tests.exhaustive.script import (
    Outside,
    Scenario,
    Step,
    When,
    at_least,
    cancel_job,
    crash,
    dearer_here,
    draining,
    finish,
    noticed,
    noticed_or_draining,
    pause,
    settled,
    settled_or_lost,
    take_back,
    take_back_newest,
    take_back_oldest,
    taken,
    trains,
    trains_as,
)

_MOVE = (Step("prices change", trains, dearer_here),)
_FINISH = Step("its work is done", settled, finish)
_DEAF = Part(handles_term=False)
_RUDE: Mapping[Purpose | int, Part] = {Purpose.PLACE: _DEAF, Purpose.MOVE: _DEAF, Purpose.RECOVER: _DEAF}


def _moved(outside: Outside) -> bool:
    return [p.active_at_ms is not None for p in outside.placements(Purpose.MOVE)] == [True]


def _recovered(outside: Outside) -> bool:
    return any(p.active_at_ms is not None for p in outside.placements(Purpose.RECOVER))


def _cancelled(name: str, *before: Step, when: When, **more: Any) -> Scenario:
    step = Step("cancel", when, cancel_job)
    return Scenario(f"cancel {name}", (*before, step), JobState.CANCELLED, **more)


def _during_move(name: str, what: str, when: When, act: Callable[[Any], None], **more: Any) -> Scenario:
    steps = (*_MOVE, Step(what, when, act), *([] if act is finish else [_FINISH]))
    return Scenario(f"{what} {name}", steps, **more)


def _policy(name: str) -> Callable[[Outside], None]:
    return lambda outside: outside.use_policies(name)


def _removed(name: str, when: When, reached: When = _moved, **more: Any) -> Scenario:
    """Without a policy nothing new is placed, so it comes back in the end: an outage may have cost the job its place."""
    removed, back = (
        Step("policy removed", when, _policy("removed")),
        Step("back", settled_or_lost, _policy("act")),
    )
    return Scenario(f"policy removed {name}", (*_MOVE, removed, back, _FINISH), reached=reached, **more)


def _paused_or_over(outside: Outside) -> bool:
    waits = outside.job.state is JobState.PAUSED
    return outside.job.state.final or (
        waits and all(p.state is PlacementState.GONE for p in outside.placements())
    )


_BROKE = (Step("the money is spent", trains, _policy("broke")),)
_MONEY = Step("money again", _paused_or_over, _policy("act"))

_LIVES = (
    Scenario("place", (Step("its work is done", trains, finish),)),
    Scenario("move", (*_MOVE, _FINISH), reached=_moved),
    Scenario("move boundary cut", (*_MOVE, _FINISH), parts=_RUDE, reached=_moved),
    Scenario(
        "move refused by the probe",
        (*_MOVE, _FINISH),
        parts={Purpose.MOVE: Part(verdict="reject")},
        reached=lambda o: len(o.placements(Purpose.MOVE)) > 0 and not _moved(o),
    ),
    Scenario(
        "interruption with notice",
        (
            Step("notice", trains, take_back(120)),
            Step("its work is done", trains_as(Purpose.RECOVER), finish),
        ),
        reached=_recovered,
    ),
    Scenario(
        "interruption without notice",
        (
            Step("taken back", trains, take_back(0)),
            Step("its work is done", trains_as(Purpose.RECOVER), finish),
        ),
        reached=_recovered,
    ),
    Scenario(
        "silence",
        (Step("its work is done", trains_as(Purpose.RECOVER), finish),),
        parts={Purpose.PLACE: Part(silent=True)},
        reached=_recovered,
    ),
    Scenario(
        "silence for two minutes",
        (Step("its work is done", lambda o: trains(o) and len(o.storage.commits) > 4, finish),),
        parts={Purpose.PLACE: Part(silent=True, silent_s=120)},
    ),
    Scenario(
        "taken back before it runs",
        (Step("taken back", taken, take_back_newest), Step("its work is done", trains, finish)),
        reached=lambda o: len(o.placements()) == 2,
    ),
    Scenario(
        "taken back before it calls",
        (
            Step("taken back", at_least(PlacementState.BOOTING), take_back_newest),
            Step("its work is done", trains, finish),
        ),
        parts={1: Part(boot_s=100)},
        reached=lambda o: len(o.placements()) == 2,
    ),
    Scenario(
        "never boots",
        (Step("its work is done", trains, finish),),
        parts={1: Part(boot_s=math.inf)},
        reached=lambda o: len(o.placements()) == 2,
    ),
    Scenario("the job fails", (Step("a bug", trains, crash),), JobState.FAILED),
    Scenario(
        "the job fails while it moves",
        (*_MOVE, Step("a bug", at_least(PlacementState.BOOTING, Purpose.MOVE), crash)),
        JobState.FAILED,
    ),
    _during_move(
        "while it moves", "taken back", at_least(PlacementState.BOOTING, Purpose.MOVE), take_back(0)
    ),
    _during_move("while it moves", "notice", at_least(PlacementState.BOOTING, Purpose.MOVE), take_back(120)),
    _during_move("while the old drains", "notice", draining, take_back_oldest),
    Scenario(
        "recovery cannot start",
        (Step("taken back", trains, take_back(0)),),
        JobState.FAILED,
        parts={Purpose.RECOVER: Part(start_error="no such file")},
    ),
    Scenario(
        "start fails",
        (),
        JobState.FAILED,
        parts={Purpose.PLACE: Part(start_error="no such file")},
    ),
    Scenario(
        "pause",
        (
            Step("pause", at_least(PlacementState.INTENDED), pause(True)),
            Step("resume", lambda o: o.turns > 5, pause(False)),
            Step("its work is done", trains, finish),
        ),
    ),
    # cancel in each state
    _cancelled("queued", when=lambda _: True),
    _cancelled("intended", when=at_least(PlacementState.INTENDED)),
    _cancelled(
        "unknown",
        when=lambda o: any(n.create_sent_at_ms for n in o.disk_now().nodes.values()),
        faults=(Fault("aws", "create", FaultKind.REPLY_LOST),),
    ),
    _cancelled(
        "unknown, never arrived",
        when=lambda o: any(n.create_sent_at_ms for n in o.disk_now().nodes.values()),
        faults=(Fault("aws", "create", FaultKind.REQUEST_LOST),),
    ),
    _cancelled("requested", when=at_least(PlacementState.REQUESTED)),
    _cancelled("booting", when=at_least(PlacementState.BOOTING)),
    _cancelled("probing", when=at_least(PlacementState.PROBING)),
    _cancelled("active", when=at_least(PlacementState.ACTIVE)),
    _cancelled("running", when=trains),
    _cancelled("running, does not save", when=trains, parts=_RUDE),
    _cancelled("moving, lands", *_MOVE, when=at_least(PlacementState.BOOTING, Purpose.MOVE)),
    _cancelled("moving, drains", *_MOVE, when=draining),
    _cancelled(
        "recovering",
        Step("taken back", trains, take_back(0)),
        when=at_least(PlacementState.PROBING, Purpose.RECOVER),
    ),
    # a budget that is used up
    Scenario(
        "paused by a budget",
        (*_BROKE, _MONEY, Step("its work is done", trains, finish)),
        reached=lambda o: [p.purpose for p in o.placements()] == [Purpose.PLACE] * 2,
    ),
    Scenario(
        "paused by a budget, does not save",
        (*_BROKE, _MONEY, Step("its work is done", trains, finish)),
        parts=_RUDE,
        reached=lambda o: len(o.placements()) == 2,
    ),
    Scenario(
        "lost when the money is spent",
        (
            Step("pause", trains, pause(True)),
            Step("taken back", lambda _: True, take_back(0)),
            Step("the money is spent", lambda o: o.job.state is JobState.RECOVERING, _policy("broke")),
            Step("resume", _paused_or_over, pause(False)),
            _MONEY,
            Step("its work is done", trains, finish),
        ),
        reached=lambda o: not o.placements(Purpose.RECOVER),
    ),
    _cancelled("paused", *_BROKE, when=lambda o: o.job.state is JobState.PAUSED),
    Scenario(
        "finish while it saves for a pause",
        (*_BROKE, Step("its work is done", noticed_or_draining, finish), _MONEY),
        parts={Purpose.PLACE: Part(save_s=100)},
        reached=lambda o: len(o.placements()) == 1,
    ),
    # hand-over
    Scenario(
        "finish while the old one saves",
        (*_MOVE, Step("its work is done", draining, finish)),
        parts={Purpose.PLACE: Part(save_s=100)},
        reached=lambda o: len(o.placements()) == 2 and not _moved(o),
    ),
    Scenario(
        "finish while it saves after a notice",
        (Step("notice", trains, take_back(120)), Step("its work is done", noticed, finish)),
        parts={Purpose.PLACE: Part(save_s=100)},
        reached=lambda o: not _recovered(o),
    ),
    Scenario(
        "a bug while the old one saves",
        (*_MOVE, Step("a bug", draining, crash)),
        JobState.FAILED,
        parts={Purpose.PLACE: Part(save_s=100)},
    ),
    _during_move(
        "while the move is intended", "finish", at_least(PlacementState.INTENDED, Purpose.MOVE), finish
    ),
    _during_move("while the move lands", "finish", at_least(PlacementState.PROBING, Purpose.MOVE), finish),
    _during_move("while the old drains", "finish", draining, finish),
    _during_move("after the fence of a boundary cut", "finish", draining, finish, parts=_RUDE),
    _during_move(
        "while the move lands",
        "observe",
        at_least(PlacementState.REQUESTED, Purpose.MOVE),
        _policy("observe"),
    ),
    _during_move("while the old drains", "observe", draining, _policy("observe")),
    _removed("while the move lands", at_least(PlacementState.REQUESTED, Purpose.MOVE)),
    _removed("while the old drains", draining),
    _removed(
        "before a probe that cannot judge",
        at_least(PlacementState.REQUESTED, Purpose.MOVE),
        reached=lambda o: bool(o.placements(Purpose.MOVE)) and not _moved(o),
        parts={Purpose.MOVE: Part(verdict="inconclusive")},
    ),
    Scenario(
        "a probe that cannot judge, and a policy that takes the risk",
        (Step("its work is done", trains, finish),),
        parts={Purpose.PLACE: Part(verdict="inconclusive")},
        reached=lambda o: len(o.placements()) == 1,
    ),
    # gangs
    Scenario("gang", (*_MOVE, _FINISH), nodes=2, reached=_moved),
    _cancelled("gang", when=at_least(PlacementState.BOOTING), nodes=2),
    Scenario(
        "gang loses a node",
        (
            Step("one is taken back", trains, lambda o: o.world.interrupt(o.machine_ids(o.training())[1], 0)),
            Step("its work is done", trains_as(Purpose.RECOVER), finish),
        ),
        nodes=2,
        reached=_recovered,
    ),
)

SCENARIOS: Mapping[str, Scenario] = {life.name: life for life in _LIVES}
assert len(SCENARIOS) == len(_LIVES), "two scenarios of one name"
