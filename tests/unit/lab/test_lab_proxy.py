"""The lab's proxy: vendors' names lead to the lab, everything else to a refusal."""

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from broker.clock import SystemClock
from lab.catalog import Scenario
from lab.faces import Reply, Request, aws_bulk
from lab.proxy import VENDOR_HOSTS, Proxy
from lab.running import Lab
from lab.serving import HttpServer
from lab.tls import Authority

NAME = "prices.azure.com"
BODY = b"x" * 3_000_000


@dataclass
class Behind:
    """A server that goes by a vendor's name."""

    proxy: Proxy
    server: HttpServer
    context: ssl.SSLContext

    def client(self) -> httpx.Client:
        return httpx.Client(proxy=self.proxy.url, verify=self.context, trust_env=False, timeout=10)


def face(request: Request) -> Reply:
    if request.path == "/parts":
        return Reply(200, parts=(bytes([number]) * 100_000 for number in range(30)))
    if request.path == "/broken":
        return Reply(200, parts=(b"half" if number == 0 else b"" * (1 // 0) for number in range(2)))
    return Reply(
        200, BODY if request.method == "GET" else request.body, {"Seen-Host": request.headers["host"]}
    )


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    server = HttpServer(face, authority.server_context(NAME)).start()
    proxy = Proxy({NAME: server.port}).start()
    yield Behind(proxy, server, ssl.create_default_context(cafile=str(authority.ca_file)))
    proxy.stop()
    server.stop()


def test_a_vendors_name_leads_to_the_lab_with_a_certificate_for_it(behind: Behind) -> None:
    with behind.client() as client:
        reply = client.get(f"https://{NAME}/api/retail/prices")
        assert (reply.status_code, reply.headers["Seen-Host"]) == (200, NAME)
        assert reply.content == BODY
        assert client.post(f"https://{NAME.upper()}/", content=BODY).content == BODY
    assert set(behind.proxy.opened) == {NAME}


def test_a_reply_in_parts_comes_whole_or_fails(behind: Behind) -> None:
    with behind.client() as client:
        whole = client.get(f"https://{NAME}/parts")
        assert whole.content == b"".join(bytes([number]) * 100_000 for number in range(30))
        assert "Content-Length" not in whole.headers
        with pytest.raises(httpx.RemoteProtocolError):
            client.get(f"https://{NAME}/broken")


@pytest.mark.parametrize(
    "url", ["https://example.com/", f"https://{NAME}:8443/", "https://127.0.0.1/", f"http://{NAME}/"]
)
def test_everything_else_is_refused_and_told(behind: Behind, url: str) -> None:
    before = len(behind.proxy.refused)
    with behind.client() as client:
        if url.startswith("https"):
            with pytest.raises(httpx.ProxyError, match="403"):
                client.get(url)
        else:
            assert client.get(url).status_code == 403
    assert len(behind.proxy.refused) == before + 1


def test_a_face_that_is_gone_is_a_bad_gateway(behind: Behind) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        proxy = Proxy({NAME: closed.getsockname()[1]}).start()
        with (
            httpx.Client(proxy=proxy.url, verify=behind.context, trust_env=False) as client,
            pytest.raises(httpx.ProxyError, match="502"),
        ):
            client.get(f"https://{NAME}/")
        proxy.stop()


def test_it_listens_on_the_loopback_alone_and_stops(tmp_path: Path) -> None:
    proxy = Proxy({}).start()
    assert proxy.url.startswith("http://127.0.0.1:")
    proxy.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), 2)


def test_each_vendors_name_belongs_to_one_cloud() -> None:
    names = [name for hosts in VENDOR_HOSTS.values() for name in hosts]
    assert len(names) == len(set(names))


@pytest.mark.process
@pytest.mark.xdist_group("lab")
def test_a_lab_that_runs_answers_to_all_the_vendors_names(tmp_path: Path) -> None:
    lab = Lab(tmp_path, SystemClock(), Scenario.of({}), with_s3=False).start()
    try:
        context = ssl.create_default_context(cafile=lab.info["ca_file"])
        with httpx.Client(proxy=lab.info["endpoints"]["proxy"], verify=context, trust_env=False) as client:
            first = client.get(f"https://pricing.us-east-1.amazonaws.com{aws_bulk.PATH}").text
            assert first.startswith('"FormatVersion"')
            for names in VENDOR_HOSTS.values():
                for name in names:
                    assert client.get(f"https://{name}/").status_code in (400, 401, 403, 404, 429), name
    finally:
        lab.stop()
