"""Files that come in over HTTP: job logs, appended at offsets, and source tarballs, named by their hash. And agents.

A node's log is one file, so that the offset in its request says exactly what we have of it. What rank 0 writes is
also appended to the job's log, which goes on over placements: that is the one people follow.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from broker.core.errors import UsageError
from broker.jobs.source import CAP_BYTES
from broker.serve.problem import TooLarge

# A node that prints more than this in one life is told 413 and keeps its log to itself.
LOG_MAX_BYTES = 1 << 30
# Offsets into a job's log, over all its nodes; far above any, and within what a file system can seek to.
JOB_LOG_MAX_BYTES = 1 << 50
SOURCE_MAX_BYTES = CAP_BYTES
# Releases whose agents are kept. A node fetches its agent minutes after it was ordered, so two would do.
AGENTS_KEPT = 4
_SHA256 = re.compile(r"^[0-9a-f]{64}$")


async def read_at_most(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    """The whole body.

    Raises:
        TooLarge: it is longer than `limit`.
    """
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            raise TooLarge(f"the body is larger than {limit} bytes")
    return bytes(body)


def node_log(log_dir: Path, token: str) -> Path:
    """Log of one node. The token comes from our own row, so it is a safe name."""
    return log_dir / f"{token}.log"


def job_log(log_dir: Path, job_id: str) -> Path:
    """What rank 0 of all placements of a job wrote, in the order it arrived."""
    return log_dir / f"job.{job_id}.log"


def append_log(file: Path, offset: int, data: bytes, also: Path | None, heading: str) -> int:
    """Append `data`, which starts at `offset` of the node's own log; bytes that we have already are skipped.

    Args:
        file: The node's log.
        also: The job's log, when this node's output belongs there.
        heading: One line written into the job's log before the first byte of this node.

    Returns:
        How many bytes of the node's log we have. Less than `offset`: there is a gap, send from here.
    """
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with file.open("ab") as log:
        # A request that timed out may still be running when its repetition arrives.
        fcntl.flock(log, fcntl.LOCK_EX)
        have = os.fstat(log.fileno()).st_size
        fresh = data[have - offset :] if offset <= have else b""
        if not fresh:
            return have
        if have + len(fresh) > LOG_MAX_BYTES:
            raise TooLarge(f"the log of this node is larger than {LOG_MAX_BYTES} bytes")
        log.write(fresh)
        if also is not None:
            _append(also, (f"{heading}\n".encode() if have == 0 else b"") + fresh)
        return have + len(fresh)


def _append(file: Path, data: bytes) -> None:
    with file.open("ab") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        log.write(data)


def read_log(file: Path, offset: int, limit: int) -> bytes:
    """At most `limit` bytes from `offset`; empty when there is nothing yet."""
    try:
        with file.open("rb") as log:
            log.seek(offset)
            return log.read(limit)
    except FileNotFoundError:
        return b""


def source_file(source_dir: Path, sha256: str) -> Path:
    """Where the tarball of that hash lies.

    Raises:
        UsageError: not a SHA-256 in lower-case hex.
    """
    return source_dir / f"{_checked(sha256)}.tar.gz"


def agent_file(agent_dir: Path, sha256: str) -> Path:
    """Where the agent of that hash lies.

    Raises:
        UsageError: not a SHA-256 in lower-case hex.
    """
    return agent_dir / f"{_checked(sha256)}.pyz"


def keep_agent(agent_dir: Path, data: bytes) -> str:
    """Keep the agent of this release for nodes that will boot under the next one; returns its hash."""
    sha256 = hashlib.sha256(data).hexdigest()
    file = agent_file(agent_dir, sha256)
    agent_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    if file.exists():
        file.touch()  # a release that has come back is the newest one
    else:
        partial = file.with_suffix(".partial")
        partial.write_bytes(data)
        partial.replace(file)
    newest_first = sorted(agent_dir.glob("*.pyz"), key=lambda kept: kept.stat().st_mtime, reverse=True)
    for old in newest_first[AGENTS_KEPT:]:
        old.unlink()
    return sha256


def _checked(sha256: str) -> str:
    if not _SHA256.fullmatch(sha256):
        raise UsageError(f"{sha256[:80]!r} is not a SHA-256")
    return sha256


async def receive_source(source_dir: Path, sha256: str, chunks: AsyncIterator[bytes], name: str) -> int:
    """Keep a tarball whose bytes have that hash; returns its size. What we have already is not written again.

    Args:
        name: Makes the name of the partial file unique among concurrent uploads.

    Raises:
        TooLarge: more than `SOURCE_MAX_BYTES`.
        UsageError: the hash is another.
    """
    target = source_file(source_dir, sha256)
    source_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = source_dir / f"{sha256}.{name}.partial"
    try:
        with partial.open("xb") as out:
            size, found = await _copy(chunks, out)
        if found != sha256:
            raise UsageError(f"the body has SHA-256 {found}, not {sha256}", hint="upload again")
        partial.replace(target)
        return size
    finally:
        partial.unlink(missing_ok=True)


async def _copy(chunks: AsyncIterator[bytes], out: BinaryIO) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > SOURCE_MAX_BYTES:
            raise TooLarge(
                f"a source may have {SOURCE_MAX_BYTES >> 20} MiB; exclude data, put it into a bucket"
            )
        digest.update(chunk)
        out.write(chunk)
    return size, digest.hexdigest()
