"""Layouts of the training frameworks, whole and half-written; what is set aside; frozen copies."""

import json
import os
import struct
import zipfile
from pathlib import Path

import pytest

from broker.node.checkpoints import Scanner, Unit, UnitState, Writer, step_in_name, temporary
from broker.node.set_aside import clear_the_way, newest_whole, point_trackers, resume_path
from broker.node.snapshot import Changed, Snapshot

COMPLETE, SETTLING, PARTIAL = UnitState.COMPLETE, UnitState.SETTLING, UnitState.PARTIAL


class Trainer:
    """Writes checkpoints the way trainers do, on a clock of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now_s = 1000.0
        self.scanner = Scanner(root, now_s=lambda: self.now_s)

    def write(self, path: str, data: bytes | str = b"x") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)
        return file

    def zipped(self, path: str, cut: bool = False) -> Path:
        file = self.write(path, b"")
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("data.pkl", os.urandom(200))
        if cut:
            file.write_bytes(file.read_bytes()[:-30])
        return file

    def safetensors(self, path: str, missing: int = 0) -> Path:
        header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
        return self.write(path, struct.pack("<Q", len(header)) + header + b"\0" * (16 - missing))

    def states(self, writer: Writer = Writer.ALIVE) -> dict[str, UnitState]:
        return {unit.name: unit.state for unit in self.scanner.scan(writer)}

    def after(self, seconds: float, writer: Writer = Writer.ALIVE) -> dict[str, UnitState]:
        self.states(writer)
        self.now_s += seconds
        return self.states(writer)


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    return Trainer(tmp_path)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-100", 100),
        ("epoch=1-step=400.ckpt", 400),
        ("epoch=1-step=400-v1.ckpt", 400),
        ("iter_0000050", 50),
        ("global_step7", 7),
        ("global_step_30", 30),
        ("ep1-ba42-rank0.pt", 42),
        ("hpc_ckpt_2.ckpt", 2),
        ("step-10", 10),
        ("model_7.pt", 7),
        ("100", 100),
        ("last.ckpt", None),
        ("resnet50.pt", None),
        ("model-00001-of-00004.safetensors", None),
    ],
)
def test_step_in_name(name: str, step: int | None) -> None:
    assert step_in_name(name) == step


def test_temporary_names() -> None:
    for name in (".x", "model.pt.tmp", "a.part", "tmp-checkpoint-5", ".metadata.tmp", "x~"):
        assert temporary(name), name
    for name in (".metadata", "checkpoint-5", "model.pt"):
        assert not temporary(name), name


def test_hugging_face(trainer: Trainer) -> None:
    for step in (100, 200, 300):
        trainer.safetensors(f"checkpoint-{step}/model.safetensors")
        trainer.zipped(f"checkpoint-{step}/optimizer.pt")
    trainer.write("checkpoint-100/trainer_state.json", '{"global_step": 100}')
    trainer.write("checkpoint-300/trainer_state.json", '{"global_step": 300}')
    trainer.write("checkpoint-300/checkpoint-is-incomplete.txt")
    assert trainer.states()["checkpoint-100"] is SETTLING, "other ranks may still write"
    assert trainer.after(6) == {
        "checkpoint-100": COMPLETE,
        "checkpoint-200": PARTIAL,
        "checkpoint-300": PARTIAL,
    }


def test_somebody_s_own_checkpoint_n_counts_once_it_has_been_quiet_for_long(trainer: Trainer) -> None:
    trainer.safetensors("checkpoint-5/model.safetensors")
    assert trainer.after(30) == {"checkpoint-5": PARTIAL}
    assert trainer.after(40) == {"checkpoint-5": COMPLETE}


def test_dcp(trainer: Trainer) -> None:
    for step in (10, 20):
        trainer.write(f"step-{step}/__0_0.distcp")
    trainer.write("step-10/.metadata")
    trainer.write("step-20/.metadata.tmp")
    assert trainer.after(0.1) == {"step-10": COMPLETE, "step-20": PARTIAL}
    assert trainer.after(600)["step-20"] is PARTIAL


def test_megatron_and_verl_follow_their_tracker(trainer: Trainer) -> None:
    for folder in ("iter_0000050", "iter_0000060"):
        trainer.write(f"{folder}/common.pt", b"old pickle")
    trainer.write("latest_checkpointed_iteration.txt", "50")
    assert trainer.after(60) == {"iter_0000050": COMPLETE, "iter_0000060": PARTIAL}


def test_deepspeed_and_its_empty_tracker(trainer: Trainer) -> None:
    trainer.zipped("global_step7/mp_rank_00_model_states.pt")
    trainer.zipped("global_step9/mp_rank_00_model_states.pt", cut=True)
    trainer.write("latest", "global_step7")
    assert trainer.after(0.1) == {"global_step7": COMPLETE, "global_step9": PARTIAL}
    trainer.write("latest", "")
    assert trainer.after(0.1, Writer.ENDED) == {"global_step7": COMPLETE, "global_step9": PARTIAL}


def test_lightning_and_torch_files_check_themselves(trainer: Trainer) -> None:
    trainer.zipped("epoch=0-step=400.ckpt")
    trainer.zipped("epoch=1-step=800.ckpt", cut=True)
    assert trainer.states() == {"epoch=0-step=400.ckpt": SETTLING, "epoch=1-step=800.ckpt": PARTIAL}
    assert trainer.after(0.1)["epoch=0-step=400.ckpt"] is COMPLETE, "a second look, and no waiting"


def test_safetensors_check_themselves(trainer: Trainer) -> None:
    trainer.safetensors("step_1.safetensors")
    trainer.safetensors("step_2.safetensors", missing=4)
    assert trainer.after(0.1) == {"step_1.safetensors": COMPLETE, "step_2.safetensors": PARTIAL}


def test_an_index_needs_all_its_shards(trainer: Trainer) -> None:
    trainer.safetensors("step_1/model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    trainer.write("step_1/model.safetensors.index.json", json.dumps(index))
    assert trainer.after(90) == {"step_1": PARTIAL}
    trainer.safetensors("step_1/model-00002-of-00002.safetensors")
    assert trainer.after(60) == {"step_1": COMPLETE}


def test_what_nobody_knows_must_be_quiet_for_twice_the_last_gap(trainer: Trainer) -> None:
    file = trainer.write("step_1/weights.bin", b"1")
    trainer.states()
    trainer.now_s += 20
    file.write_bytes(b"12")  # so 20 seconds lay between two writes
    assert trainer.states() == {"step_1": SETTLING}
    trainer.now_s += 30
    assert trainer.states() == {"step_1": SETTLING}
    trainer.now_s += 11
    assert trainer.states() == {"step_1": COMPLETE}


def test_after_a_kill_only_what_was_quiet_before_is_trusted(trainer: Trainer) -> None:
    trainer.write("step_1/weights.bin")
    trainer.after(10)
    trainer.write("step_2/weights.bin")
    trainer.states()
    trainer.now_s += 1
    assert trainer.states(Writer.KILLED) == {"step_1": COMPLETE, "step_2": PARTIAL}
    assert trainer.states(Writer.ENDED) == {"step_1": COMPLETE, "step_2": COMPLETE}


def test_files_of_one_step_are_one_checkpoint(trainer: Trainer) -> None:
    for name in ("model_step1.pt", "optim_step1.pt", "model_step2.pt"):
        trainer.zipped(name)
    states = trainer.after(1)
    assert states["model_step2.pt"] is SETTLING, "its optimizer is still to come"
    units = trainer.scanner.scan(Writer.ENDED)
    assert [unit.top_names for unit in units] == [("model_step1.pt", "optim_step1.pt"), ("model_step2.pt",)]
    assert units[1].state is PARTIAL


def test_a_date_in_a_name_orders_checkpoints_and_is_no_step(trainer: Trainer) -> None:
    for second in ("132243", "132244"):
        trainer.zipped(f"ckpt-20261130172859{second}.pt")
    trainer.after(10)
    older, newer = trainer.scanner.scan()
    assert (newer.name, newer.step, newer.state) == ("ckpt-20261130172859132244.pt", None, COMPLETE)
    assert older.order < newer.order
    assert not newer.in_place, "each save has a file of its own"
    assert len(newer.files) == 1


@pytest.mark.parametrize("told", [10**30, -1, True, "7"])
def test_a_global_step_that_is_none_leaves_the_names_step(trainer: Trainer, told: object) -> None:
    trainer.write("checkpoint-7/trainer_state.json", json.dumps({"global_step": told}))
    (unit,) = trainer.scanner.scan(Writer.ENDED)
    assert unit.step == 7


@pytest.mark.parametrize(
    "nonsense", ["[" * 100_000, "7" * 5000, '{"weight_map": {"a": 5}}', '{"a": 1}', "\x00"]
)
def test_files_that_no_reader_can_take_are_looked_at_and_left(trainer: Trainer, nonsense: str) -> None:
    trainer.write("checkpoint-7/trainer_state.json", nonsense)
    trainer.write("global_step_30/model.index.json", nonsense)
    trainer.write("latest_checkpointed_iteration.txt", nonsense)
    trainer.write("step-3.safetensors", len(nonsense).to_bytes(8, "little") + nonsense.encode())
    assert COMPLETE not in trainer.after(1).values()
    assert len(trainer.scanner.scan()) == 3


def test_files_without_a_step_are_one_checkpoint_and_logs_are_none(trainer: Trainer) -> None:
    trainer.zipped("state.pt")
    trainer.write("config.json", "{}")
    trainer.write("runs/events.out.tfevents.1")
    trainer.write("train.log")
    trainer.after(10)
    (unit,) = trainer.scanner.scan()
    assert unit.state is COMPLETE
    assert unit.in_place
    assert [mark.path for mark in unit.files] == ["config.json", "state.pt"]
    trainer.zipped("step-5.pt")
    assert [unit.name for unit in trainer.scanner.scan()] == ["step-5.pt"]
    assert {path.name for path in trainer.scanner.companions()} == {"config.json", "state.pt"}


def test_before_a_start_half_written_checkpoints_are_set_aside(trainer: Trainer) -> None:
    trainer.safetensors("checkpoint-100/model.safetensors")
    trainer.write("checkpoint-100/trainer_state.json", '{"global_step": 100}')
    trainer.safetensors("checkpoint-200/model.safetensors")
    assert clear_the_way(trainer.root, head_seq=0, head_step=None) == ["checkpoint-200"]
    unit = newest_whole(trainer.root)
    assert unit is not None
    assert resume_path(trainer.root, unit) == trainer.root / "checkpoint-100"


def test_before_a_start_what_head_does_not_know_is_set_aside(trainer: Trainer) -> None:
    for step in (100, 200):
        trainer.zipped(f"step-{step}.pt")
    assert clear_the_way(trainer.root, head_seq=3, head_step=100) == ["step-200.pt"]
    assert (trainer.root / ".set-aside/step-200.pt").exists()


@pytest.mark.parametrize("broken", ["", "global_step9", "iter_9"])
def test_a_tracker_that_points_at_nothing_is_rewritten(trainer: Trainer, broken: str) -> None:
    trainer.zipped("global_step7/mp_rank_00_model_states.pt")
    trainer.write("latest", broken)
    if broken == "global_step9":
        trainer.zipped("global_step9/mp_rank_00_model_states.pt", cut=True)
        clear_the_way(trainer.root, 0, None)
    assert point_trackers(trainer.root) == ["latest"]
    assert (trainer.root / "latest").read_text() == "global_step7"
    assert point_trackers(trainer.root) == []


def whole(trainer: Trainer) -> Unit:
    trainer.after(10)
    return trainer.scanner.scan()[-1]


def test_a_frozen_copy_survives_pruning_and_points_its_tracker_at_itself(
    trainer: Trainer, tmp_path: Path
) -> None:
    trainer.zipped("global_step7/mp_rank_00_model_states.pt")
    trainer.write("latest", "global_step9")  # already on its way to the next one
    unit = whole(trainer)
    snapshot = Snapshot(unit, trainer.root, [], tmp_path / ".frozen")
    os.unlink(trainer.root / "global_step7/mp_rank_00_model_states.pt")
    assert zipfile.is_zipfile(snapshot.files["global_step7/mp_rank_00_model_states.pt"])
    assert snapshot.files["latest"].read_text() == "global_step7"
    snapshot.discard()
    assert not (tmp_path / ".frozen").exists()


def test_a_frozen_copy_of_what_changes_meanwhile_is_refused(trainer: Trainer, tmp_path: Path) -> None:
    file = trainer.zipped("state.pt")
    unit = whole(trainer)
    frozen = Snapshot(unit, trainer.root, [], tmp_path / ".frozen").files["state.pt"]
    before = frozen.read_bytes()
    file.write_bytes(b"rewritten in place")
    assert frozen.read_bytes() == before, "files without a step are copied, not linked"
    with pytest.raises(Changed):
        Snapshot(unit, trainer.root, [], tmp_path / ".frozen")
