"""Finds checkpoints in a directory that a trainer writes to, and says which are whole. No change to its code.

A *unit* is what belongs together: a folder with a step in its name, or the files that carry one step, or, where
nothing carries a step, all files as one. A unit goes

    PARTIAL -> SETTLING -> COMPLETE

PARTIAL while its files say that it cannot be whole; SETTLING when nothing is wrong with it but it was still
changing a moment ago; COMPLETE when its format proves it (after a second look that finds it unchanged), or when
it has been quiet for max(5 s, twice the last gap between writes). Files that a trainer rewrites in place look
whole between two writes: that is what the second look and `snapshot.py` are for.
"""

import os
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Tuple

from broker.node.formats import TRACKERS, Evidence, judge_file, judge_folder, read_trainer_state
from broker.node.lease import boot_s
from broker.wire.bounds import is_whole, whole_or_none

QUIET_S = 5.0
SET_ASIDE = ".set-aside"
# A folder named like Hugging Face's without its marker may be somebody's own format; after this it counts.
_OWN_FORMAT_QUIET_S = 60.0
# Writes further apart than this belong to two saves.
_ONE_SAVE_S = 60.0

_TEMPORARY = re.compile(r"^(\.(?!metadata$)|tmp[-_])|\.(tmp|part|partial|incomplete|swp)$|~$|\.tmp\.")
_NO_CHECKPOINT = re.compile(
    r"^(runs|logs?|wandb|tensorboard|tb|lightning_logs|mlruns)$|^events\.out\.tfevents\.|\.(log|csv|jsonl|out|err)$",
    re.I,
)
_STEP_WORD = re.compile(
    r"(?:step|iter|iteration|checkpoint|ckpt|ba|batch|update|epoch|ep)s?[-_=]?(\d+)", re.I
)
_STEP_TAIL = re.compile(r"(?:^|[-_])(\d+)$")
_RANK = re.compile(r"[-_]?rank[-_]?\d+|[-_]\d+[-_]of[-_]\d+|[-_]v\d+$", re.I)


class UnitState(Enum):
    """See the module."""

    PARTIAL = "partial"
    SETTLING = "settling"
    COMPLETE = "complete"


class Writer(Enum):
    """What is known of the process that writes: alive; ended by itself, so it wrote what it wanted; or killed."""

    ALIVE = "alive"
    ENDED = "ended"
    KILLED = "killed"


@dataclass(frozen=True)
class FileMark:
    """A file as one look saw it. Path is relative to the checkpoint directory."""

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Unit:
    """One checkpoint.

    Attributes:
        name: Folder or file name; ``*`` for files without a step.
        step: Training step, from the trainer's own state or the name. A name may count something that is no step:
            a date with its microseconds.
        files: All of it, sorted.
        in_place: Without a number: the trainer overwrites these files, so a hard link would not freeze them.
        number: What orders it among others: the step, or what the name counts, of any size.
    """

    name: str
    step: Optional[int]
    files: Tuple[FileMark, ...]
    state: UnitState
    in_place: bool = False
    number: Optional[int] = None

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(mark.size for mark in self.files)

    @property
    def mtime_ns(self) -> int:
        """Of the file written last."""
        return max((mark.mtime_ns for mark in self.files), default=0)

    @property
    def order(self) -> Tuple[int, int]:
        """Newer is greater: by number, then by time of writing."""
        return (-1 if self.number is None else self.number, self.mtime_ns)

    @property
    def top_names(self) -> Tuple[str, ...]:
        """Names directly under the checkpoint directory."""
        return tuple(sorted({mark.path.split("/", 1)[0] for mark in self.files}))


def step_in_name(name: str) -> Optional[int]:
    """What a name counts: ``checkpoint-100`` 100, ``epoch=1-step=400.ckpt`` 400, ``ep1-ba42-rank0.pt`` 42, ``model_7.pt`` 7, ``last.ckpt`` None."""
    stem = _RANK.sub("", re.sub(r"\.(pt|pth|ckpt|bin|tar|safetensors|pkl|npz)$", "", name))
    words = _STEP_WORD.findall(stem)
    if words:
        return int(words[-1])
    tail = _STEP_TAIL.search(stem)
    return int(tail.group(1)) if tail else None


def temporary(name: str) -> bool:
    """A name that trainers give to what is not finished, or not theirs."""
    return bool(_TEMPORARY.search(name))


def _walk(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not temporary(name))
        for name in sorted(names):
            if not temporary(name):
                yield Path(folder) / name


@dataclass
class _Memory:
    """What earlier looks at one unit saw."""

    files: Tuple[FileMark, ...]
    changed_s: float
    gap_s: float = 0.0
    looks: int = 1


