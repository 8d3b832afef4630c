"""When a job is not worth its money any more: lines over its own metrics, each with its own truth. Pure.

A line holds when it is true of each of the last `hold` readings. A reading that is missing, or is no number, makes a line
unknown, and an unknown line stops nothing: only ``nan_loss`` speaks of a loss that is no number.
"""

import math
from typing import Final

from broker.core.model import Progress, Reason
from broker.decision.situation import Situation
from broker.policy.explain import judge
from broker.policy.facts import Facts, job_facts, metric_facts
from broker.policy.schema import Condition

_LOSS: Final = "loss"


def stop_lines(situation: Situation) -> tuple[Reason, ...]:
    """A line for each rule of the policy, in the order of the file; one that holds ends the job."""
    stop, progress = situation.policy.stop, situation.job.progress
    if stop is None or situation.subject.active is None:
        return ()
    lines = [_when(situation, condition, stop.hold_readings) for condition in stop.when]
    if stop.nan_loss:
        lines.append(_nan_loss(progress, stop.hold_readings))
    return tuple(lines)


def _when(situation: Situation, condition: Condition, hold: int) -> Reason:
    common = job_facts(situation.job, situation.here.work_s if situation.here else None)
    newest = judge(condition, common | _facts(situation.job.progress, 0))
    true = 0
    while true < hold and condition.evaluate(common | _facts(situation.job.progress, true)):
        true += 1
    if not newest.holds:
        return newest
    return Reason(newest.line, true >= hold, f"{newest.detail}; {_readings(true, hold)}", newest.place)


def _nan_loss(progress: Progress | None, hold: int) -> Reason:
    line, readings = "stop.nan_loss: true", progress.readings.get(_LOSS, ()) if progress else ()
    if not readings:
        return Reason(line, None, "no loss was reported")
    true = next((n for n, loss in enumerate(reversed(readings)) if math.isfinite(loss)), len(readings))
    told = f"loss is {readings[-1]:g}"
    return Reason(line, true >= hold, f"{told}; {_readings(true, hold)}" if true else told)


def _facts(progress: Progress | None, back: int) -> Facts:
    return metric_facts(progress, back) if progress is not None else {}


def _readings(true: int, hold: int) -> str:
    return f"so it was at {min(true, hold)} of {hold} readings"
