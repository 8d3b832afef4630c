"""The job's files: fetched, compared with their hash, unpacked without letting an archive write outside its folder."""

import hashlib
import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import Callable

_MODE = 0o755
_BLOCK = 1 << 20


class BadSource(Exception):
    """The archive is not what was submitted, or wants to write where it may not."""


def unpack_source(sha256: str, fetch: Callable[[str, Path], None], into: Path) -> None:
    """Replace `into` by the content of the tarball with that hash.

    Args:
        fetch: Downloads a hash into a file.

    Raises:
        BadSource: wrong hash, no tarball, or a member that leaves the folder.
    """
    archive = into.with_name(f".{into.name}.tar.gz")
    fresh = into.with_name(f".{into.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        fetch(sha256, archive)
        found = _hash(archive)
        if found != sha256:
            raise BadSource(f"the source has hash {found[:12]}, expected {sha256[:12]}")
        fresh.mkdir(parents=True)
        try:
            with tarfile.open(archive, "r:*") as tar:
                for member in tar:
                    _unpack(tar, member, fresh)
        except (tarfile.TarError, EOFError, OSError) as error:
            raise BadSource(f"the source cannot be unpacked: {error}") from error
        shutil.rmtree(into, ignore_errors=True)
        fresh.replace(into)
    finally:
        archive.unlink() if archive.exists() else None
        shutil.rmtree(fresh, ignore_errors=True)


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while True:
            block = file.read(_BLOCK)
            if not block:
                return digest.hexdigest()
            digest.update(block)


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    """One member. Python's own ``filter="data"`` is younger than the oldest Python that we run on."""
    _stay_inside(member.name, member.name)
    if member.issym():
        _stay_inside(str(PurePosixPath(member.name).parent / member.linkname), member.name)
    elif member.islnk():
        _stay_inside(member.linkname, member.name)
    elif not (member.isfile() or member.isdir()):
        raise BadSource(f"{member.name}: devices and pipes have no place in a job's source")
    # A link unpacked earlier must not lead a later member outside.
    if not _within(root / PurePosixPath(member.name).parent, root):
        raise BadSource(f"{member.name}: lies behind a link that leaves the folder")
    if member.islnk() and not _within(root / member.linkname, root):
        raise BadSource(f"{member.name}: links to a file outside the folder")
    member.mode = (member.mode | (0o700 if member.isdir() else 0o600)) & _MODE
    member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
    tar.extract(member, root, numeric_owner=True)


def _stay_inside(path: str, name: str) -> None:
    depth = 0
    if path.startswith("/"):
        raise BadSource(f"{name}: absolute paths have no place in a job's source")
    for part in path.split("/"):
        depth += {"": 0, ".": 0, "..": -1}.get(part, 1)
        if depth < 0:
            raise BadSource(f"{name}: leaves its folder")


def _within(path: Path, root: Path) -> bool:
    real, base = os.path.realpath(path), os.path.realpath(root)
    return real == base or real.startswith(base + os.sep)
