"""The tarball: the same everywhere, and nothing in it that will not be there."""

import io
import os
import socket
import tarfile
from pathlib import Path

import pytest

from broker.core.errors import SpecError
from broker.jobs.source import (
    SourceRequest,
    build_tarball,
    missing_requirements,
    missing_script,
    source_files,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "train.py",
        "lib/a.py",
        "lib/__pycache__/a.pyc",
        ".git/HEAD",
        "data/big.bin",
        "docs/x.png",
        "x.ckpt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_excludes_are_those_of_a_gitignore(folder: Path):
    everything = ["data/big.bin", "docs/x.png", "lib/a.py", "train.py", "x.ckpt"]
    assert source_files(SourceRequest(folder)) == everything
    excluded = SourceRequest(folder, ("data/", "*.ckpt", "docs/*.png", "train.py/"))
    assert source_files(excluded) == ["lib/a.py", "train.py"]


def test_same_files_same_tarball(folder: Path):
    with build_tarball(SourceRequest(folder)).file as first:
        before = first.read()
    os.utime(folder / "train.py", (1, 1))
    (folder / "train.py").chmod(0o640)
    (folder / "lib/a.py").unlink()
    (folder / "lib/a.py").write_text("lib/a.py")
    again = build_tarball(SourceRequest(folder))
    with again.file as second:
        assert second.read() == before
    assert again.size_bytes == len(before)


def test_content_mode_and_links_travel(folder: Path):
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    (folder / "lib/link").symlink_to("../train.py")
    with (
        build_tarball(SourceRequest(folder)).file as file,
        tarfile.open(fileobj=io.BytesIO(file.read())) as tar,
    ):
        assert tar.getmember("run.sh").mode == 0o755
        assert tar.getmember("train.py").mode == 0o644
        assert tar.getmember("lib/link").linkname == "../train.py"
        content = tar.extractfile("lib/a.py")
        assert content is not None
        assert content.read() == b"lib/a.py"


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "lib/../../secret"])
def test_a_link_that_leads_out_is_refused(folder: Path, target: str):
    (folder / "link").symlink_to(target)
    with pytest.raises(SpecError, match=r"source: link links to .*, which is outside") as caught:
        build_tarball(SourceRequest(folder))
    assert caught.value.hint == "exclude: [link], or copy the file in"
    assert "link" not in source_files(SourceRequest(folder, ("link",)))


def test_a_socket_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("ipc")
        with pytest.raises(SpecError, match="ipc cannot be sent") as refused:
            source_files(SourceRequest(folder))
        assert "exclude: [ipc]" in str(refused.value.hint)


def test_a_pipe_deep_below_is_left_out_with_its_folder(folder: Path):
    (folder / "data/run").mkdir()
    os.mkfifo(folder / "data/run/pipe")
    with pytest.raises(SpecError, match="data/run/pipe cannot be sent") as refused:
        source_files(SourceRequest(folder))
    assert "exclude: [data/]" in str(refused.value.hint)
    assert "train.py" in source_files(SourceRequest(folder, ("data/",)))


def test_too_large_names_the_largest(folder: Path):
    (folder / "data/big.bin").write_bytes(bytes(5000))
    with pytest.raises(SpecError, match=r"source is 4\.9KiB, more than 1KiB; data/ alone is 4\.9KiB"):
        build_tarball(SourceRequest(folder), cap_bytes=1024)


@pytest.mark.parametrize(
    ("run", "setup", "missing"),
    [
        ("python train.py", None, None),
        ("python -u ./train.py --lr 1", None, None),
        ("python eval.py", None, "eval.py"),
        ("CUDA_VISIBLE_DEVICES=0 python3 eval.py", None, "eval.py"),
        ("torchrun --nproc-per-node 8 \\\n  src/main.py", None, "src/main.py"),
        ("bash go.sh", None, "go.sh"),
        (".venv/bin/python eval.py", None, "eval.py"),
        ("./go.sh", None, "go.sh"),
        ("python -m eval.py", None, None),
        ("python -c 'print(1)' eval.py", None, None),
        ("python $SCRIPT eval.py", None, None),
        ("python /opt/eval.py", None, None),
        ("python lib/a.py && python eval.py", None, None),
        ("cd repo\npython eval.py", None, None),
        ("cat > eval.py <<X\nX\npython eval.py", None, None),
        ("python repo/eval.py", "git clone https://x/repo", None),
        ("python repo/eval.py", "make repo", None),
        ("python 'unfinished", None, None),
        ("# python eval.py", None, None),
        ("", None, None),
    ],
)
def test_missing_script(run: str, setup: str | None, missing: str | None):
    assert missing_script(run, setup, ["lib/a.py", "train.py"]) == missing


@pytest.mark.parametrize(
    ("setup", "missing"),
    [
        ("pip install -r requirements.txt", None),
        ("pip install -r ./requirements.txt", None),
        ("pip install -r gpu.txt", "gpu.txt"),
        ("set -e\npython3 -m venv .venv && .venv/bin/pip install -q --requirement gpu.txt", "gpu.txt"),
        ("python3 -m pip install -r lib/gpu.txt", "lib/gpu.txt"),
        ("pip install torch", None),
        ("pip install -r /opt/gpu.txt", None),
        ("pip install -r $WHICH", None),
        ("pip install -r https://example.com/gpu.txt", None),
        ("echo torch > gpu.txt && pip install -r gpu.txt", None),
        ("git clone https://x/repo\npip install -r repo/gpu.txt", None),
        ("cd repo && pip install -r gpu.txt", None),
        ("apt-get install -r gpu.txt", None),
        ("pip install 'unfinished", None),
    ],
)
def test_missing_requirements(setup: str, missing: str | None):
    assert missing_requirements(setup, ["requirements.txt"]) == missing
