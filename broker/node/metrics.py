"""Reads the job's metrics lines: ``$BROKER_METRICS``, one JSON object a line, with ``step`` and what it likes.

Known names become progress: ``step``, ``total_steps`` (or ``max_steps``), ``epoch``, ``loss``; every other number
is a metric of that name. A line may carry some names only; the rest keep their last value. A line whose step is no
step (below zero, above 2^53 - 1, no number) counts as bad.

A job that has written no line yet is followed by its TensorBoard files instead (`broker.node.tensorboard`): the same names,
as tags.
"""

import json
import math
from collections import deque
from pathlib import Path
from typing import Callable, Deque, Dict, Optional, Tuple

from broker.node.lease import boot_s
from broker.node.tensorboard import EventFiles
from broker.wire.bounds import is_whole, legible
from broker.wire.messages import ProgressNote

_MAX_READ = 4 << 20
_MAX_METRICS = 200
_MAX_NAME = 200
# Readings that speed is taken over: long enough to smooth a save, short enough to notice a slow node.
_WINDOW = 60


class MetricsReader:
    """Follows one file by offset. A torn last line is read again when it is whole; a shrunken file from its start."""

    def __init__(self, path: Path, now_s: Callable[[], float] = boot_s) -> None:
        self._path = path
        self._now_s = now_s
        self._offset = 0
        self._steps: Deque[Tuple[float, int]] = deque(maxlen=_WINDOW)
        self._note = ProgressNote()
        self._events: Optional[EventFiles] = None
        self._has_lines = False
        self.bad_lines = 0

    def follow(self, events: EventFiles) -> None:
        """Read these too, until the job writes lines of its own."""
        self._events = events

    @property
    def latest(self) -> ProgressNote:
        """Last values seen."""
        return self._note

    def read(self) -> Optional[ProgressNote]:
        """Progress after the lines written since the last call; None when there are none."""
        took = self._read_lines()
        if not self._has_lines and self._events is not None:
            for numbers in self._events.read():
                took = self._take(numbers) or took
        return self._note if took else None

    def _read_lines(self) -> bool:
        try:
            if self._path.stat().st_size < self._offset:
                self._offset = 0
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read(_MAX_READ)
        except OSError:
            return False
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        if not whole and len(data) == _MAX_READ:
            self._offset += len(data)  # a line beyond any use
        took = False
        for line in whole.splitlines():
            numbers = _numbers(line)
            if numbers is None:
                self.bad_lines += bool(line.strip())
            elif self._take(numbers):
                took = self._has_lines = True
        return took

    def _take(self, numbers: Dict[str, float]) -> bool:
        """One line's numbers; False when its step is none."""
        step = numbers.pop("step", None)
        total = numbers.pop("total_steps", numbers.pop("max_steps", None))
        if step is not None:
            whole = _whole(step)
            if whole is None:
                self.bad_lines += 1
                return False
            self._remember(whole)
        old = self._note
        metrics: Dict[str, float] = {**old.metrics}
        readings: Dict[str, float] = {**old.readings}
        for name, value in numbers.items():
            if name not in ("epoch", "loss") and (name in metrics or len(metrics) < _MAX_METRICS):
                metrics[name] = value
            if name in metrics or name == "loss":
                readings[name] = readings.get(name, 0.0) + 1
        self._note = ProgressNote(
            step=self._steps[-1][1] if self._steps else None,
            total_steps=old.total_steps if total is None or _whole(total) is None else _whole(total),
            steps_per_s=self._speed(),
            epoch=numbers.get("epoch", old.epoch),
            loss=numbers.get("loss", old.loss),
            metrics=metrics,
            readings=readings,
        )
        return True

    def _remember(self, step: int) -> None:
        if self._steps and step < self._steps[-1][1]:
            self._steps.clear()  # resumed from an earlier checkpoint
        self._steps.append((self._now_s(), step))

    def _speed(self) -> Optional[float]:
        if len(self._steps) < 2:
            return None
        (first_s, first), (last_s, last) = self._steps[0], self._steps[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s and last > first else None


def _numbers(line: bytes) -> Optional[Dict[str, float]]:
    """What a line says in numbers; None when it is no object, or has a number that no float can hold."""
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            return None
        return {legible(name, _MAX_NAME): float(value) for name, value in document.items() if _number(value)}
    except (ValueError, RecursionError, OverflowError):
        return None


def _whole(number: float) -> Optional[int]:
    """A count: None when it is none. Trainers say -1 for a total that nobody has set."""
    return int(number) if math.isfinite(number) and is_whole(int(number)) else None


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
