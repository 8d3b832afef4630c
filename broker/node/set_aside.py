"""Clears the way before a start. Trainers resume from what they find: Hugging Face's takes the highest
``checkpoint-N`` by name, whole or not, and dies of a half-written one; DeepSpeed dies of an empty ``latest``.

So before every start half-written units go to ``.set-aside/``, units that HEAD does not know go there too (the
store decides where a job resumes, not what one node happened to write), and a tracker that points at nothing is
made to point at the newest whole unit.
"""

import shutil
from pathlib import Path
from typing import List, Optional

from broker.node.checkpoints import SET_ASIDE, Scanner, Unit, UnitState, Writer
from broker.node.config import write_atomically
from broker.node.formats import TRACKERS, follows_tracker, tracked_step, tracker_text


def clear_the_way(root: Path, head_seq: int, head_step: Optional[int]) -> List[str]:
    """Before a restore: move what must not be resumed from. No process may be writing there.

    Args:
        head_seq: Of the commit about to be restored; 0 when the job has none, and then whole units stay: they
            came with the job's source.
        head_step: Of the same commit.

    Returns:
        Names that were moved, for the log.
    """
    moved: List[str] = []
    for unit in Scanner(root).scan(Writer.ENDED):
        if unit.state is not UnitState.COMPLETE or (head_seq > 0 and _beyond(unit, head_step)):
            moved.extend(name for name in unit.top_names if _move(root, name))
    return moved


def point_trackers(root: Path) -> List[str]:
    """After a restore: rewrite trackers that are empty or point at nothing; returns those rewritten or removed."""
    whole = [unit for unit in Scanner(root).scan(Writer.ENDED) if unit.state is UnitState.COMPLETE]
    changed = []
    for tracker in TRACKERS:
        if not (root / tracker).is_file():
            continue
        followers = [
            unit for unit in whole if follows_tracker(unit.name) == tracker and unit.step is not None
        ]
        pointed = tracked_step(root, tracker)
        if any(unit.step == pointed for unit in followers):
            continue
        if not followers and pointed is not None and (root / _text(root, tracker)).exists():
            continue  # a folder with a name of its own (DeepSpeed's tags are free text)
        if followers:
            newest = followers[-1]
            assert newest.step is not None
            write_atomically(
                root / tracker, tracker_text(tracker, newest.name, newest.step).encode(), mode=0o644
            )
        else:
            (root / tracker).unlink()
        changed.append(tracker)
    return changed


def newest_whole(root: Path) -> Optional[Unit]:
    """Where the job should resume, or None. No process may be writing there."""
    whole = [unit for unit in Scanner(root).scan(Writer.ENDED) if unit.state is UnitState.COMPLETE]
    return whole[-1] if whole else None


def resume_path(root: Path, unit: Unit) -> Path:
    """``$BROKER_RESUME_FROM``: the folder or file of a unit; the checkpoint directory when it has several."""
    return root / unit.top_names[0] if len(unit.top_names) == 1 else root


def _beyond(unit: Unit, head_step: Optional[int]) -> bool:
    if unit.step is None or head_step is None:
        return True
    return unit.step > head_step


def _move(root: Path, name: str) -> bool:
    target = root / SET_ASIDE / name
    target.parent.mkdir(exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    try:
        (root / name).replace(target)
    except FileNotFoundError:
        return False
    return True


def _text(root: Path, tracker: str) -> str:
    return (root / tracker).read_text().strip()
