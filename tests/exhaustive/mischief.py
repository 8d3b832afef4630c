"""What goes wrong in one run, and where: at a call to the outside, or at a point between two of them.

Calls are numbered from 1 in the order in which a run makes them, over all its daemons. Everything is deterministic,
so the first n calls of a run whose mischief starts at call n are those of the run without any.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker.core.errors import (
    CasFailed,
    Conflict,
    Corrupt,
    Denied,
    Invalid,
    OutOfCapacity,
    OutOfQuota,
    ProviderDown,
    StoreError,
    Throttled,
    UnknownOutcome,
)


class Killed(BaseException):
    """SIGKILL: no handler of the daemon may see it, so it is no Exception."""


class Planted(RuntimeError):
    """An error outside the closed set, as from a bug in an SDK."""


@dataclass(frozen=True)
class Call:
    """One effect on the outside.

    Attributes:
        kind: ``create``, ``find``, ``delete``, ``fence``; of the collector ``list`` and ``collect``.
        subject: Token, job, or cloud.
    """

    number: int
    kind: str
    subject: str

    def __str__(self) -> str:
        return f"call {self.number} ({self.kind} {self.subject})"


@dataclass(frozen=True)
class Point:
    """A moment between effects.

    Attributes:
        after: ``intent``: the planner's rows are committed and nothing has been started; ``decision``: so are the
            decider's.
    """

    number: int
    after: str

    def __str__(self) -> str:
        return f"pass {self.number}, after its {self.after}"


@dataclass(frozen=True)
class Kill:
    """The daemon dies before the deed, or after it and before its outcome is written.

    Attributes:
        down_s: How long nobody starts another one.
    """

    deed: bool
    down_s: float = 0.0

    def __str__(self) -> str:
        when = "after the deed, before its outcome is committed" if self.deed else "before the deed"
        return f"killed {when}" + (f", down for {self.down_s:.0f} s" if self.down_s else "")


@dataclass(frozen=True)
class Fail:
    """The call ends in an error.

    Attributes:
        deed: ``none``, ``done``, or ``late``: it happens `late_s` after the error.
    """

    name: str
    error: Callable[[], Exception]
    deed: str = "none"
    late_s: float = 0.0

    def __str__(self) -> str:
        late = f" {self.late_s:.0f} s" if self.late_s else ""
        return f"{self.name}, deed {self.deed}{late}"


@dataclass(frozen=True)
class Twice:
    """The deed is done twice in a row."""

    def __str__(self) -> str:
        return "done twice"


@dataclass(frozen=True)
class Slow:
    """The reply takes `turns` turns; the deed is done at their start or at their end."""

    turns: int
    deed_first: bool

    def __str__(self) -> str:
        return f"reply {self.turns} turns late, deed {'first' if self.deed_first else 'last'}"


@dataclass(frozen=True)
class Together:
    """All effects of a pass are done before the outcome of any of them is written."""

    def __str__(self) -> str:
        return "done together with the others of its pass"


Act = Kill | Fail | Twice | Slow | Together
Spot = int | Point
Mischief = Mapping[Spot, Act]
EVERY = 0
"""In a `Mischief`: every call for which nothing else is said."""


def told(mischief: Mischief, calls: Mapping[int, Call]) -> str:
    """For a person: where, and what."""
    where = {
        spot: str(calls.get(spot, f"call {spot}")) if isinstance(spot, int) else str(spot)
        for spot in mischief
    }
    parts = [f"{'every call' if spot == EVERY else where[spot]}: {act}" for spot, act in mischief.items()]
    return "; ".join(parts) or "nothing goes wrong"


def _lost(deed: str, late_s: float = 0.0) -> Fail:
    return Fail("UnknownOutcome", lambda: UnknownOutcome("the reply was lost"), deed, late_s)


def _timed_out(deed: str, late_s: float = 0.0) -> Fail:
    return Fail("TimeoutError", TimeoutError, deed, late_s)


_BUG = Fail("RuntimeError", lambda: Planted("an SDK has a bug"))
_THROTTLED = Fail("Throttled", lambda: Throttled("too many calls", 30.0))
_DOWN = Fail("ProviderDown", lambda: ProviderDown("503"))
_DENIED = Fail("Denied", lambda: Denied("not allowed"))
_INVALID = Fail("Invalid", lambda: Invalid("never"))
_EMPTY = (
    Fail("OutOfCapacity", lambda: OutOfCapacity("empty", "zone")),
    Fail("OutOfCapacity region", lambda: OutOfCapacity("empty", "region")),
    Fail("OutOfQuota", lambda: OutOfQuota("used up", "cloud")),
)
_STORE = (
    Fail("StoreError", lambda: StoreError("503")),
    Fail("CasFailed", lambda: CasFailed("lost")),
    Fail("Corrupt", lambda: Corrupt("HEAD is unreadable")),
    Fail("StoreError", lambda: StoreError("the reply was lost"), "done"),
    _timed_out("none"),
    _timed_out("done"),
    _timed_out("late", 50.0),
    _BUG,
)
LISTING_FAILS = _lost("none")
AHEAD = Fail("Conflict", lambda: Conflict("HEAD is ahead"))

# A request may be under way for less than `Rules.forget_after_s`; 170 s is the worst that is promised to be survived.
_LATEST = _lost("late", 170.0)

FAILURES: Mapping[str, tuple[Fail, ...]] = {
    "create": (_EMPTY[0], _lost("none"), _lost("done"), _LATEST),
    "find": (_lost("none"),),
    "delete": (_lost("none"), _lost("done")),
    "fence": (_STORE[0], _STORE[3]),
    "collect": (_lost("none"), _lost("done")),
}
"""By kind of effect: one failure of each sort: refused, nothing heard and not done, nothing heard and done."""

EVERY_FAILURE: Mapping[str, tuple[Fail, ...]] = {
    "create": (
        _DENIED, _INVALID, *_EMPTY, _THROTTLED, _DOWN, _BUG,
        _lost("none"), _lost("done"), _lost("late", 50.0), _LATEST,
        _timed_out("none"), _timed_out("done"), _timed_out("late", 50.0), _timed_out("late", 170.0),
    ),
    "find": (_THROTTLED, _DOWN, _DENIED, _INVALID, _BUG, _lost("none"), _timed_out("none")),
    "delete": (
        _THROTTLED, _DOWN, _DENIED, _INVALID, _BUG,
        _lost("none"), _lost("done"), _lost("late", 50.0), _timed_out("none"), _timed_out("late", 50.0),
    ),
    "fence": _STORE,
    "collect": (_THROTTLED, _DOWN, _DENIED, _INVALID, _lost("none"), _lost("done")),
}  # fmt: skip
"""The closed set of errors, time-outs and an SDK's bug, each with the deed not done, done, and done later."""
