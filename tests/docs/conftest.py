"""A clone of the repository as a reader has it."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

# Copied, and older than the virtual environment: `make setup` must find nothing to do. Installing from a folder that
# is gone after the test would break the environment of everybody else.
_COPIED = ("Makefile", "pyproject.toml", "requirements.lock")
_LEFT_OUT = ("build", "dist")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The repository with an empty `build/`: links to its files, so that it costs nothing."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for entry in ROOT.iterdir():
        if entry.name in _COPIED:
            shutil.copy(entry, folder)
            os.utime(folder / entry.name, (0, 0))
        elif entry.name not in _LEFT_OUT and not entry.name.startswith("."):
            (folder / entry.name).symlink_to(entry)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    return folder


@pytest.fixture
def reader(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who has just opened a shell."""
    kept = ("PATH", "LANG", "LC_ALL", "TMPDIR", "USER", "LOGNAME")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"HOME": str(tmp_path)}
