"""Logs at offsets and sources by hash."""

import asyncio
import hashlib

import pytest

from broker.core.errors import UsageError
from broker.serve import files
from broker.serve.problem import TooLarge


def test_a_log_is_appended_once_whatever_is_repeated(tmp_path):
    log, job = tmp_path / "logs" / "n.log", tmp_path / "logs" / "job.j.log"

    def append(offset, data):
        return files.append_log(log, offset, data, job, "--- attempt 1 ---")

    assert append(0, b"one\n") == 4
    assert append(0, b"one\n") == 4
    assert append(0, b"one\ntwo\n") == 8
    assert append(99, b"gap") == 8
    assert append(8, b"") == 8
    assert log.read_bytes() == b"one\ntwo\n"
    assert job.read_bytes() == b"--- attempt 1 ---\none\ntwo\n"


def test_a_jobs_log_goes_on_over_placements(tmp_path):
    job = tmp_path / "job.j.log"
    files.append_log(tmp_path / "a.log", 0, b"old\n", job, "--- 1 ---")
    files.append_log(tmp_path / "b.log", 0, b"new\n", job, "--- 2 ---")
    assert files.read_log(job, 0, 100) == b"--- 1 ---\nold\n--- 2 ---\nnew\n"
    assert files.read_log(job, 14, 4) == b"--- "
    assert files.read_log(tmp_path / "none", 0, 10) == b""


def test_a_log_has_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LOG_MAX_BYTES", 5)
    with pytest.raises(TooLarge):
        files.append_log(tmp_path / "n.log", 0, b"123456", None, "")


async def chunks(*parts):
    for part in parts:
        yield part


def receive(folder, sha256, *parts):
    return asyncio.run(files.receive_source(folder, sha256, chunks(*parts), "x"))


def test_a_source_is_kept_when_its_hash_is_right(tmp_path, monkeypatch):
    sha256 = hashlib.sha256(b"abcdef").hexdigest()
    assert receive(tmp_path, sha256, b"abc", b"def") == 6
    assert files.source_file(tmp_path, sha256).read_bytes() == b"abcdef"
    with pytest.raises(UsageError, match="has SHA-256"):
        receive(tmp_path, "0" * 64, b"abc")
    with pytest.raises(UsageError, match="not a SHA-256"):
        receive(tmp_path, "../../etc/passwd", b"abc")
    monkeypatch.setattr(files, "SOURCE_MAX_BYTES", 4)
    with pytest.raises(TooLarge):
        receive(tmp_path, sha256, b"abc", b"def")
    assert [file.name for file in tmp_path.iterdir()] == [f"{sha256}.tar.gz"]
