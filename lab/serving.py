"""Handlers over real HTTP on 127.0.0.1, with or without TLS; one thread a connection, so that handlers may block."""

import logging
import socket
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from lab.faces import DropConnection, Handler, Reply, Request
from lab.listening import Listening, PortServer

IDLE_S = 120
MAX_BODY = 64 << 20

_log = logging.getLogger("lab.serving")


class HttpServer(Listening):
    """One handler on one port, over TLS where a context is given."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        server = _Server(_Connection)
        server.handler, server.tls = handler, tls
        super().__init__(server)
        self.scheme = "https" if tls else "http"


class _Server(PortServer):
    handler: Handler
    tls: ssl.SSLContext | None

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        if self.tls is not None:
            # The handshake waits for the first read, in the connection's own thread: here a client that connects and
            # then says nothing would stop everybody else.
            connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("connection from %s broke", client_address, exc_info=True)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "lab"
    sys_version = ""
    timeout = IDLE_S
    disable_nagle_algorithm = True
    wbufsize = 64 << 10
    server: _Server

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self.send_error(413)
            return
        url = urlsplit(self.path)
        request = Request(
            method=self.command,
            path=unquote(url.path),
            query=tuple(parse_qsl(url.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(length),
        )
        try:
            reply = self.server.handler(request)
        except DropConnection:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        except Exception:  # noqa: BLE001 - a bug in a face must look like a server's error, and be found in the log
            _log.exception("%s %s failed", self.command, self.path)
            reply = Reply(500, b"internal error; see the log of the lab")
        self._send(reply)

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.parts is not None:
            self._send_parts(reply.parts)
            return
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)
        self.wfile.flush()

    def _send_parts(self, parts: Iterator[bytes]) -> None:
        """In chunks (RFC 9112, 7.1); where making one fails the connection breaks, so that no client takes it for whole."""
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts if self.command != "HEAD" else ():
            if part:
                self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if self.command != "HEAD":
            self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _answer

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)
