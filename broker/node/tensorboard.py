"""Scalars from TensorBoard's event files, for a job that writes no metrics lines: most trainers write these anyway.

An event file is a row of records: the length of the data (8 bytes, little endian), its checksum (4), the data, its checksum
(4). The data is a protobuf `Event`: `step` is field 2, `summary` field 5; a summary has its values in field 1; a value has its
`tag` in field 1 and a number in field 2 (`simple_value`) or 8 (`tensor`). From record_writer.py, event.proto, summary.proto and
tensor.proto of TensorBoard (github.com/tensorflow/tensorboard, tensorboard/summary and tensorboard/compat/proto).

Checksums are not looked at: a record that is cut short is read again when it has grown, and one that makes no sense ends the
reading of its file. What lay in a file before the job started was told by an earlier copy, or restored with a checkpoint.
"""

import os
import struct
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Tuple, Union

from broker.node.lease import boot_s
from broker.wire.bounds import legible

_MARK = ".tfevents."
_LOOK_EVERY_S = 15.0
_MOST_FILES = 50
_MOST_FOLDERS = 2000
_DEEPEST = 6
_NOT_THERE = {"site-packages", "node_modules", "venv", "__pycache__"}
_MOST_EVENTS = 5000
_MOST_NAME = 200
# A scalar has some dozen bytes; images, graphs and histograms are passed over unread.
_MOST_DATA = 64 << 10
_SANE_DATA = 1 << 30

_HEAD = struct.Struct("<QI")
_FOOT = 4
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_DT_FLOAT, _DT_DOUBLE = 1, 2

# What trainers call the two numbers that we know by name.
_OURS = {
    "train/loss": "loss",
    "train_loss": "loss",
    "loss/train": "loss",
    "Loss/train": "loss",
    "train/epoch": "epoch",
}

Value = Union[int, bytes]


class EventFiles:
    """Follows every event file below a folder by offset."""

    def __init__(self, root: Path, now_s: Callable[[], float] = boot_s) -> None:
        self._root = root
        self._now_s = now_s
        self._looked_s: Optional[float] = None
        self._offsets: Dict[Path, Optional[int]] = {}
        self._look()
        for path in self._offsets:
            self._offsets[path] = _size(path)

    def read(self) -> List[Dict[str, float]]:
        """What was written since the last call: ``step`` and one or more tags each, in the order of each file."""
        if self._looked_s is None or self._now_s() - self._looked_s >= _LOOK_EVERY_S:
            self._look()
        found: List[Dict[str, float]] = []
        for path, offset in self._offsets.items():
            if offset is not None:
                self._offsets[path] = _follow(path, offset, found)
        return found

    def _look(self) -> None:
        """Find files that are new. Links are not followed, and a huge tree is looked at in part."""
        self._looked_s = self._now_s()
        base = len(self._root.parts)
        for number, (folder, folders, files) in enumerate(os.walk(self._root)):
            if number >= _MOST_FOLDERS:
                return
            deep = len(Path(folder).parts) - base >= _DEEPEST
            folders[:] = [] if deep else [n for n in folders if not n.startswith(".") and n not in _NOT_THERE]
            for name in files:
                if _MARK in name and len(self._offsets) < _MOST_FILES:
                    self._offsets.setdefault(Path(folder, name), 0)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _follow(path: Path, offset: int, found: List[Dict[str, float]]) -> Optional[int]:
    """Read whole records from `offset` on; where to go on, or None when the file is none of these."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            while offset + _HEAD.size + _FOOT <= size:
                file.seek(offset)
                length, _ = _HEAD.unpack(file.read(_HEAD.size))
                if length > _SANE_DATA:
                    return None
                behind = offset + _HEAD.size + length + _FOOT
                if behind > size:
                    return offset  # still being written
                if length <= _MOST_DATA and (numbers := _numbers(file.read(length))):
                    found.append(numbers)
                offset = behind
                if len(found) >= _MOST_EVENTS:
                    return offset
            return offset
    except OSError:
        return offset
    except (ValueError, struct.error, IndexError):
        return None


def _numbers(event: bytes) -> Dict[str, float]:
    """The scalars of an event under their names, with its step; empty when it has none."""
    step, summary = 0, b""
    for field, value in _fields(event):
        if field == 2 and isinstance(value, int):
            step = value
        elif field == 5 and isinstance(value, bytes):
            summary = value
    numbers = {}
    for field, value in _fields(summary):
        if field == 1 and isinstance(value, bytes):
            tag, number = _scalar(value)
            if tag and number is not None:
                numbers[_OURS.get(tag, tag)] = number
    return {"step": float(step), **numbers} if numbers else {}


def _scalar(value: bytes) -> Tuple[str, Optional[float]]:
    tag, number = "", None
    for field, part in _fields(value):
        if field == 1 and isinstance(part, bytes):
            tag = legible(part.decode("utf-8", "replace"), _MOST_NAME)
        elif field == 2 and isinstance(part, bytes) and len(part) == 4:
            number = _FLOAT.unpack(part)[0]
        elif field == 8 and isinstance(part, bytes):
            number = _tensor(part)
    return tag, number


def _tensor(tensor: bytes) -> Optional[float]:
    """The number of a tensor that has exactly one: raw bytes in field 4, or a float in 5, or a double in 6."""
    kind, raw = 0, b""
    for field, part in _fields(tensor):
        if field == 1 and isinstance(part, int):
            kind = part
        elif field in (4, 5, 6) and isinstance(part, bytes):
            raw = part
    if kind == _DT_FLOAT and len(raw) == 4:
        return float(_FLOAT.unpack(raw)[0])
    if kind == _DT_DOUBLE and len(raw) == 8:
        return float(_DOUBLE.unpack(raw)[0])
    return None


def _fields(message: bytes) -> Iterator[Tuple[int, Value]]:
    """Number and value of each field of a protobuf message; fixed ones as their bytes.

    Raises:
        ValueError, IndexError: it is none.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        wire = key & 7
        if wire == 0:
            number, at = _varint(message, at)
            yield key >> 3, number
            continue
        if wire == 2:
            length, at = _varint(message, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"no wire type {wire}")
        if length > end - at:
            raise ValueError("a field that is longer than its message")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> Tuple[int, int]:
    number = shift = 0
    while shift < 70:
        byte = message[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    raise ValueError("a number of more than ten bytes")
