"""Why nobody has answered, in one line, as each vendor's own client meets it. The only network is this machine's."""

import re
import socket
from collections.abc import Callable, Iterator

import boto3
import httpx
import pytest
import requests
import urllib3
from botocore.config import Config

from broker.core.errors import ProviderDown
from providers.aws import errors as aws
from providers.azure import errors as azure
from providers.azure.clients import Clients as AzureClients
from providers.azure.settings import parse as azure_options
from providers.gcp import errors as gcp
from providers.no_answer import no_answer, proxy_to

# https://www.rfc-editor.org/rfc/rfc6761: no name below it is ever known.
NOWHERE = "prices.invalid"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def nobody() -> Iterator[str]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound, but not listening: refused
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def by_requests(host: str) -> None:
    with gcp.translated("reading the price list"):
        requests.get(f"https://{host}/skus", timeout=5)


def by_httpx(host: str) -> None:
    with azure.translated_http("reading the price list", host):
        httpx.get(f"https://{host}/retail", timeout=5)


def by_azure(host: str) -> None:
    zero = "00000000-0000-0000-0000-000000000000"
    options = {"regions": ["eastus"], "subscription_id": zero, "tenant_id": zero, "client_id": zero}
    AzureClients(azure_options({**options, "endpoint_login": f"https://{host}"})).token()


def by_botocore(host: str) -> None:
    client = boto3.client(
        "ec2",
        region_name="us-east-1",
        endpoint_url=f"https://{host}",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(connect_timeout=5, retries={"total_max_attempts": 1}),
    )
    with aws.translated("reading zones"):
        client.describe_availability_zones()


CLIENTS = pytest.mark.parametrize("ask", [by_requests, by_httpx, by_azure, by_botocore])


@CLIENTS
def test_a_name_that_is_not_known_is_told_in_words(
    ask: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "s")
    with pytest.raises(ProviderDown) as caught:
        ask(NOWHERE)
    assert str(caught.value).endswith(f"no answer from {NOWHERE}: name not known")
    assert "(" not in str(caught.value)


@CLIENTS
def test_a_port_that_nobody_listens_at_too(
    ask: Callable[[str], None], nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "s")
    with pytest.raises(ProviderDown) as caught:
        ask(nobody)
    assert str(caught.value).endswith(f"no answer from {nobody}: connection refused")


@CLIENTS
def test_a_proxy_that_is_asked_instead_is_named_and_its_password_is_not(
    ask: Callable[[str], None], nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "s")
    monkeypatch.setenv("HTTPS_PROXY", f"http://ann:s3cr3t@{nobody}")
    with pytest.raises(ProviderDown) as caught:
        ask(NOWHERE)
    told = str(caught.value)
    assert re.search(
        rf"no answer from (prices.invalid through )?the proxy {nobody}: connection refused$", told
    )
    assert "s3cr3t" not in told


def test_a_host_that_goes_past_the_proxy_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp:3128/")
    monkeypatch.setenv("NO_PROXY", "k8s.corp")
    assert proxy_to("prices.azure.com") == "proxy.corp:3128"
    assert proxy_to("k8s.corp") is None


def test_what_nobody_knows_is_shown_as_it_is() -> None:
    assert no_answer(urllib3.exceptions.HTTPError("odd\nand more")) == "no answer: odd"
    assert no_answer(httpx.ReadTimeout(""), "h") == "no answer from h: timed out"
