"""`public_url`, called over real TLS."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.serve.public_url import check_public_url
from lab.faces import Reply, Request
from lab.serving import HttpServer
from lab.tls import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def said() -> list[bytes]:
    return [b'{"status":"ok"}']


@pytest.fixture
def server(authority: Authority, said: list[bytes]) -> Iterator[HttpServer]:
    def handle(request: Request) -> Reply:
        return Reply(200 if request.path == "/healthz" else 404, said[-1])

    one = HttpServer(handle, authority.server_context()).start()
    yield one
    one.stop()


def test_it_answers_and_is_told_to_be_this_host_only(server: HttpServer, authority: Authority) -> None:
    answers, reach = check_public_url(server.url, authority.ca_file.read_text(), ["aws", "gcp"])
    assert answers.ok is True
    assert reach.ok is None
    assert "nodes of aws, gcp cannot call it" in reach.detail


def test_nodes_of_this_host_need_no_way_in(server: HttpServer, authority: Authority) -> None:
    (only,) = check_public_url(server.url, authority.ca_file.read_text(), [])
    assert only.ok is True


def test_a_certificate_that_nodes_do_not_trust_fails(server: HttpServer, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    answers, _ = check_public_url(server.url, other.ca_file.read_text(), ["aws"])
    assert answers.ok is False
    assert "certificate verify failed" in answers.detail


def test_somebody_else_at_the_address_fails(
    server: HttpServer, authority: Authority, said: list[bytes]
) -> None:
    said.append(b"<html>It works!</html>")
    answers, _ = check_public_url(server.url, authority.ca_file.read_text(), ["aws"])
    assert answers.ok is False
    assert "not as this daemon" in answers.detail


def test_nobody_at_the_address_fails_at_once(authority: Authority) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{free.getsockname()[1]}"
    answers, _ = check_public_url(url, authority.ca_file.read_text(), ["aws"])
    assert answers.ok is False
    assert "refused" in answers.detail


def test_a_name_without_an_address_is_named(authority: Authority) -> None:
    (only,) = check_public_url("https://broker.invalid:8443", authority.ca_file.read_text(), ["aws"])
    assert only.ok is False
    assert "broker.invalid has no address here" in only.detail
