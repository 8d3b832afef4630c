import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from broker.wire.messages import StoreAccess
from broker.wire.store_client import open_store
from lab.seaweed import PortTaken, SeaweedFailed, SeaweedFS, _free_ports


@pytest.mark.process
def test_serves_https_survives_a_restart_and_leaves_no_process(tmp_path: Path) -> None:
    ca = trustme.CA()
    leaf = ca.issue_cert("127.0.0.1")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    leaf.private_key_pem.write_to_path(tmp_path / "key.pem")
    server = SeaweedFS(tmp_path / "weed", certificate=(tmp_path / "cert.pem", tmp_path / "key.pem"))
    access = StoreAccess(
        "s3",
        "",
        server.endpoint,
        bucket=server.bucket,
        access_key=server.access_key,
        secret_key=server.secret_key,
    )
    access.ca_pem = ca.cert_pem.bytes().decode()
    with server:
        etag = open_store(access).put("jobs/a/HEAD", b"1", if_absent=True)
        first = server.pid
    mine = tmp_path / "weed"
    with server:
        assert server.pid != first
        # Logs below its own folder, where they end with it.
        assert any((mine / "logs").iterdir())
        assert not [name for name in opened(server.pid) if name.startswith("/tmp/weed")]
        store = open_store(access)
        assert store.get("jobs/a/HEAD") == (b"1", etag)
        store.put("jobs/a/HEAD", b"2", if_match=etag)
    assert server.pid is None
    assert not [file for file in server._grpc_sockets() if file.exists()]
    with pytest.raises(ProcessLookupError):
        os.killpg(first or 0, 0)


def opened(pid: int | None) -> set[str]:
    """What a running process has open; what it closes while we look counts as closed."""
    names = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            names.add(os.readlink(file))
    return names


def test_no_port_is_given_twice() -> None:
    for _ in range(20):
        ports = _free_ports(5)
        assert len({*ports, *(port + 10_000 for port in ports)}) == 10


@pytest.mark.process
def test_says_why_it_did_not_come_up(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    server = SeaweedFS(tmp_path, bucket="NOT A BUCKET")
    with pytest.raises(SeaweedFailed, match="did not come up"):
        server.start(timeout_s=4)
    assert server.pid is None


def taken(port: int) -> socket.socket:
    """Somebody who listens there."""
    other = socket.socket()
    other.bind(("127.0.0.1", port))
    other.listen()
    return other


@pytest.mark.process
def test_a_port_that_was_taken_meanwhile_is_another_at_the_next_try(tmp_path: Path) -> None:
    server = SeaweedFS(tmp_path)
    endpoint = server.endpoint
    # The S3 face is the last that binds: everything else of the first try has come up already.
    with taken(server._plain_port), server:
        assert server.endpoint != endpoint
        access = StoreAccess(
            "s3",
            "",
            server.endpoint,
            bucket=server.bucket,
            access_key=server.access_key,
            secret_key=server.secret_key,
        )
        open_store(access).put("jobs/a/HEAD", b"1", if_absent=True)


@pytest.mark.process
def test_what_was_told_where_it_is_comes_back_there_or_not_at_all(tmp_path: Path) -> None:
    server = SeaweedFS(tmp_path)
    with server:
        endpoint = server.endpoint
    with taken(server._inner_ports[0]), pytest.raises(PortTaken):
        server.start()
    assert server.endpoint == endpoint
    with server:
        assert server.endpoint == endpoint
