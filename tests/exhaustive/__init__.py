"""Everything that can happen to one job, all of it: no seeds, no luck.

    scenarios.py   some fifty lives of a job, and how each has to end; `script.py`: what people and clouds do, and when
    cases.py       where to strike in a life, and with what; one mode a way of going wrong
    mischief.py    the strikes as values
    harness.py     the daemon's own planner, shell, decider and collector in virtual time, every effect counted; one daemon of it is
                   `daemon.py`, what that asks of rows, prices and agents `surroundings.py`
    checks.py      what must hold at every effect, in every turn, at the end
    rows.py        ``state.db`` in memory; `test_real_store.py` proves that SQLite tells the same story
    mutation.py    ``make mutation``: what these tests, and the unit tests of the protocol, do not notice

A case that breaks tells its whole history. To look at it again, with nothing left out:

    from tests.exhaustive.harness import run
    from tests.exhaustive.mischief import Kill
    from tests.exhaustive.scenarios import SCENARIOS
    run(SCENARIOS["move"], {7: Kill(deed=True)})          # raises Broken, or returns the run to be asked

An effect has no number before its run; `run(SCENARIOS["move"]).calls` lists them.
"""