class Scanner:
    """Looks at one checkpoint directory again and again. Not thread-safe.

    Args:
        root: The checkpoint directory; it need not exist yet.
        quiet_s: Least quiet time; shorter only where a rehearsal's clock runs faster.
        now_s: The node's clock.
    """

    def __init__(self, root: Path, quiet_s: float = QUIET_S, now_s: Callable[[], float] = boot_s) -> None:
        self.root = root
        self._quiet_s = quiet_s
        self._now_s = now_s
        self._memory: Dict[str, _Memory] = {}

    def scan(self, writer: Writer = Writer.ALIVE) -> List[Unit]:
        """All units, oldest first. Files that vanish while we look (a trainer prunes) are left out."""
        groups, loose = self._group()
        widest = max((len(paths) for _, paths in groups.values() if not paths[0].is_dir()), default=0)
        units = []
        for name, (step, paths) in groups.items():
            units.append(self._unit(name, step, paths, writer, widest))
        if loose and not units:
            units.append(self._unit("*", None, loose, writer, 0))
        seen = {unit.name for unit in units}
        self._memory = {name: memory for name, memory in self._memory.items() if name in seen}
        return sorted((unit for unit in units if unit.files), key=lambda unit: unit.order)

    def companions(self) -> List[Path]:
        """Whole files without a step beside units that have one (``last.ckpt``, ``config.json``); no trackers."""
        groups, loose = self._group()
        if not groups:
            return []
        files = [path for top in loose for path in _walk(top)]
        return [path for path in files if path.is_file() and judge_file(path) is not Evidence.BROKEN]

    def _group(self) -> Tuple[Dict[str, Tuple[int, List[Path]]], List[Path]]:
        groups: Dict[str, Tuple[int, List[Path]]] = {}
        loose: List[Path] = []
        by_step: Dict[int, str] = {}
        try:
            entries = sorted(os.listdir(self.root))
        except OSError:
            return {}, []
        for name in entries:
            if temporary(name) or _NO_CHECKPOINT.search(name) or name in TRACKERS:
                continue
            path, step = self.root / name, step_in_name(name)
            if step is None:
                loose.append(path)
            elif path.is_dir():
                groups[name] = (step, [path])
            elif not path.is_symlink():
                groups.setdefault(by_step.setdefault(step, name), (step, []))[1].append(path)
        return groups, loose

    def _unit(self, name: str, number: Optional[int], tops: List[Path], writer: Writer, widest: int) -> Unit:
        paths = [path for top in tops for path in _walk(top)]
        files = tuple(mark for mark in (self._mark(path) for path in paths) if mark is not None)
        if len(tops) == 1 and tops[0].is_dir() and number is not None:
            evidence = judge_folder(tops[0], self.root, number, paths)
            state = read_trainer_state(tops[0]) or {}
            if is_whole(state.get("global_step")):
                number = state["global_step"]
        else:
            evidence = _judge_together([judge_file(path) for path in paths])
            if 0 < len(tops) < widest and evidence is not Evidence.BROKEN:
                # Other steps have more files: this one's siblings are still to come.
                evidence = Evidence.UNKNOWN if writer is Writer.ALIVE else Evidence.BROKEN
        unit_state = self._state(name, files, evidence, writer)
        return Unit(name, whole_or_none(number), files, unit_state, in_place=number is None, number=number)

    def _mark(self, path: Path) -> Optional[FileMark]:
        try:
            found = path.stat()
        except OSError:
            return None
        return FileMark(path.relative_to(self.root).as_posix(), found.st_size, found.st_mtime_ns)

    def _state(self, name: str, files: Tuple[FileMark, ...], evidence: Evidence, writer: Writer) -> UnitState:
        now_s, memory = self._now_s(), self._memory.get(name)
        if memory is None:
            memory = self._memory[name] = _Memory(files, now_s)
        elif memory.files != files:
            gap_s = now_s - memory.changed_s
            # A pause of minutes is not a gap in one save but the time between two.
            memory = self._memory[name] = _Memory(files, now_s, gap_s if gap_s <= _ONE_SAVE_S else 0.0)
        else:
            memory.looks += 1
        still_s = now_s - memory.changed_s
        quiet = still_s >= max(self._quiet_s, 2 * memory.gap_s)
        if evidence is Evidence.BROKEN:
            foreign = (
                writer is Writer.ALIVE and still_s >= _OWN_FORMAT_QUIET_S and not _cut_short(self.root, files)
            )
            return UnitState.COMPLETE if foreign else UnitState.PARTIAL
        if evidence is Evidence.PROVEN:
            whole = memory.looks > 1 or writer is not Writer.ALIVE
        elif writer is Writer.KILLED and evidence is Evidence.UNKNOWN:
            # Its writer died in the middle of something: only what was quiet before is trusted.
            return UnitState.COMPLETE if quiet else UnitState.PARTIAL
        else:
            whole = quiet or writer is not Writer.ALIVE
        return UnitState.COMPLETE if whole else UnitState.SETTLING


def _judge_together(found: List[Evidence]) -> Evidence:
    """Several files as one: whole at once only when it is a single self-checking file."""
    if not found or Evidence.BROKEN in found:
        return Evidence.BROKEN
    if len(found) == 1:
        return found[0]
    return Evidence.MARKED if all(one is Evidence.PROVEN for one in found) else Evidence.UNKNOWN


def _cut_short(root: Path, files: Tuple[FileMark, ...]) -> bool:
    """Broken for a reason other than a missing Hugging Face marker."""
    names = {mark.path.rsplit("/", 1)[-1] for mark in files}
    if "checkpoint-is-incomplete.txt" in names or any(name.endswith(".distcp") for name in names):
        return True
    folder = files[0].path.split("/", 1)[0] if files else ""
    if not re.fullmatch(r"checkpoint-\d+", folder):
        return True
    return any(judge_file(root / mark.path) is Evidence.BROKEN for mark in files)
