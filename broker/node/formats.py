"""Is this checkpoint whole? What each training framework writes last, read from its sources.

    HF Trainer    checkpoint-N/      trainer_state.json, and no checkpoint-is-incomplete.txt
    DCP, titan    step-N/            .metadata (written aside and renamed, after every shard)
    DeepSpeed     global_stepN/      `latest` beside it names this one or a later one
    Megatron      iter_N/            `latest_checkpointed_iteration.txt` beside it says N or more
    verl          global_step_N/     the same tracker
    Accelerate    checkpoint_K/      random_states_* (late, not last)
    Lightning     *.ckpt/            meta.pt, for sharded ones; a single file appears whole by a rename
    torch.save    *.pt *.pth *.ckpt  a zip whose central directory, at its end, can be read
    safetensors   *.safetensors      the header's length and offsets fit the size of the file
    index         *.index.json       every shard it names is there

What none of these can tell is left to the quiet rule of `checkpoints.py`. Versions read: transformers 5.24,
lightning 2.6.6, deepspeed 0.19.8, torch 2.13, torchtitan 0.3.0, accelerate 1.15, composer 0.32.
"""

import json
import os
import re
import zipfile
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Iterable, List, Optional

MEGATRON_TRACKER = "latest_checkpointed_iteration.txt"
DEEPSPEED_TRACKER = "latest"
TRACKERS = (MEGATRON_TRACKER, DEEPSPEED_TRACKER)

_ZIPPED = (".pt", ".pth", ".ckpt", ".tar")
_WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".distcp")
_HF_FILES = re.compile(
    r"(model|adapter_model|pytorch_model)\b.*|optimizer\.(pt|bin)|scheduler\.pt|rng_state.*\.pth"
)
_MAX_SAFETENSORS_HEADER = 100 << 20
_ZIP_MAGIC = b"PK\x03\x04"


class Evidence(Enum):
    """What the files themselves say.

    PROVEN: written last, or self-checking: whole now. MARKED: the marker is there, but other ranks may still
    write. UNKNOWN: nothing to read; only quiet can tell. BROKEN: certainly not whole (yet).
    """

    PROVEN = "proven"
    MARKED = "marked"
    UNKNOWN = "unknown"
    BROKEN = "broken"


def judge_file(path: Path) -> Evidence:
    """One file that is a checkpoint, or part of one."""
    try:
        found = path.stat()
        if path.name.endswith(".index.json"):
            return Evidence.PROVEN if _shards_present(path) else Evidence.BROKEN
    except OSError:
        return Evidence.BROKEN
    return _judge_once(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=8192)
def _judge_once(path: Path, size: int, _mtime_ns: int) -> Evidence:
    """Looks come every second and checkpoints have thousands of files: each state of a file is read once."""
    try:
        if size == 0:
            return Evidence.BROKEN if path.suffix in _WEIGHTS else Evidence.UNKNOWN
        if path.suffix == ".safetensors":
            return Evidence.PROVEN if _safetensors_whole(path, size) else Evidence.BROKEN
        if path.suffix in _ZIPPED:
            with open(path, "rb") as file:
                zipped = file.read(4) == _ZIP_MAGIC
            if zipped:
                return Evidence.PROVEN if _zip_whole(path) else Evidence.BROKEN
    except OSError:
        return Evidence.BROKEN
    return Evidence.UNKNOWN


def judge_folder(folder: Path, root: Path, step: Optional[int], files: Iterable[Path]) -> Evidence:
    """A folder that is a checkpoint.

    Args:
        folder: Of the checkpoint.
        root: The checkpoint directory, where trackers lie.
        step: From the folder's name.
        files: Everything below `folder`, temporary names left out.
    """
    listed = list(files)
    names = {path.name for path in listed}
    if not listed or "checkpoint-is-incomplete.txt" in names:
        return Evidence.BROKEN
    torn = any(judge_file(path) is Evidence.BROKEN for path in listed)
    tracked = _by_tracker(folder, root, step)
    if tracked is not None:
        return Evidence.BROKEN if torn else tracked
    if (folder / ".metadata").exists():
        return Evidence.PROVEN
    if any(name.endswith(".distcp") for name in names):
        return Evidence.BROKEN
    if "trainer_state.json" in names:
        return Evidence.MARKED if read_trainer_state(folder) is not None else Evidence.BROKEN
    if torn:
        return Evidence.BROKEN
    if re.fullmatch(r"checkpoint-\d+", folder.name) and any(_HF_FILES.fullmatch(name) for name in names):
        return Evidence.BROKEN
    if any(name.startswith("random_states_") for name in names):
        return Evidence.MARKED
    if folder.suffix == ".ckpt":
        return Evidence.MARKED if names & {"meta.pt", "latest"} else Evidence.BROKEN
    return Evidence.UNKNOWN


def read_trainer_state(folder: Path) -> Optional[dict]:  # type: ignore[type-arg]
    """HF's ``trainer_state.json``; None when there is none, or it is cut short."""
    try:
        document = json.loads((folder / "trainer_state.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def tracked_step(root: Path, tracker: str) -> Optional[int]:
    """The step that a tracker file points to; None when it is missing, empty, or free text without a number."""
    try:
        found = re.search(r"(\d+)\s*$", (root / tracker).read_text())
        return int(found.group(1)) if found else None
    except (OSError, ValueError):
        return None


def tracker_text(tracker: str, folder: str, step: int) -> str:
    """What that tracker says when it points to a folder."""
    return folder if tracker == DEEPSPEED_TRACKER else str(step)


def follows_tracker(folder_name: str) -> Optional[str]:
    """Which tracker belongs to a folder of that name, or None."""
    if re.fullmatch(r"iter_\d+|global_step_\d+", folder_name):
        return MEGATRON_TRACKER
    if re.fullmatch(r"global_step\d+", folder_name):
        return DEEPSPEED_TRACKER
    return None


def _by_tracker(folder: Path, root: Path, step: Optional[int]) -> Optional[Evidence]:
    """The tracker's word; None where there is no usable one: it is opened in place, so a kill can leave it empty."""
    tracker = follows_tracker(folder.name)
    if tracker is None or step is None:
        return None
    pointed = tracked_step(root, tracker)
    if pointed is None:
        return None
    return Evidence.PROVEN if step <= pointed else Evidence.BROKEN


def _zip_whole(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path):
            return True
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def _safetensors_whole(path: Path, size: int) -> bool:
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, _MAX_SAFETENSORS_HEADER):
            return False
        try:
            header = json.loads(file.read(length))
            ends: List[int] = [
                entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"
            ]
            return os.path.getsize(path) == 8 + length + max(ends, default=0)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            return False


def _shards_present(index: Path) -> bool:
    try:
        shards = set(json.loads(index.read_bytes())["weight_map"].values())
        return all((index.parent / shard).is_file() for shard in shards)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
