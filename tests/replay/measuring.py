"""Replays of real price histories, and what they come to."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from broker.core.offer import Market
from tests.replay import catalogues, oracle
from tests.replay.checks import accepted_late, false_but_believed, resting_on
from tests.replay.oracle import Change, Kind
from tests.replay.recording import Recording
from tests.replay.running import Move, Outcome, TakeIn, job_at, places, replay, take_in

ROOT = Path(__file__).parents[2]
Wanted = Sequence[tuple[str, int]]


@dataclass(frozen=True)
class History:
    """A recording, where it lies, and what jobs are to live through it.

    Attributes:
        read: From the folder of price histories.
        needs: A file of it, below that folder.
        wanted: GPUs and how many; a job runs at the cheapest place for each, and one at the dearest near it.
        few: The same for a replay that must not take long.
    """

    name: str
    read: Callable[[Path], Recording]
    needs: str
    wanted: Wanted
    few: Wanted


HISTORIES = (
    History(
        "azure",
        lambda folder: catalogues.azure(folder / "anycloud-catalog"),
        "anycloud-catalog/azure.csv.zst",
        [
            ("T4", 1),
            ("V100", 1),
            ("V100", 4),
            ("A100", 1),
            ("A100", 8),
            ("H100", 1),
            ("H100", 8),
            ("H200", 8),
        ],
        [("A100", 1), ("H100", 1)],
    ),
    History(
        "gcp",
        lambda folder: catalogues.gcp(folder / "anycloud-catalog"),
        "anycloud-catalog/gcp.csv.zst",
        [("L4", 1), ("A100", 1), ("A100", 8), ("H100", 1), ("H100", 8)],
        [("H100", 8)],
    ),
    History(
        "lambda",
        lambda folder: catalogues.lambda_cloud(folder / "anycloud-catalog"),
        "anycloud-catalog/lambda.csv.zst",
        [("A100", 1), ("H100", 1), ("H100", 8)],
        [("A100", 1), ("H100", 1), ("H100", 8)],
    ),
    History(
        "aws",
        lambda folder: catalogues.aws(folder / "aws"),
        "aws/aws_focus_2022-12_2023-11.csv.gz",
        [("T4", 1), ("A100", 8)],
        [("A100", 8)],
    ),
)


@dataclass(frozen=True)
class Figures:
    """What a replay came to.

    Attributes:
        kinds: Changes that were read, by what the oracle says they were.
        false_believed: Of the false ones, those that were a price for a poll or more.
        late: Of the real ones, those that were a price too late.
        on_false: Moves that rest on a false change.
    """

    recording: Recording
    outcome: Outcome
    kinds: Counter[Kind]
    false_believed: list[Change]
    late: list[Change]
    on_false: list[tuple[Move, Change]]


def folder_of_histories() -> Path | None:
    """Where the histories usually lie: beside the repository, or in it."""
    found = (at / "shared" / "data" / "prices" for at in (ROOT, ROOT.parent))
    return next((path for path in found if path.is_dir()), None)


def measure(recording: Recording, wanted: Wanted, folder: Path, take: TakeIn = take_in) -> Figures:
    """Replay it with a job at each place that is wanted."""
    jobs = [
        job_at(offer, gpu, count, recording.polls_ms[0])
        for gpu, count in wanted
        for market in (Market.SPOT, Market.ON_DEMAND)
        for offer in places(recording, gpu, count, market)
    ]
    outcome = replay(recording, jobs, folder, take)
    changes = oracle.changes(recording)
    return Figures(
        recording,
        outcome,
        Counter(change.kind for change in changes),
        false_but_believed(outcome, changes),
        accepted_late(outcome, changes),
        list(resting_on(outcome.moves, changes)),
    )


def lines(figures: Figures) -> list[tuple[str, str]]:
    """As a table has them."""
    recording, outcome, kinds = figures.recording, figures.outcome, figures.kinds
    first, last = (
        datetime.fromtimestamp(ms / 1000, UTC) for ms in (recording.polls_ms[0], recording.polls_ms[-1])
    )
    readings = sum(text is not None for series in recording.series.values() for text in series.texts)
    waits = ", ".join(f"{count} for {what}" for what, count in sorted(outcome.quarantined.items()))
    return [
        ("from, to", f"{first:%Y-%m-%d}, {last:%Y-%m-%d}"),
        ("polls, offers, readings", f"{len(recording.polls_ms)}, {len(recording.series)}, {readings:,}"),
        ("false by the licence", f"{kinds[Kind.LICENCE]:,}"),
        ("gone back within three polls", f"{kinds[Kind.REVERTS]:,}"),
        ("neither false nor real", f"{kinds[Kind.BRIEF]:,}"),
        ("real steps", f"{kinds[Kind.STEP]:,}"),
        ("accepted changes", f"{outcome.accepted:,}"),
        ("quarantined", f"{outcome.quarantined.total():,}" + (f" ({waits})" if waits else "")),
        ("confirmed of them", f"{outcome.confirmed:,}"),
        ("false or gone back, and a price", f"{len(figures.false_believed):,}"),
        ("real, and a price too late", f"{len(figures.late):,}"),
        ("decisions, moves", f"{outcome.decisions:,}, {len(outcome.moves)}"),
        ("moves from them", f"{len(figures.on_false)}"),
    ]
