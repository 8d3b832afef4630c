"""TensorBoard's event files: a real one, torn ones, and a job that writes metrics lines beside them."""

import math
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.node.metrics import MetricsReader
from broker.node.tensorboard import EventFiles

# Written by torch.utils.tensorboard 2.13: seven steps of scalars, a histogram, a tensor with one number, a text.
REAL = Path(__file__).parent / "events" / "torch-2.13.tfevents.bin"
NAME = "events.out.tfevents.1796084434.node.15116.0"


def place(root: Path, data: bytes, folder: str = "runs/a") -> Path:
    (root / folder).mkdir(parents=True, exist_ok=True)
    path = root / folder / NAME
    path.write_bytes(data)
    return path


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def part(field: int, wire: int, data: bytes) -> bytes:
    return varint(field << 3 | wire) + (varint(len(data)) if wire == 2 else b"") + data


def record(step: int, tag: str, value: bytes) -> bytes:
    summary = part(1, 2, part(1, 2, tag.encode()) + value)
    event = part(1, 1, struct.pack("<d", 1.0)) + varint(2 << 3) + varint(step) + part(5, 2, summary)
    return struct.pack("<QI", len(event), 0) + event + b"\0" * 4


def loss(step: int, value: float) -> bytes:
    return record(step, "train/loss", part(2, 5, struct.pack("<f", value)))


def test_what_torch_writes_is_read(tmp_path: Path) -> None:
    events = EventFiles(tmp_path)
    place(tmp_path, REAL.read_bytes())
    events._looked_s = None
    found = events.read()
    assert [n["loss"] for n in found if "loss" in n][:5] == [2.75, 2.5, 2.25, 2.0, 1.75]
    assert math.isnan(found[-2]["loss"])
    assert found[-1] == {"step": 7.0, "acc": 0.125}
    assert {"step": 5.0, "eval/loss": 2.5} in found
    assert found[1] == {"step": 1.0, "epoch": pytest.approx(0.1)}
    assert events.read() == []


def test_a_reader_of_metrics_counts_their_readings(tmp_path: Path) -> None:
    reader = MetricsReader(tmp_path / "metrics.jsonl")
    events = EventFiles(tmp_path)
    reader.follow(events)
    place(tmp_path, REAL.read_bytes())
    events._looked_s = None
    note = reader.read()
    assert note is not None
    assert (note.step, note.epoch) == (7, 0.5)
    assert note.metrics == {"eval/loss": 2.5, "acc": 0.125}
    assert note.readings == {"loss": 6, "eval/loss": 1, "acc": 1}


def test_lines_of_the_jobs_own_go_before_them(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    reader = MetricsReader(file)
    place(tmp_path, b"")
    reader.follow(EventFiles(tmp_path))
    file.write_text('{"step": 3, "loss": 1.0}\n')
    place(tmp_path, loss(9, 5.0))
    note = reader.read()
    assert note is not None
    assert (note.step, note.loss) == (3, 1.0)
    place(tmp_path, loss(9, 5.0) + loss(10, 6.0))
    assert reader.read() is None


def test_what_an_earlier_copy_wrote_is_no_reading_of_this_one(tmp_path: Path) -> None:
    path = place(tmp_path, loss(1, math.nan) + loss(2, math.nan))
    events = EventFiles(tmp_path)
    assert events.read() == []
    with path.open("ab") as file:
        file.write(loss(3, 1.0))
    assert events.read() == [{"step": 3.0, "loss": 1.0}]


def test_a_record_that_is_still_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    whole = loss(1, 2.0) + loss(2, 1.5)
    path = place(tmp_path, b"")
    events = EventFiles(tmp_path)
    found = []
    for end in range(0, len(whole) + 1, 7):
        path.write_bytes(whole[:end])
        found += events.read()
    path.write_bytes(whole)
    assert found + events.read() == [{"step": 1.0, "loss": 2.0}, {"step": 2.0, "loss": 1.5}]


def test_new_files_are_found_in_a_while_and_only_where_a_job_writes(tmp_path: Path) -> None:
    now_s = 0.0
    events = EventFiles(tmp_path, lambda: now_s)
    for folder in ("runs/b", ".venv/lib", "venv/site-packages/x", "a/b/c/d/e/f/g/h"):
        place(tmp_path, loss(1, 1.0), folder)
    assert events.read() == []
    now_s = 16.0
    assert events.read() == [{"step": 1.0, "loss": 1.0}]


@pytest.mark.parametrize("name", ["train_loss", "Loss/train", "loss"])
def test_the_names_that_trainers_give_to_the_loss(tmp_path: Path, name: str) -> None:
    path = place(tmp_path, b"")
    events = EventFiles(tmp_path)
    path.write_bytes(record(1, name, part(2, 5, struct.pack("<f", 0.5))))
    assert events.read() == [{"step": 1.0, "loss": 0.5}]


def test_a_tensor_is_a_number_when_it_has_exactly_one(tmp_path: Path) -> None:
    path = place(tmp_path, b"")
    events = EventFiles(tmp_path)
    double = part(8, 2, varint(1 << 3) + varint(2) + part(4, 2, struct.pack("<d", 0.25)))
    several = part(8, 2, varint(1 << 3) + varint(1) + part(4, 2, struct.pack("<ff", 1.0, 2.0)))
    path.write_bytes(record(1, "several", several) + record(2, "one", double))
    assert events.read() == [{"step": 2.0, "one": 0.25}]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 900), st.integers(0, 40))
def test_damaged_files_are_passed_over(tmp_path_factory, junk: bytes, at: int, length: int) -> None:
    root = tmp_path_factory.mktemp("events")
    data = REAL.read_bytes()
    first = place(root, b"", "runs/junk")
    second = place(root, b"", "runs/cut")
    events = EventFiles(root)
    first.write_bytes(junk)
    second.write_bytes(data[:at] + junk[:20] + data[at + length :])
    for numbers in events.read():
        assert all(isinstance(value, float) for value in numbers.values())
    events.read()
    shutil.rmtree(root)
