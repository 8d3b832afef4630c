"""``python -m tests.process.large_lab``: a lab with price lists as long as real ones, that keeps a list of its calls.

``calls.log`` has a line for each: the monotonic second, the cloud, the call, the status.
"""

import re
import sys
import time
from pathlib import Path

from lab import __main__ as plain
from lab.faces import Face, Handler, Reply, Request
from lab.running import Lab
from tests.contract.aws.many_series import many_series

CALLS = "calls.log"
FILLER = {"gcp": 3_000, "azure": 12_000}
_ACTION = re.compile(rb"(?:^|&)Action=(\w+)")


class LargeLab(Lab):
    """AWS has four thousand spot prices; the rest is the scenario's."""

    def open_face(self, cloud: str, face: Face) -> str:
        """As everywhere, with every call noted."""
        handler = many_series(face) if cloud == "aws" else face
        return super().open_face(cloud, _Noted(face, handler, cloud, self.folder / CALLS))


class _Noted:
    def __init__(self, face: Face, handler: Handler, cloud: str, file: Path) -> None:
        self.operations, self.kinds = face.operations, face.kinds
        self._handler, self._cloud = handler, cloud
        self._log = file.open("a", buffering=1, encoding="utf-8")

    def __call__(self, request: Request) -> Reply:
        began_s = time.monotonic()
        reply = self._handler(request)
        self._log.write(f"{began_s:.4f} {self._cloud} {_call(request)} {reply.status}\n")
        return reply


def _call(request: Request) -> str:
    """What the cloud calls it, or the end of its path."""
    if target := request.headers.get("x-amz-target"):
        return target.rpartition(".")[2]
    action = _ACTION.search(request.body) if request.path == "/" else None
    return action[1].decode() if action else request.path.rstrip("/").rpartition("/")[2] or "/"


if __name__ == "__main__":
    sys.exit(plain.main(LargeLab))
