"""Files that a person names: read whole and at once, or refused with what is wrong with them.

`open` of a named pipe waits for a writer, a terminal waits for a line and ``/dev/zero`` never ends; none of them may
hold a command up, let alone the daemon, which reads policies on its loop.
"""

import os
import stat
from pathlib import Path
from typing import Final

from broker.core.errors import UsageError

_MAX_BYTES: Final = 1 << 20
_KINDS: Final = (
    (stat.S_ISDIR, "it is a folder"),
    (stat.S_ISFIFO, "it is a pipe; write what comes out of it into a file"),
    (stat.S_ISCHR, "it is a device"),
    (stat.S_ISBLK, "it is a device"),
    (stat.S_ISSOCK, "it is a socket"),
)


def read_text(
    path: Path, error: type[UsageError] = UsageError, hint: str | None = None, max_bytes: int = _MAX_BYTES
) -> str:
    """The text of an ordinary file.

    Args:
        error: Class of the error.
        hint: For its reader.
        max_bytes: More than any file of its kind has.

    Raises:
        UsageError: of class `error`; it is not there, no ordinary file, too long, not UTF-8, or may not be read.
    """
    try:
        # Looked at before it is opened, since opening a device may already do something; and not waited for, should
        # it become a pipe in between.
        why = _no_file(os.stat(path).st_mode)
        content = b"" if why else _content(path, max_bytes)
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as problem:
        why = _words(problem)
    if not why and len(content) > max_bytes:
        why = f"it is longer than {max_bytes} bytes"
    if why:
        raise error(f"cannot read {path}: {why}", hint=hint) from None
    return text


def check_ordinary(path: Path, error: type[UsageError] = UsageError, hint: str | None = None) -> None:
    """That a path names an ordinary file now: for what is opened elsewhere, or is too large to be read at once.

    Raises:
        UsageError: of class `error`; it is not there, or opening it may wait for somebody.
    """
    try:
        why = _no_file(os.stat(path).st_mode)
    except (OSError, ValueError) as problem:
        why = _words(problem)
    if why:
        raise error(f"cannot read {path}: {why}", hint=hint) from None


def _content(path: Path, max_bytes: int) -> bytes:
    """At most one byte more than `max_bytes`."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if why := _no_file(os.fstat(file.fileno()).st_mode):
            raise ValueError(why)
        return file.read(max_bytes + 1)


def _no_file(mode: int) -> str | None:
    return next((why for is_kind, why in _KINDS if is_kind(mode)), None)


def _words(problem: Exception) -> str:
    if isinstance(problem, UnicodeDecodeError):
        return f"it is not UTF-8 text (byte {problem.start})"
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
