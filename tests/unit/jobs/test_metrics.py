"""Readings of a job's metrics: what is a new one, what is forgotten, and what is the best."""

import math
from dataclasses import replace

from broker.core.model import Progress
from broker.core.plain import from_plain, to_plain
from broker.core.spec import KeepBest
from broker.jobs.metrics import KEPT, take_readings
from broker.wire.messages import ProgressNote


def told(*values: tuple[str, float], before: Progress | None = None, generation: int = 1, **more) -> Progress:
    """Each value as one line, in a beat of its own."""
    progress, counts = before, dict(before.told) if before and before.generation == generation else {}
    metrics: dict[str, float] = {}
    for name, value in values:
        counts[name] = counts.get(name, 0.0) + 1
        metrics[name] = value
        loss = metrics.get("loss")
        note = ProgressNote(
            loss=loss, metrics={n: v for n, v in metrics.items() if n != "loss"}, readings=dict(counts)
        )
        progress = Progress(0, **take_readings(progress, note, generation, more.get("keep_best")))
    assert progress is not None
    return progress


def test_a_value_that_is_only_repeated_is_no_new_reading() -> None:
    progress = told(("loss", 3.0), ("val_loss", 5.0), ("loss", 2.0), ("loss", 2.0), ("val_loss", 4.0))
    assert progress.readings == {"loss": (3.0, 2.0, 2.0), "val_loss": (5.0, 4.0)}
    assert progress.best == {"loss": 2.0, "val_loss": 4.0}


def test_an_agent_that_counts_nothing_tells_a_new_reading_by_a_new_value() -> None:
    progress = None
    for loss in (3.0, 3.0, 2.0, math.nan, math.nan, 2.0):
        progress = Progress(0, **take_readings(progress, ProgressNote(loss=loss), 1, None))
    assert progress is not None
    assert [str(value) for value in progress.readings["loss"]] == ["3.0", "2.0", "nan", "2.0"]


def test_a_new_copy_has_told_nothing_yet_and_the_best_stays() -> None:
    first = told(("loss", 1.0), ("loss", math.nan), ("loss", math.nan))
    second = Progress(0, **take_readings(first, ProgressNote(step=5), 2, None))
    assert (second.readings, second.best) == ({}, {"loss": 1.0})
    again = told(("loss", 4.0), before=second, generation=2)
    assert (again.readings, again.best) == ({"loss": (4.0,)}, {"loss": 1.0})


def test_what_is_kept_is_bounded() -> None:
    progress = told(*(("loss", float(n)) for n in range(KEPT + 5)))
    assert progress.readings["loss"] == tuple(float(n) for n in range(5, KEPT + 5))
    many = told(*((f"m{n}", 1.0) for n in range(200)))
    assert len(many.readings) == len(many.best) == 64


def test_the_best_is_the_lowest_unless_the_job_says_otherwise_and_always_a_number() -> None:
    best = KeepBest("accuracy", "max")
    progress = told(
        ("accuracy", 0.5), ("accuracy", 0.9), ("accuracy", 0.7), ("loss", math.inf), keep_best=best
    )
    assert progress.best == {"accuracy": 0.9}
    assert told(("accuracy", 0.5), ("accuracy", 0.9), keep_best=replace(best, mode="min")).best == {
        "accuracy": 0.5
    }


def test_readings_survive_the_row() -> None:
    progress = told(("loss", 2.0), ("eval/loss", 3.5))
    assert from_plain(Progress, to_plain(progress)) == progress
