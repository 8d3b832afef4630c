"""Whether nodes can reach us: `public_url`, called as a node calls it."""

import ipaddress
import socket
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx

from broker.core.ports import Check

TIMEOUT_S = 5.0


def check_public_url(url: str, ca_pem: str, clouds: Sequence[str]) -> list[Check]:
    """Resolve it, call it with the CA that nodes are given, and say from where it can be reached.

    Called from this host: that a firewall lets nodes in is only known when one has called.

    Args:
        url: ``https://HOST:PORT``.
        ca_pem: What nodes trust.
        clouds: Those we rent from; empty when all nodes run on this host.
    """
    host = urlsplit(url).hostname or ""
    try:
        found = socket.getaddrinfo(host, urlsplit(url).port or 443, proto=socket.IPPROTO_TCP)
    except OSError as error:
        return [Check("public_url", False, f"{url}: {host} has no address here: {error.strerror or error}")]
    reach = _reach([str(entry[4][0]) for entry in found], clouds)
    return [_answers(url, ca_pem), *reach]


def _answers(url: str, ca_pem: str) -> Check:
    try:
        answer = httpx.get(
            f"{url.rstrip('/')}/healthz",
            verify=ssl.create_default_context(cadata=ca_pem),
            timeout=TIMEOUT_S,
            trust_env=False,
        )
    except httpx.ConnectError as error:
        # The reason of a refused certificate is in the text, as for a refused connection.
        return Check("public_url", False, f"{url} does not answer here: {error}")
    except httpx.HTTPError as error:
        return Check("public_url", False, f"{url} does not answer here: {error or type(error).__name__}")
    if answer.status_code != httpx.codes.OK or answer.text.strip() != '{"status":"ok"}':
        return Check("public_url", False, f"{url} answers, but not as this daemon: HTTP {answer.status_code}")
    return Check("public_url", True, f"{url} answers here, with the certificate that nodes trust")


def _reach(addresses: Sequence[str], clouds: Sequence[str]) -> list[Check]:
    if not clouds:
        return []
    name = ", ".join(clouds)
    kinds = [ipaddress.ip_address(address.partition("%")[0]) for address in addresses]
    if all(kind.is_loopback for kind in kinds):
        detail = f"it is this host only: nodes of {name} cannot call it unless they run here"
        return [Check("public_url from outside", None, f"{detail}; set public_url in [server]")]
    if all(kind.is_private for kind in kinds):
        detail = f"{addresses[0]} is a private address: nodes of {name} need a way into this network"
        return [Check("public_url from outside", None, detail)]
    detail = f"{addresses[0]} is public; whether a firewall lets nodes in shows when the first one calls"
    return [Check("public_url from outside", None, detail)]
