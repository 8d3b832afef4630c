"""What `broker audit` says: where rows, clouds and checkpoint store disagree, and what would be done about it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class Kind(StrEnum):
    """Which two disagree, and how."""

    UNKNOWN = "unknown"  # a machine with our tag whose token no row has
    RELEASED = "released"  # a machine with our tag whose row is final
    NEWER = "newer"  # a machine that was made by an event which our log does not have
    DENIED = "denied"  # a row that runs, and its cloud knows of no such machine
    OVERDUE = "overdue"  # a machine that we have been deleting for too long
    UNENDED = "unended"  # a segment without an end, though its row is final and its machine gone
    HEAD_AHEAD = "head_ahead"  # a HEAD that carries a generation which no row has granted
    HEAD_DAMAGED = "head_damaged"  # a HEAD that cannot be read
    STRAY = "stray"  # checkpoints of a job that no row knows


class Act(StrEnum):
    """What happens next. Only `END` and `CLOSE` are carried out by ``--apply``."""

    END = "end"  # delete the machine
    CLOSE = "close"  # write the end of its segment
    WAIT = "wait"  # it may still be a list that lags
    RECONCILE = "reconcile"  # the daemon's own passes see to it
    LATCH = "latch"  # report-only, until an operator has looked
    PERSON = "person"  # nothing: a person decides

    @property
    def applies(self) -> bool:
        """Whether ``--apply`` does it."""
        return self in (Act.END, Act.CLOSE)


@dataclass(frozen=True)
class Discrepancy:
    """One disagreement.

    Attributes:
        id: Names it from one audit to the next; what ``--apply`` is told.
        subject: Token of the node, or id of the job.
        place: ``region/zone``, for machines.
        provider_id: The cloud's id, for machines.
        detail: What was seen, in words.
    """

    id: str
    kind: Kind
    act: Act
    subject: str
    cloud: str = ""
    place: str = ""
    provider_id: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Asked:
    """One cloud, or the checkpoint store, and how well it could be asked.

    Attributes:
        name: Of the cloud; ``store`` for the checkpoint store.
        known: Machines of ours that it lists, or jobs that the store has; None where that was not counted.
        strangers: Machines of other installations; counted, never touched. None for the store.
        unasked: Why it could not be asked in full; then nothing is concluded from its silence. Empty: it was.
        at_ms: When its machines were last listed in full, where that was a search before this; else None.
    """

    name: str
    known: int | None = None
    strangers: int | None = None
    unasked: str = ""
    at_ms: int | None = None


@dataclass(frozen=True)
class Audit:
    """One comparison of everything with everything.

    Attributes:
        report_only: Why the latch is on, or None. While it is, nothing is ended, created or fenced.
    """

    at_ms: int
    report_only: str | None
    asked: tuple[Asked, ...]
    discrepancies: tuple[Discrepancy, ...]

    @property
    def complete(self) -> bool:
        """Whether every part could be asked in full."""
        return not any(part.unasked for part in self.asked)

    def without(self, unasked: Mapping[str, str]) -> "Audit":
        """The same, told that these clouds could not be asked, and why."""
        parts = (Asked(cloud, unasked=why) for cloud, why in sorted(unasked.items()))
        return replace(self, asked=(*self.asked, *parts))


@dataclass(frozen=True)
class Applied:
    """What ``--apply`` has done.

    Attributes:
        done: Carried out.
        failed: Tried, and the cloud said no; the collector tries again.
        left: Shown before, and not so any more, or not to be asked now: left alone.
    """

    done: tuple[Discrepancy, ...] = ()
    failed: tuple[Discrepancy, ...] = ()
    left: tuple[str, ...] = ()
