"""The vendors' own host names, for programs that cannot be told another end point: a proxy on 127.0.0.1.

A program with ``HTTPS_PROXY`` asks it for a tunnel to ``ec2.us-east-1.amazonaws.com:443`` (``CONNECT``, RFC 9110, 9.3.6)
and gets one to the face that is behind this name. TLS is between the two of them: the face needs a certificate for the
name (`Authority.server_context`), the program must trust the lab's CA. Every other host is refused, so what runs with
this proxy reaches nothing outside the machine.
"""

import contextlib
import logging
import socket
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler

from lab.listening import HOST, Listening, PortServer

VENDOR_HOSTS: Mapping[str, tuple[str, ...]] = {
    "aws": (
        "ec2.us-east-1.amazonaws.com",
        "ec2.us-west-2.amazonaws.com",
        "pricing.us-east-1.amazonaws.com",
        "api.pricing.us-east-1.amazonaws.com",
        "sts.us-east-1.amazonaws.com",
    ),
    "azure": ("prices.azure.com", "management.azure.com", "login.microsoftonline.com"),
    "gcp": ("compute.googleapis.com", "cloudbilling.googleapis.com", "oauth2.googleapis.com"),
    "lambda": ("cloud.lambda.ai", "cloud.lambdalabs.com"),
}
_HTTPS = "443"
_HEAD_S = 30  # for a client to say what it wants
_CONNECT_S = 10
_BLOCK = 64 << 10
_log = logging.getLogger("lab.proxy")


class Proxy(Listening):
    """Tunnels from names to ports of this machine; `url` is for ``HTTPS_PROXY``.

    Args:
        ports: Port on 127.0.0.1, by host name.

    Attributes:
        opened: Names that a tunnel was opened to, in order.
        refused: What was asked for and is not among the names, as it was asked.
    """

    def __init__(self, ports: Mapping[str, int]) -> None:
        server = _Server(_Client)
        server.ports = {name.lower(): port for name, port in ports.items()}
        self.opened = server.opened = []
        self.refused = server.refused = []
        super().__init__(server)


class _Server(PortServer):
    ports: Mapping[str, int]
    opened: list[str]
    refused: list[str]


class _Client(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "lab"
    sys_version = ""
    timeout = _HEAD_S
    rbufsize = 0  # what follows the request belongs to the tunnel
    server: _Server

    def do_CONNECT(self) -> None:
        host, _, port = self.path.rpartition(":")
        name = host.lower()
        if port != _HTTPS or name not in self.server.ports:
            self._refuse()
            return
        try:
            face = socket.create_connection((HOST, self.server.ports[name]), _CONNECT_S)
        except OSError:
            self.send_error(502, "The lab does not answer")
            return
        with face:
            self.server.opened.append(name)
            self.send_response_only(200, "Connection established")
            self.end_headers()
            self.close_connection = True
            _join(self.connection, face)

    def _refuse(self) -> None:
        """Another host, another port, or a request that is no tunnel."""
        self.server.refused.append(self.path)
        _log.warning("refused: %s %s", self.command, self.path)
        self.close_connection = True
        self.send_error(403, "Not a name of the lab")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = _refuse

    def log_message(self, format: str, *args: object) -> None:
        _log.debug(format, *args)


def _join(client: socket.socket, face: socket.socket) -> None:
    """Pass everything on, both ways, until both have said all. An end that dies closes its socket: no time-out."""
    client.settimeout(None)
    face.settimeout(None)
    answers = threading.Thread(target=_pass_on, args=(face, client), daemon=True)
    answers.start()
    _pass_on(client, face)
    answers.join()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    try:
        while part := source.recv(_BLOCK):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        # Half a conversation is of no use to anybody; this also wakes the thread of the other direction.
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
