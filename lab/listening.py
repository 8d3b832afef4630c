"""A server on a free port of 127.0.0.1, with one thread a connection, so that whoever answers may block."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

HOST = "127.0.0.1"


class PortServer(ThreadingHTTPServer):
    """The socket; what it hands to its connections is for those who make it."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, connection: type[BaseHTTPRequestHandler]) -> None:
        super().__init__((HOST, 0), connection)


class Listening:
    """It answers from `start` to `stop`.

    Attributes:
        port: Free one, chosen when it is made.
    """

    scheme = "http"

    def __init__(self, server: PortServer) -> None:
        self._socket = server
        self.port = server.server_port
        self._thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``"""
        return f"{self.scheme}://{HOST}:{self.port}"

    def start(self) -> Self:
        """Begin to answer."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Take no more connections; those that are open end when either end closes, or with this process."""
        if self._thread.is_alive():
            self._socket.shutdown()
        self._socket.server_close()
