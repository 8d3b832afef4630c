"""Every case of a scenario, one mode at a time: where to strike, and with what.

effects    the daemon dies before and after each effect, and is started again at once
outages    the same, and nobody starts it again for a quarter of an hour: agents lose their leases
points     it dies between an intent and its effects, and between a decision and the pass that plans it
pairs      it dies at each effect, and again at each one after that
twice      each effect, and all of them, done twice in a row
failures   each effect ends in each error that there is, with the deed done, not done, or done later
replies    each effect is answered late, with the deed at the start or at the end
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from tests.exhaustive.harness import Broken, Harness
from tests.exhaustive.mischief import (
    AHEAD,
    EVERY,
    FAILURES,
    LISTING_FAILS,
    MORE_FAILURES,
    Kill,
    Mischief,
    Point,
    Slow,
    Together,
    Twice,
)
from tests.exhaustive.scenarios import Scenario

OUTAGE_S = 900.0
DEEDS = (False, True)
LOOK_UPS = 3


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
    """See the module. A node that is looked up again and again is failed a few times only."""
    looked_up: Counter[str] = Counter()
    for number in run.effects():
        call = run.end.calls[number]
        looked_up[call.subject] += call.kind == "find"
        if call.kind != "find" or looked_up[call.subject] <= LOOK_UPS:
            for failure in FAILURES[call.kind]:
                yield run, {number: failure}


def more_failures(run: Recorded) -> Iterator[Case]:
    """See the module."""
    few = {str(mischief) for _, mischief in failures(run)}
    for number in run.effects():
        kind = run.end.calls[number].kind
        for failure in (*FAILURES[kind], *MORE_FAILURES[kind]):
            if str({number: failure}) not in few:
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
        more_failures,
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
