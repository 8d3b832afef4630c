"""Every fault that the real lists have shown, made up, so that it is known what was true."""

from pathlib import Path

import pytest

from broker.core.offer import Market
from tests.replay.running import Outcome, believe_everything, job_at, places, replay
from tests.replay.synthetic import REGIONS, SIZES, Made, make

ORDINARY = range(3)
# Polls three hours apart: half an hour, and twelve.
HOLDS = 2
HOLDS_LONG = 5


def jobs(made: Made) -> list:
    recording = made.recording
    at_ms = recording.polls_ms[0]
    return [
        job_at(offer, gpu, 1, at_ms)
        for _, gpu, *_ in SIZES
        for market in (Market.SPOT, Market.ON_DEMAND)
        for offer in places(recording, gpu, 1, market)
    ]


def untrue(made: Made, outcome: Outcome) -> list[str]:
    """Prices that a job could be moved by and that have never been true."""
    found = []
    for key, truth in made.truth.items():
        series = made.recording.series[key]
        first_true = next(poll for poll, price in series.readings() if round(price * 1_000_000) in truth)
        for poll, prices in enumerate(outcome.believed):
            if (
                poll >= first_true
                and key not in outcome.doubted[poll]
                and prices[key] not in truth[: poll + 1]
            ):
                found.append(f"{key} in poll {poll}: {prices[key]}")
    return found


def late(made: Made, outcome: Outcome) -> list[str]:
    """True prices that polls in a row have read, for as long as it takes, and that are not believed."""
    found = []
    for key, truth in made.truth.items():
        read = {poll: round(price * 1_000_000) for poll, price in made.recording.series[key].readings()}
        for poll in range(len(truth)):
            rose = truth[poll] > truth[0] and key.endswith("/on_demand")
            # One place is first read with the licence: without it, it has fallen by more than a fifth.
            holds = HOLDS_LONG if rose or REGIONS[-1] in key else HOLDS
            if (
                poll >= holds - 1
                and all(read.get(poll - back) == truth[poll] for back in range(holds))
                and (outcome.believed[poll][key] != truth[poll] or key in outcome.doubted[poll])
            ):
                found.append(f"{key} in poll {poll}: {outcome.believed[poll][key]} is not {truth[poll]}")
    return found


def check(made: Made, folder: Path) -> None:
    outcome = replay(made.recording, jobs(made), folder)
    assert untrue(made, outcome) == []
    assert late(made, outcome) == []
    assert outcome.moves == []
    assert outcome.quarantined.total() > outcome.confirmed > 0


@pytest.mark.parametrize("seed", ORDINARY)
def test_nothing_false_moves_a_job_and_nothing_true_is_held_up(seed: int, tmp_path: Path) -> None:
    check(make(seed), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(len(ORDINARY), 60))
def test_nothing_false_moves_a_job_in_many_lists(seed: int, tmp_path: Path) -> None:
    check(make(seed), tmp_path)


def test_a_market_without_doubts_would_move_jobs_by_the_same_list(tmp_path: Path) -> None:
    made = make(0)
    outcome = replay(made.recording, jobs(made), tmp_path, take=believe_everything)
    assert len(outcome.moves) > 3


@pytest.mark.parametrize("market", [Market.SPOT, Market.ON_DEMAND])
def test_one_genuine_drop_moves_the_job_once(market: Market, tmp_path: Path) -> None:
    made = make(1)
    (here, *_) = places(made.recording, "H100", 1, market)
    there = next(
        key
        for key, series in made.recording.series.items()
        if series.offer.market is market
        and series.offer.gpu == "H100-NVL-94GB"
        and series.offer.region not in (here.region, REGIONS[-1])
    )
    recording = made.recording.with_drop(there, 20, 0.45)
    outcome = replay(recording, [job_at(here, "H100", 1, recording.polls_ms[0])], tmp_path)
    assert [(move.here, move.there) for move in outcome.moves] == [(here.key, there)]
