"""What a replay must show, by what the oracle says was true."""

from collections.abc import Iterable, Iterator

from tests.replay.oracle import Change, Kind
from tests.replay.running import Move, Outcome

ACCEPTED_WITHIN = 2


def false_but_believed(outcome: Outcome, changes: Iterable[Change]) -> list[Change]:
    """False changes that were prices for a poll or more."""
    return [
        change
        for change in changes
        if change.is_false
        and any(
            outcome.believed[poll].get(change.key) == round(change.price * 1_000_000)
            for poll in range(change.poll, change.until)
        )
    ]


def accepted_late(outcome: Outcome, changes: Iterable[Change]) -> list[Change]:
    """Real changes that were no price within two polls that read them."""
    return [
        change
        for change in changes
        if change.kind is Kind.STEP
        and (due := _due(outcome, change)) is not None
        and outcome.believed[due].get(change.key) != round(change.price * 1_000_000)
    ]


def resting_on(moves: Iterable[Move], changes: Iterable[Change]) -> Iterator[tuple[Move, Change]]:
    """Moves made while one of their two prices was read wrong, and at that price."""
    by_key: dict[str, list[Change]] = {}
    for change in changes:
        if change.kind is not Kind.STEP:
            by_key.setdefault(change.key, []).append(change)
    for move in moves:
        for key, price in ((move.here, move.here_micro_usd_h), (move.there, move.there_micro_usd_h)):
            for change in by_key.get(key, ()):
                if change.poll <= move.poll < change.until and price == round(change.price * 1_000_000):
                    yield move, change


def _due(outcome: Outcome, change: Change) -> int | None:
    """The poll after which it must be a price; None when it did not last so long."""
    texts = outcome.recording.series[change.key].texts
    polls = [poll for poll in range(change.poll, change.until) if texts[poll] is not None]
    return polls[ACCEPTED_WITHIN - 1] if len(polls) >= ACCEPTED_WITHIN else None
