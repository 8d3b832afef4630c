"""systemd's notification socket: READY once, WATCHDOG after every finished reconcile pass, STOPPING at the end.

The watchdog is fed by finished work and by nothing else: a daemon that answers HTTP while its passes hang is
restarted, and restart is the tested path.
"""

import os
import socket
from collections.abc import Mapping


class Notifier:
    """Sends to ``$NOTIFY_SOCKET``; without one every call is a no-op."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._ready = False

    def ready(self, status: str) -> None:
        """The daemon serves and has finished its first pass; later calls do nothing."""
        if not self._ready:
            self._ready = True
            self._send(f"READY=1\nSTATUS={status}")

    def pass_finished(self, status: str) -> None:
        """A reconcile pass went through: we are alive."""
        self._send(f"WATCHDOG=1\nSTATUS={status}")

    def stopping(self) -> None:
        """We are on our way out by choice."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        # An abstract socket is written with @ and addressed with a NUL byte.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            try:
                sock.sendto(message.encode(), socket.MSG_DONTWAIT, address)
            except OSError:
                # The supervisor went away, or does not read what it is sent: the work must go on, and it restarts us
                # if it minds.
                return
