"""Real price histories, where they are at hand: see `docs/internals/market.md` for what they are and what came of them."""

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from broker.core.offer import Market
from tests.replay import oracle
from tests.replay.measuring import HISTORIES, Figures, folder_of_histories, measure
from tests.replay.oracle import Kind
from tests.replay.recording import Recording
from tests.replay.running import believe_everything, job_at, ranked, replay

HALF_HOUR_MS = 30 * 60_000
# The longest false prices by no known amount.
LASTING = [
    "azure/qatarcentral/Standard_NC24rs_v3/spot",
    "azure/usgovarizona/Standard_NC6s_v3/spot",
    "azure/australiacentral2/Standard_NC4as_T4_v3/spot",
    "azure/westus3/Standard_NC80adis_H100_v5/spot",
]
BY_NAME = {history.name: history for history in HISTORIES}


@cache
def recording(name: str) -> Recording:
    folder = folder_of_histories()
    if folder is None or not (folder / BY_NAME[name].needs).exists():
        pytest.skip("the price histories are not here; they state no licence, so they are not shipped")
    return BY_NAME[name].read(folder)


def nothing_false_moves_and_nothing_true_waits(figures: Figures) -> None:
    assert figures.late == []
    assert figures.on_false == []
    assert figures.outcome.decisions > 0


def test_the_faults_of_azure_move_nobody(tmp_path: Path) -> None:
    figures = measure(recording("azure").part(99, "_NC"), BY_NAME["azure"].few, tmp_path)
    assert figures.kinds[Kind.LICENCE] == 488
    nothing_false_moves_and_nothing_true_waits(figures)
    assert figures.false_believed == []
    assert figures.outcome.moves == []


def test_who_looks_every_half_hour_believes_nothing_false_and_every_step_the_second_time(
    tmp_path: Path,
) -> None:
    """As if each list had been said until the next one was: every false price lives for as long as it can have lived."""
    whole = recording("azure")
    changes = oracle.changes(whole)
    steps = [change.key for change in changes if change.kind is Kind.STEP][::12]
    lasting = [change.key for change in changes if change.kind is Kind.REVERTS and change.readings > 1][::12]
    keys = {*steps, *lasting, *LASTING}
    keys |= {key.replace("/spot", "/on_demand") for key in keys}
    few = replace(whole, series={key: whole.series[key] for key in sorted(keys)})
    often = few.read_again(HALF_HOUR_MS, 26 * HALF_HOUR_MS)
    outcome = replay(often, [], tmp_path)
    number = {at_ms: poll for poll, at_ms in enumerate(often.polls_ms)}
    seen: Counter[Kind] = Counter()
    for change in oracle.changes(few):
        first = number[few.polls_ms[change.poll]]
        price = round(change.price * 1_000_000)
        if change.is_false:
            until = number[few.polls_ms[change.until]]
            assert all(outcome.believed[poll][change.key] != price for poll in range(first, until)), change
        elif change.kind is Kind.STEP:
            assert outcome.believed[first + 1][change.key] == price, change
        seen[change.kind] += 1
    assert min(seen[Kind.LICENCE], seen[Kind.REVERTS], seen[Kind.STEP]) >= 5, seen


def test_what_the_list_of_azure_is_known_to_hold() -> None:
    changes = oracle.changes(recording("azure"))
    kinds = Counter(change.kind for change in changes)
    assert kinds == {Kind.LICENCE: 1167, Kind.REVERTS: 1186, Kind.STEP: 124, Kind.BRIEF: 80}
    long = [change for change in changes if change.kind is Kind.LICENCE and change.until - change.poll > 1]
    assert len(long) == 133, "so many would be confirmed by a second poll"


def test_steps_of_gcp_are_believed_at_once(tmp_path: Path) -> None:
    figures = measure(recording("gcp").part(99, "/spot"), BY_NAME["gcp"].few, tmp_path)
    nothing_false_moves_and_nothing_true_waits(figures)
    assert (figures.kinds, figures.outcome.accepted) == ({Kind.STEP: 1043}, 1043)
    assert figures.outcome.quarantined.total() == 0


def test_rows_of_lambda_that_vanish_keep_their_price_and_its_age(tmp_path: Path) -> None:
    lambda_cloud = recording("lambda")
    figures = measure(lambda_cloud, BY_NAME["lambda"].few, tmp_path)
    nothing_false_moves_and_nothing_true_waits(figures)
    gone = [
        (key, poll)
        for key, series in lambda_cloud.series.items()
        for poll, text in enumerate(series.texts)
        if text is None
        and poll
        and series.texts[poll - 1] is not None
        and key in figures.outcome.believed[poll]
    ]
    believed = figures.outcome.believed
    assert len(gone) > 200
    assert all(believed[poll][key] == believed[poll - 1][key] for key, poll in gone)
    # GPUs that we do not know are kept, and nobody's.
    assert figures.outcome.quarantined == {"a price": 68}


def test_spot_of_aws_is_not_held_up(tmp_path: Path) -> None:
    figures = measure(recording("aws").part(40, "/use"), BY_NAME["aws"].few, tmp_path)
    nothing_false_moves_and_nothing_true_waits(figures)
    assert figures.outcome.quarantined.total() == 0
    assert figures.outcome.accepted == figures.kinds[Kind.STEP] + figures.kinds[Kind.REVERTS] > 300


@pytest.mark.parametrize(
    ("name", "part", "gpu", "count", "market", "poll"),
    [
        ("azure", "NC24ads_A100_v4", "A100", 1, Market.SPOT, 46),  # in the middle of the flips
        ("azure", "NC24ads_A100_v4", "A100", 1, Market.ON_DEMAND, 46),
        ("azure", "NC40ads_H100_v5", "H100", 1, Market.ON_DEMAND, 30),
        ("gcp", "g2-standard-4/", "L4", 1, Market.SPOT, 10),
        ("lambda", "gpu_8x_h100_sxm5", "H100", 8, Market.ON_DEMAND, 1),
        ("aws", "p4d.24xlarge", "A100", 8, Market.SPOT, 20),
    ],
)
def test_one_genuine_drop_moves_one_job_once(
    name: str, part: str, gpu: str, count: int, market: Market, poll: int, tmp_path: Path
) -> None:
    whole = recording(name)
    whole = whole.part(min(70, len(whole.polls_ms)), part)
    here, there, *_ = ranked(whole, gpu, count, market)
    job = job_at(here, gpu, count, whole.polls_ms[0])
    for folder in ("as-it-was", "dropped"):
        (tmp_path / folder).mkdir()
    assert replay(whole, [job], tmp_path / "as-it-was").moves == []
    moves = replay(whole.with_drop(there.key, poll, 0.45), [job], tmp_path / "dropped").moves
    assert [(move.here, move.there) for move in moves] == [(here.key, there.key)]
    assert moves[0].poll >= poll


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(BY_NAME))
def test_all_of_it_with_all_jobs(name: str, tmp_path: Path) -> None:
    figures = measure(recording(name), BY_NAME[name].wanted, tmp_path)
    nothing_false_moves_and_nothing_true_waits(figures)
    if name != "aws":  # what it dates itself it has charged, however soon it went back
        assert figures.false_believed == []


@pytest.mark.slow
def test_a_market_without_doubts_would_have_moved_jobs(tmp_path: Path) -> None:
    figures = measure(recording("azure"), BY_NAME["azure"].wanted, tmp_path, believe_everything)
    assert len(figures.on_false) >= 5
