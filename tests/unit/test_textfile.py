"""Files that people name: what is no ordinary file is refused at once, and never waited for."""

import os
import socket
from pathlib import Path

import pytest

from broker.core.errors import PolicyError, SettingsError, SpecError
from broker.jobs.spec import load_job
from broker.policy.load import PolicySet
from broker.settings import Settings
from broker.textfile import read_text


@pytest.fixture(params=["pipe", "folder", "socket", "device", "link to a pipe"])
def odd(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path may have 107 bytes
    path = tmp_path / "odd.yaml"
    match request.param:
        case "folder":
            path.mkdir()
        case "socket":
            socket.socket(socket.AF_UNIX).bind("odd.yaml")
        case "device":
            path.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case _:
            os.mkfifo(tmp_path / "pipe")
            path.symlink_to("pipe")
    return path


def test_what_is_no_file_is_refused_at_once(odd):
    with pytest.raises(SpecError, match=r"^cannot read .*odd\.yaml: it is a (pipe|folder|socket|device)"):
        load_job(odd)
    with pytest.raises(SettingsError, match=r"cannot read .*odd\.yaml: it is a"):
        Settings.load(odd)
    policies = PolicySet(odd.parent)
    assert ["cannot read" in error.message for error in policies.errors] == [True]


def test_what_is_too_long_or_no_text_is_refused(tmp_path):
    path = tmp_path / "a"
    path.write_text("x" * 11)
    assert read_text(path, max_bytes=11) == "x" * 11
    with pytest.raises(PolicyError, match="longer than 10 bytes"):
        read_text(path, PolicyError, max_bytes=10)
    path.write_bytes(b"ab\xff")
    with pytest.raises(PolicyError, match=r"not UTF-8 text \(byte 2\)"):
        read_text(path, PolicyError)


def test_a_name_that_no_file_can_have_is_a_mistake_too():
    with pytest.raises(SpecError, match="cannot read"):
        read_text(Path("a\0b"), SpecError)


def test_dos_line_ends_are_kept_as_they_are(tmp_path):
    path = tmp_path / "a"
    path.write_bytes("é\r\nb".encode())
    assert read_text(path) == "é\r\nb"
