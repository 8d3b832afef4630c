"""Sends the job's output to the daemon: append-only, by offset, so that neither side repeats or loses a byte."""

import threading
from pathlib import Path
from typing import List

from broker.node.link import Link, LinkDown

_BLOCK_BYTES = 256 << 10
_MAX_PAUSE_S = 30.0


class LogShipper:
    """Follows one growing file. The daemon's answer is where to go on from, also after either side's restart.

    Args:
        path: The job's output; it need not exist yet.
        every_s: Pause when there is nothing new.
    """

    def __init__(self, link: Link, path: Path, every_s: float = 1.0) -> None:
        self._link = link
        self._path = path
        self._every_s = every_s
        self._offset = 0
        self._asked = False
        self._wake = threading.Event()
        self._over = False
        self._waiting: List[threading.Event] = []
        self._thread = threading.Thread(target=self._follow, name="logs", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def catch_up(self, within_s: float) -> None:
        """Wait until all that is there now has been sent, at most `within_s`.

        A job's end must not be told before its last words: the daemon may have the node deleted at once.
        """
        sent = threading.Event()
        self._waiting.append(sent)
        self._wake.set()
        sent.wait(within_s)

    def finish(self, within_s: float) -> None:
        """Send what is there, then stop."""
        self._over = True
        self._wake.set()
        self._thread.join(within_s)

    def _follow(self) -> None:
        pause_s = self._every_s
        while True:
            self._wake.clear()
            last, waiting = self._over, self._waiting.copy()
            try:
                while self._send():
                    pass
                pause_s = self._every_s
                for sent in waiting:
                    self._waiting.remove(sent)
                    sent.set()
            except LinkDown:
                pause_s = min(2 * pause_s, _MAX_PAUSE_S)
            if last:
                return
            self._wake.wait(pause_s)

    def _send(self) -> bool:
        """Send one block; False when there was nothing to send."""
        data = self._read()
        if not data:
            return False
        if not self._asked:
            # Before the first bytes: how much does the daemon have from before our restart?
            self._offset = self._link.append_log(0, b"")
            self._asked = True
            data = self._read()
            if not data:
                return False
        size = self._link.append_log(self._offset, data)
        if size == self._offset:
            return False  # it took nothing: its limit, or a gap that it does not tell of; no use in hurrying
        self._offset = size
        return True

    def _read(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                return file.read(_BLOCK_BYTES)
        except OSError:
            return b""
