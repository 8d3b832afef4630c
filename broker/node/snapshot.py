"""A frozen copy of a checkpoint, so that the trainer's own pruning and rewriting cannot reach the upload.

Hard links cost nothing and survive pruning. They do not survive rewriting in place (the same inode is written
again), so files without a step in their name are copied; either way the files must look the same afterwards.
"""

import os
import shutil
from pathlib import Path
from typing import Dict, Iterable, List

from broker.node.checkpoints import FileMark, Unit
from broker.node.formats import TRACKERS, follows_tracker, tracker_text

# Files beside a checkpoint are copied up to this size, since they are rewritten in place; a larger one (a second
# name of the weights, mostly) is linked, and the commit is postponed if it changes meanwhile.
_COPY_BYTES = 256 << 20


class Changed(Exception):
    """The trainer wrote while we looked; the next look finds out what came of it."""


class Snapshot:
    """Frozen files of one unit, with the trackers that point at it and the small files beside it.

    Attributes:
        unit: What was frozen.
        files: Path relative to the checkpoint directory, to the frozen file.
    """

    def __init__(self, unit: Unit, root: Path, companions: Iterable[Path], into: Path) -> None:
        """Freeze.

        Args:
            into: A folder for this snapshot alone, on the same file system where links shall work.

        Raises:
            Changed: a file changed or vanished meanwhile.
        """
        self.unit = unit
        self.files: Dict[str, Path] = {}
        self._sources: List[FileMark] = []
        self._root = root
        self._into = into
        shutil.rmtree(into, ignore_errors=True)
        try:
            for mark in unit.files:
                self._freeze(mark.path, copy=unit.in_place)
            for path in companions:
                large = path.is_symlink() or path.stat().st_size > _COPY_BYTES
                self._freeze(path.relative_to(root).as_posix(), copy=not large)
            self._write_trackers()
        except FileNotFoundError as error:
            raise Changed(str(error)) from error
        self._sources = list(unit.files)
        self.verify()

    def verify(self) -> None:
        """Compare the frozen files with what the unit looked like when it was judged.

        Raises:
            Changed: a hard-linked file was rewritten in place, or a copy was made of a moving file.
        """
        for mark in self._sources:
            found = self.files[mark.path].stat()
            if (found.st_size, found.st_mtime_ns) != (mark.size, mark.mtime_ns):
                raise Changed(f"{mark.path} was rewritten")
            if self.unit.in_place:
                now = (self._root / mark.path).stat()
                if (now.st_size, now.st_mtime_ns) != (mark.size, mark.mtime_ns):
                    raise Changed(f"{mark.path} was rewritten while it was copied")
        self._sources = [] if self.unit.in_place else self._sources

    def discard(self) -> None:
        """Delete the frozen files."""
        shutil.rmtree(self._into, ignore_errors=True)

    def _freeze(self, path: str, copy: bool) -> None:
        source, target = (self._root / path).resolve(), self._into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not copy:
            try:
                os.link(source, target)
            except FileNotFoundError:
                raise
            except OSError:  # another file system, or one without links
                copy = True
        if copy:
            shutil.copy2(source, target)
        self.files[path] = target

    def _write_trackers(self) -> None:
        """A tracker beside may point at a newer unit, half-written as yet: ours points at ours."""
        for tracker in TRACKERS:
            if not (self._root / tracker).is_file():
                continue
            target = self._into / tracker
            if follows_tracker(self.unit.name) == tracker and self.unit.step is not None:
                target.write_text(tracker_text(tracker, self.unit.name, self.unit.step))
            elif tracker in self.unit.top_names or follows_tracker(self.unit.name) is None:
                shutil.copy2(self._root / tracker, target)
            else:
                continue
            self.files[tracker] = target
