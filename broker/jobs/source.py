"""The job's files as a tarball named by its hash. The same files give the same tarball, wherever it is built."""

import gzip
import hashlib
import os
import re
import shlex
import stat
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import dropwhile, pairwise
from pathlib import Path, PurePath
from typing import IO

from broker.core.errors import SpecError
from broker.core.size import GIB, format_size

ALWAYS_EXCLUDED = (".git/", ".venv/", "__pycache__/")
CAP_BYTES = GIB

_RUNNERS = frozenset({"python", "python3", "bash", "sh", "torchrun", "accelerate", "deepspeed"})
_OPERATORS = frozenset({"&&", "||", "|", ";", "&", ">", "<"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
_FETCHES = re.compile(r"\b(git clone|curl|wget|tar|unzip|cd|pushd)\b")


@dataclass(frozen=True)
class SourceRequest:
    """What a job file says of its source.

    Attributes:
        folder: Exists.
        exclude: Patterns as in the file: ``data/``, ``*.ckpt``, ``docs/*.png``.
    """

    folder: Path
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tarball:
    """A gzipped tarball, open for reading from its start; closing it removes it.

    Attributes:
        sha256: Of its bytes.
    """

    file: IO[bytes]
    sha256: str
    size_bytes: int


def source_files(request: SourceRequest) -> list[str]:
    """Paths below the folder, sorted, with ``/``: files and links, without what is excluded.

    Raises:
        SpecError: something that cannot travel: a link out of the folder, a socket.
    """
    return sorted(_walk(request.folder, "", (*ALWAYS_EXCLUDED, *request.exclude)))


def build_tarball(request: SourceRequest, cap_bytes: int = CAP_BYTES) -> Tarball:
    """Pack the source.

    Raises:
        SpecError: something cannot travel, or all of it is larger than `cap_bytes` before compression.
    """
    names = source_files(request)
    _check_size(request.folder, names, cap_bytes)
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    # No name and no time in the gzip header, no owner and no time in the tar: they would change the hash.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in names:
            _add(tar, request.folder / name, name)
    size_bytes = file.tell()
    file.seek(0)
    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    return Tarball(file, sha256, size_bytes)


def missing_script(run: str, setup: str | None, files: Sequence[str]) -> str | None:
    """The script that `run` starts and that will not be there; None when all are, or when nobody can tell.

    Only a plain relative ``*.py`` or ``*.sh`` after a known runner is judged, and only as long as nothing before
    it could have brought the script: a fetch, a change of folder, or any mention of it in setup or earlier lines.
    """
    before = setup or ""
    if _FETCHES.search(before):
        return None
    for line in run.replace("\\\n", " ").splitlines():
        script = _script(line)
        if script is not None and script not in files and script.split("/")[0] not in before:
            return script
        if _FETCHES.search(line):
            return None
        before += "\n" + line
    return None


def missing_requirements(setup: str, files: Sequence[str]) -> str | None:
    """The file that ``pip install -r FILE`` in setup wants and that will not be there; judged as `missing_script`."""
    before = ""
    for line in setup.replace("\\\n", " ").splitlines():
        file = _requirements(_words(line))
        if file is not None and file not in files:
            earlier = line.partition("pip")[0]
            if _FETCHES.search(earlier):
                return None
            if file.split("/")[0] not in before + earlier:
                return file
        if _FETCHES.search(line):
            return None
        before += line + "\n"
    return None


def _requirements(words: Sequence[str]) -> str | None:
    if "install" not in words or not any(PurePath(word).name in ("pip", "pip3") for word in words):
        return None
    for flag, file in pairwise(words):
        if flag in ("-r", "--requirement"):
            plain = not file.startswith(("/", "~", "..")) and "$" not in file and ":" not in file
            return file.removeprefix("./") if plain else None
    return None


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # half of a quotation that spans lines
        return []


def _script(line: str) -> str | None:
    words = list(dropwhile(_ASSIGNMENT.fullmatch, _words(line)))
    if not words:
        return None
    if words[0].startswith("./") and words[0].endswith((".sh", ".py")):
        return words[0].removeprefix("./")
    if PurePath(words[0]).name not in _RUNNERS:
        return None
    for word in words[1:]:
        if word in ("-m", "-c") or word in _OPERATORS or "$" in word:
            return None
        if word.endswith((".py", ".sh")) and not word.startswith(("-", "/", "~", "..")):
            return word.removeprefix("./")
    return None


def _walk(root: Path, below: str, exclude: Sequence[str]) -> Iterator[str]:
    for entry in os.scandir(root / below):
        name = f"{below}{entry.name}"
        if _excluded(name, entry.is_dir(follow_symlinks=False), exclude):
            continue
        if entry.is_symlink():
            _check_link(root, name)
            yield name
        elif entry.is_dir():
            yield from _walk(root, name + "/", exclude)
        elif entry.is_file():
            yield name
        else:
            top = f"{name.split('/')[0]}/" if "/" in name else name
            raise SpecError(
                f"source: {name} cannot be sent, it is neither a file nor a folder but a socket, pipe or device",
                hint=f"source: {{path: ., exclude: [{top}]}} leaves it out; a folder with the job's files alone is better",
            )


def _excluded(name: str, is_folder: bool, patterns: Sequence[str]) -> bool:
    """As in a .gitignore: a slash at the end means folders only; one inside ties the pattern to the root."""
    for pattern in patterns:
        if pattern.endswith("/") and not is_folder:
            continue
        bare = pattern.rstrip("/").removeprefix("./")
        subject = name if "/" in bare else name.rsplit("/", 1)[-1]
        if fnmatch(subject, bare.removeprefix("/")):
            return True
    return False


def _check_link(root: Path, name: str) -> None:
    target = os.readlink(root / name)
    # Judged by its text: on the node the folder has another place, and only what is relative and inside survives.
    reached = os.path.normpath(os.path.join(os.path.dirname(name), target))
    if os.path.isabs(target) or reached == ".." or reached.startswith("../"):
        raise SpecError(
            f"source: {name} links to {target}, which is outside and will not be there",
            hint=f"exclude: [{name}], or copy the file in",
        )


def _check_size(root: Path, names: Sequence[str], cap_bytes: int) -> None:
    sizes: Counter[str] = Counter()
    for name in names:
        top = name.split("/")[0] + ("/" if "/" in name else "")
        sizes[top] += (root / name).lstat().st_size
    total = sizes.total()
    if total > cap_bytes:
        largest, size = sizes.most_common(1)[0]
        raise SpecError(
            f"source is {format_size(total)}, more than {format_size(cap_bytes)}; {largest} alone is {format_size(size)}",
            hint=f"source: {{path: ., exclude: [{largest}]}}, and let the job fetch its data",
        )


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    info = tarfile.TarInfo(name)
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
        tar.addfile(info)
        return
    info.size = status.st_size
    info.mode = (
        0o755 if status.st_mode & 0o100 else 0o644
    )  # the rest is the umask's, and would change the hash
    try:
        with path.open("rb") as content:
            tar.addfile(info, content)
    except OSError as error:
        raise SpecError(
            f"source: cannot read {name}: {error.strerror or 'it changed while it was read'}"
        ) from None
