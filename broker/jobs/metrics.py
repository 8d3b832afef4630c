"""What a job has told of itself, as rules want it: the last readings of each metric, and the best of them. Pure.

A reading is a metrics line that carries the name. A beat brings the newest value of each and how often it was told, so
that an evaluation every ten minutes is not taken for a new one with every beat in between; readings between two beats
are one. A copy that has just started has told nothing yet: what another one told before, perhaps on a broken GPU, is no
reading of this one. The best stays.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from broker.core.model import Progress
from broker.core.spec import KeepBest
from broker.wire.messages import ProgressNote

KEPT: Final = 10
_MOST_NAMES: Final = 64


def take_readings(
    before: Progress | None, note: ProgressNote, generation: int, keep_best: KeepBest | None
) -> dict[str, Any]:
    """The fields of `Progress` that remember readings.

    Args:
        before: As it was.
        generation: Of the copy that tells.
        keep_best: The metric of which the job says itself what is best; of all others the lowest is.
    """
    same_copy = before is not None and before.generation == generation
    told = before.told if before and same_copy else {}
    readings = dict(before.readings) if before and same_copy else {}
    best = dict(before.best) if before else {}
    for name, value in {**note.metrics, **({} if note.loss is None else {"loss": note.loss})}.items():
        if not _is_new(name, value, note.readings, told, readings):
            continue
        if name in readings or len(readings) < _MOST_NAMES:
            readings[name] = (*readings.get(name, ()), value)[-KEPT:]
        if math.isfinite(value) and (name in best or len(best) < _MOST_NAMES):
            highest = keep_best is not None and keep_best.metric == name and keep_best.mode == "max"
            best[name] = (max if highest else min)(best.get(name, value), value)
    return {"generation": generation, "told": dict(note.readings), "readings": readings, "best": best}


def _is_new(
    name: str,
    value: float,
    counted: Mapping[str, float],
    told: Mapping[str, float],
    readings: Mapping[str, tuple[float, ...]],
) -> bool:
    if name in counted:
        return counted[name] != told.get(name)
    # An agent of an earlier release counts nothing: another value is another reading.
    had = readings.get(name)
    return not had or not (had[-1] == value or (math.isnan(had[-1]) and math.isnan(value)))
