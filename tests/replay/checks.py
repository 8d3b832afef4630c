"""What a replay must show, by what the oracle says was true."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from broker.core.offer import Market
from tests.replay.oracle import HOLDS, Change, Kind
from tests.replay.running import Move, Outcome

ACCEPTED_WITHIN = 2


@dataclass(frozen=True)
class Believed:
    """A false change that was taken for a price.

    Attributes:
        reserved: In every poll that it was, the offer was in quarantine all the same, so that it moved nobody.
    """

    change: Change
    reserved: bool


def false_but_believed(outcome: Outcome, changes: Iterable[Change]) -> list[Believed]:
    """False changes that were prices for a poll or more."""
    found = []
    for change in changes:
        if not change.is_false:
            continue
        price = round(change.price * 1_000_000)
        polls = [
            poll
            for poll in range(change.poll, change.until)
            if outcome.believed[poll].get(change.key) == price
        ]
        if polls:
            found.append(Believed(change, all(change.key in outcome.doubted[poll] for poll in polls)))
    return found


def accepted_late(outcome: Outcome, changes: Iterable[Change]) -> list[Change]:
    """Real changes that were no price within two polls that read them, or on Azure spot within four."""
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
    series = outcome.recording.series[change.key]
    slow = series.offer.cloud == "azure" and series.offer.market is Market.SPOT
    readings = HOLDS if slow else ACCEPTED_WITHIN
    polls = [poll for poll in range(change.poll, change.until) if series.texts[poll] is not None]
    return polls[readings - 1] if len(polls) >= readings else None
