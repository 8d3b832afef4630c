"""Clouds whose prices are missing from an answer, or older than they should be, and why. Calls nobody."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from broker.core.time import MS, format_duration
from broker.store.history import HistoryStore, Poll

# A cloud is late when three polls in a row have brought nothing.
_LATE_POLLS = 3
# Of a cloud: more failures in a row are told as "at least".
_POLLS = 100


@dataclass(frozen=True)
class Unread:
    """A cloud of which an answer shows nothing, or nothing new.

    Attributes:
        configured: It is in broker.toml and enabled.
        age_s: Since its last whole poll began; null: none ever.
        failed_in_row: Polls since then that have failed; at most 100 are counted.
        error: Of the last poll, or why the cloud cannot be asked at all; empty when neither.
        why: All this for a person.
    """

    cloud: str
    configured: bool
    age_s: float | None
    failed_in_row: int
    error: str
    why: str


def is_late(age_s: float | None, interval_s: int | None) -> bool:
    """Whether a cloud that is asked every `interval_s` should have been read since."""
    return age_s is not None and interval_s is not None and age_s > _LATE_POLLS * interval_s


def unread(
    history: HistoryStore,
    clouds: Collection[str],
    intervals_s: Mapping[str, int],
    closed: Mapping[str, str],
    now_ms: int,
) -> list[Unread]:
    """Of these clouds the ones that are not read as they should be, by name.

    Args:
        intervals_s: Of the configured clouds: seconds between two polls.
        closed: Why configured clouds could not be opened.
        now_ms: On our clock.
    """
    return list(_found(history, clouds, intervals_s, closed, now_ms))


def _found(
    history: HistoryStore,
    clouds: Collection[str],
    intervals_s: Mapping[str, int],
    closed: Mapping[str, str],
    now_ms: int,
) -> Iterator[Unread]:
    for cloud in sorted(clouds):
        newest = history.polls(cloud, limit=1)
        interval_s = intervals_s.get(cloud)
        well = interval_s is not None and cloud not in closed and bool(newest) and newest[0].ok
        if well and not is_late(_age_s(newest[0].started_at_ms, now_ms), interval_s):
            continue
        failed, whole_at_ms = _failed(history, cloud) if newest else (0, None)
        age_s = None if whole_at_ms is None else _age_s(whole_at_ms, now_ms)
        error = closed.get(cloud) or (newest[0].error if failed else "")
        yield Unread(
            cloud,
            cloud in intervals_s,
            age_s,
            failed,
            error,
            _why(age_s, failed, error, interval_s, closed.get(cloud)),
        )


def _why(age_s: float | None, failed: int, error: str, interval_s: int | None, closed: str | None) -> str:
    known = "never read" if age_s is None else f"prices are {format_duration(age_s)} old"
    if interval_s is None:
        return "not configured" if age_s is None else f"not configured any more; its {known}"
    if closed is not None:
        return f"{known}: it cannot be asked: {closed}"
    if failed:
        many = f"at least {failed}" if failed == _POLLS else f"the last {failed}"
        polls = "the last poll has" if failed == 1 else f"{many} polls have"
        return f"{known}: {polls} failed: {error}"
    return "not read yet" if age_s is None else f"{known}, due every {format_duration(interval_s)}"


def _failed(history: HistoryStore, cloud: str) -> tuple[int, int | None]:
    """Polls in a row that have failed, and when the last whole one began."""
    polls: list[Poll] = history.polls(cloud, limit=_POLLS)
    for at, poll in enumerate(polls):
        if poll.ok:
            return at, poll.started_at_ms
    whole = history.polled(0).get(cloud)
    return len(polls), whole.whole_at_ms if whole else None


def _age_s(at_ms: int, now_ms: int) -> float:
    return abs(now_ms - at_ms) / MS
