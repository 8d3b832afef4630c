"""The parts of the simulation that a proof rests on: time, the baton, the store's conditions, mutants that still fit."""

import asyncio
from random import Random

import pytest

from broker.wire.errors import PreconditionFailed
from tests.sim.__main__ import _ending, main
from tests.sim.faults import EVERY_S, PER_CALL, Chaos, Kind
from tests.sim.history import short
from tests.sim.loop import Killed, SimLoop, blocking, stepping, wait
from tests.sim.mutants import MUTANTS
from tests.sim.mutants.mutant import owner_of
from tests.sim.objects import Bucket
from tests.sim.pool import hunt
from tests.sim.run import Result
from tests.sim.settings import Settings


def run(work, seed=1):
    loop = SimLoop(Random(seed))
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(work(loop))
    finally:
        loop.close()
        asyncio.set_event_loop(None)


def test_a_day_passes_in_no_time():
    async def day(loop):
        await asyncio.sleep(86_400)
        return loop.now_s

    assert run(day) == 86_400


def test_blocking_code_waits_in_virtual_time_and_interleaves():
    async def both(loop):
        seen = []

        def slow(name, seconds):
            for _ in range(2):
                wait(seconds)
                seen.append((name, loop.now_s))
            return name

        names = await asyncio.gather(blocking(lambda: slow("a", 3)), blocking(lambda: slow("b", 2)))
        return names, seen

    assert run(both) == (["a", "b"], [("b", 2), ("a", 3), ("b", 4), ("a", 6)])


def test_a_cancelled_call_dies_where_it_waits():
    async def cancelled(loop):
        after = []

        def work():
            try:
                wait(10)
            except Killed:
                after.append("killed")
                raise
            after.append("went on")

        task = loop.create_task(blocking(work))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return after

    assert run(cancelled) == ["killed"]


def test_a_call_in_steps_is_closed_where_it_waits():
    async def closed(loop):
        after = []

        def steps():
            try:
                yield 10.0
            except GeneratorExit:
                after.append("closed")
                raise

        task = loop.create_task(stepping(steps()))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return after

    assert run(closed) == ["closed"]


def test_the_bucket_compares_before_it_writes():
    bucket = Bucket()
    etag = bucket.put("k", b"1", None, True, "a")
    with pytest.raises(PreconditionFailed):
        bucket.put("k", b"2", None, True, "b")
    bucket.put("k", b"2", etag, False, "b")
    with pytest.raises(PreconditionFailed):
        bucket.put("k", b"3", etag, False, "a")
    assert bucket.objects["k"] == b"2"


def test_leaving_a_kind_out_moves_no_other():
    kinds = [Kind.REPLY_LOST, Kind.THROTTLED]
    full, less = Chaos(5, also=frozenset(kinds)), Chaos(5, frozenset({Kind.THROTTLED}), frozenset(kinds))
    draws = [[chaos.strikes(Kind.REPLY_LOST) for _ in range(200)] for chaos in (full, less)]
    for _ in range(50):
        full.strikes(Kind.THROTTLED)
    assert draws[0] == draws[1]
    assert not less.strikes(Kind.THROTTLED)


def test_eager_kinds_strike_more_often():
    kinds = frozenset({Kind.REPLY_LOST})
    often, seldom = Chaos(5, also=kinds, eager=8), Chaos(5, also=kinds)
    struck = [sum(chaos.strikes(Kind.REPLY_LOST) for _ in range(1000)) for chaos in (often, seldom)]
    assert struck[0] > 4 * struck[1] > 0
    assert often.every_s(Kind.CRASH) == seldom.every_s(Kind.CRASH) == EVERY_S[Kind.CRASH]


def test_every_kind_has_a_rate():
    assert set(PER_CALL) | set(EVERY_S) == set(Kind)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_still_finds_what_it_breaks(name):
    owner, attribute = owner_of(MUTANTS[name].where)
    assert callable(getattr(owner, attribute))


@pytest.mark.parametrize("name", ["no_fence", "token_not_stored", "no_quarantine", "one_denial"])
def test_a_broken_broker_is_caught(name):
    found = hunt((name, 5))
    assert found.caught is not None, f"{found.tried} seeds"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["replay"], "SEED=17 is needed"),
        (["replay", "--seed", "--hours", "1"], "SEED=17 is needed"),
        (["run", "--mutant", "no_fense"], "did you mean no_fence?"),
        (["mutants", "--only", "no_fense"], "did you mean no_fence?"),
    ],
)
def test_a_mistyped_command_is_told_what_was_meant(typed, told, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["sim", *typed])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert told in capsys.readouterr().err


def test_lines_tell_the_nodes_of_a_gang_apart():
    stem = "bk-" + "a" * 26
    assert [short(f"{stem}-{rank}") for rank in (0, 11)] == ["bk-aaaaaaaaaaa-0", "bk-aaaaaaaaaaa-11"]
    assert [short(name) for name in ("daemon-3", "saves-gsl4m-p1")] == ["daemon-3", "saves-gsl4m-p1"]


def test_a_replay_says_whether_calm_was_run():
    ok, found = Result(Settings(1)), Result(Settings(1), rule="I16 fence first")
    found.lines = ["   156.088 VIOLATION text='no calm'"]
    assert "not run" in _ending(found)
    ok.lines = ["   156.088 calm", "   661.725 daemon.killed daemon=1 why=the end"]
    assert "all came to rest" in _ending(ok)
    found.lines = ok.lines
    assert "not everything came to rest" in _ending(found)
