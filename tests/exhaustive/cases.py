"""Every case of a scenario, one mode at a time: where to strike, and with what.

Deaths of the daemon:

    effects        before and after each effect; another one is started at once
    outages        the same, and nobody starts another one for a quarter of an hour: agents lose their leases
    points         between an intent and its effects, and between a decision and the pass that plans it
    pairs          at each effect, and again at each one after that
    mixed          an effect fails as in `failures`, and the daemon dies at each effect after that
    together       the effects of a pass have all been done and no outcome is written yet

Outcomes of effects:

    twice          each effect, and all of them, done twice in a row
    failures       each fails once in each sort of way: refused, unheard and not done, unheard and done
    every_failure  each ends in each error of the closed set, in a time-out, in a bug; deeds are done, not done, or late
    ahead          each fence is told that HEAD is newer than the rows; a person clears the latch
    replies        each is answered late, with the deed at the start or at the end
    listings       each list of the collector fails, comes two passes late, or is the last thing that a daemon sees
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache

from tests.exhaustive.harness import Broken, Harness
from tests.exhaustive.mischief import (
    AHEAD,
    EVERY,
    EVERY_FAILURE,
    FAILURES,
    LISTING_FAILS,
    Fail,
    Kill,
    Mischief,
    Point,
    Slow,
    Together,
    Twice,
)
from tests.exhaustive.script import Scenario

OUTAGE_S = 900.0
DEEDS = (False, True)


class Recorded:
    """A run, with a copy of everything before each of its turns: a case need not repeat what comes before its strike.

    Attributes:
        mischief: Of the run itself.
        end: The run as it was in the end.
    """

    def __init__(self, begun: Harness) -> None:
        self.mischief = begun.mischief
        self._before: list[tuple[int, int, Harness]] = []
        self._turns: dict[int, Harness] = {}
        self.end = begun.run(self._keep)

    def _keep(self, harness: Harness) -> None:
        if harness.clonable:
            copy = self._turns[harness.turns] = harness.clone(harness.mischief)
            self._before.append((len(harness.calls), harness.passes, copy))

    def struck(self, mischief: Mischief, whole: bool = False) -> Harness:
        """The run with more going wrong: the newest copy from before that, and what becomes of it.

        A run that comes back to where this one was in the same turn goes on as this one did, and is left there.

        Args:
            whole: Go on to the end even so.

        Raises:
            Broken: it did not end as it must.
        """
        return self.branch(mischief).run(None if whole else self._rejoined)

    def _rejoined(self, harness: Harness) -> bool:
        there = self._turns.get(harness.turns)
        return there is not None and harness.struck >= set(harness.mischief) and harness.same_as(there)

    def branch(self, mischief: Mischief) -> Harness:
        """Where the run of `struck` begins."""
        kept = next(
            kept
            for calls, passes, kept in reversed(self._before)
            if all(passes < at.number if isinstance(at, Point) else calls < max(at, 1) for at in mischief)
        )
        return kept.clone({**self.mischief, **mischief})

    def effects(self, after: int = 0) -> list[int]:
        """Numbers of its effects. Listing has none: what dies there dies between two effects, see `points`."""
        return [n for n, call in self.end.calls.items() if n > after and call.kind != "list"]


Case = tuple[Recorded, Mischief]


@cache
def calm(scenario: Scenario, sweep: bool) -> Recorded:
    """The run in which nothing goes wrong."""
    return Recorded(Harness(scenario, {}, sweep))


def effects(run: Recorded) -> Iterator[Case]:
    """See the module."""
    for number in run.effects():
        for deed in DEEDS:
            yield run, {number: Kill(deed)}


def outages(run: Recorded) -> Iterator[Case]:
    """See the module."""
    for number in run.effects():
        for deed in DEEDS:
            yield run, {number: Kill(deed, OUTAGE_S)}


def points(run: Recorded) -> Iterator[Case]:
    """See the module."""
    for point in run.end.points:
        yield run, {point: Kill(deed=False)}


def pairs(run: Recorded) -> Iterator[Case]:
    """See the module."""
    for _, first in effects(run):
        (number,) = first
        assert isinstance(number, int)
        again = Recorded(run.branch(first))
        for second in again.effects(after=number):
            for deed in DEEDS:
                yield again, {second: Kill(deed)}


def mixed(run: Recorded) -> Iterator[Case]:
    """See the module."""
    for _, first in failures(run):
        (number,) = first
        assert isinstance(number, int)
        again = Recorded(run.branch(first))
        for second in again.effects(after=number):
            for deed in DEEDS:
                yield again, {second: Kill(deed)}


def twice(run: Recorded) -> Iterator[Case]:
    """See the module."""
    yield run, {EVERY: Twice()}
    for number in run.effects():
        yield run, {number: Twice()}


def together(run: Recorded) -> Iterator[Case]:
    """See the module."""
    yield run, {EVERY: Together()}
    for number in run.effects():
        yield run, {EVERY: Together(), number: Kill(deed=True)}


def failures(run: Recorded) -> Iterator[Case]:
    """See the module."""
    yield from _failing(run, FAILURES)


def every_failure(run: Recorded) -> Iterator[Case]:
    """See the module."""
    yield from _failing(run, EVERY_FAILURE)


def _failing(run: Recorded, failures_of: Mapping[str, tuple[Fail, ...]]) -> Iterator[Case]:
    for number in run.effects():
        for failure in failures_of[run.end.calls[number].kind]:
            yield run, {number: failure}


def ahead(run: Recorded) -> Iterator[Case]:
    """See the module."""
    for number in run.effects():
        if run.end.calls[number].kind == "fence":
            yield run, {number: AHEAD}


def replies(run: Recorded) -> Iterator[Case]:
    """See the module."""
    for number in run.effects():
        for turns in (1, 3, 8):
            for deed_first in DEEDS:
                yield run, {number: Slow(turns, deed_first)}


def listings(run: Recorded) -> Iterator[Case]:
    """See the module."""
    for number, call in run.end.calls.items():
        if call.kind == "list":
            yield run, {number: Kill(deed=True)}
            yield run, {number: LISTING_FAILS}
            for deed_first in DEEDS:
                yield run, {number: Slow(2, deed_first)}


MODES: Mapping[str, Callable[[Recorded], Iterator[Case]]] = {
    mode.__name__: mode
    for mode in (
        effects,
        outages,
        points,
        pairs,
        mixed,
        twice,
        together,
        failures,
        every_failure,
        ahead,
        replies,
        listings,
    )
}


def broken(scenario: Scenario, mode: str, sweep: bool = False, whole: bool = False) -> list[Broken]:
    """Run every case of a mode; what broke, in order."""
    found = []
    for run, mischief in MODES[mode](calm(scenario, sweep)):
        try:
            run.struck(mischief, whole)
        except Broken as error:
            found.append(error)
    return found
