"""What `broker doctor` says of each cloud's prices: how old they are, how many, and what is doubted. Calls nobody."""

from collections.abc import Iterator, Mapping

from broker.core.ports import Check
from broker.core.time import age_s, format_duration
from broker.serve.unread import is_late
from broker.store.doubts import Quarantined, is_gpu_known
from broker.store.history import HistoryStore, Poll, PollKind


def feed_checks(
    history: HistoryStore, intervals_s: Mapping[str, int], now_ms: int
) -> Iterator[tuple[str, Check]]:
    """One line for each cloud's prices, and one for its hints where it gives any.

    Args:
        intervals_s: By cloud: seconds of our clock between two polls.
        now_ms: On our clock.
    """
    doubted: dict[str, list[Quarantined]] = {}
    for entry in history.quarantined().values():
        doubted.setdefault(entry.raw.offer.cloud, []).append(entry)
    for cloud, interval_s in intervals_s.items():
        polls = history.polls(cloud, limit=50)
        yield cloud, _prices(polls, interval_s, doubted.get(cloud, []), now_ms)
        hints = history.polls(cloud, limit=1, kind=PollKind.AVAILABILITY)
        if hints and (hints[0].offers or not hints[0].ok):
            yield cloud, _hints(hints[0], now_ms)


def _prices(polls: list[Poll], interval_s: int, doubted: list[Quarantined], now_ms: int) -> Check:
    whole = next((poll for poll in polls if poll.ok), None)
    failing = polls[: polls.index(whole)] if whole else polls
    why = f"; the last poll failed: {failing[0].error}" if failing else ""
    if whole is None:
        return Check("prices", False if failing else None, f"never read{why or ' yet'}")
    seconds = age_s(whole.started_at_ms, now_ms)
    detail = f"{whole.offers} prices, {format_duration(seconds)} old"
    unknown = sum(not is_gpu_known(entry) for entry in doubted)
    if len(doubted) > unknown:
        detail += f", {len(doubted) - unknown} of them in quarantine"
    if unknown:
        detail += f", {unknown} of GPUs not known here"
    if is_late(seconds, interval_s):
        return Check("prices", False, f"{detail}; due every {format_duration(interval_s)}{why}")
    return Check("prices", True, f"{detail}{why}")


def _hints(poll: Poll, now_ms: int) -> Check:
    age = format_duration(age_s(poll.started_at_ms, now_ms))
    if poll.ok:
        return Check("availability", True, f"{poll.offers} hints, {age} old")
    if poll.offers:
        return Check(
            "availability", None, f"{poll.offers} hints, {age} old; others were not told: {poll.error}"
        )
    return Check("availability", None, f"not told {age} ago: {poll.error}; prices do not need it")
