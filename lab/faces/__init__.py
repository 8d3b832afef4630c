"""The vendors' APIs over one world. A face is a function from a request to a reply; `lab.serving` gives it HTTPS.

    aws.create(world, keys) -> Face                                     EC2, Pricing and STS
    gcp.create(world, project, service_account, public_key_pem) -> Face     Compute, Cloud Billing and the token end point

Handlers are called by many threads at once and may block. A face asks ``world.faults.take(cloud, operation)`` once
for each call; to act out a lost request or reply it raises `DropConnection`, before or after performing. A machine's
user-data runs by itself when the machine does (`lab.nodes` listens to the world): a face only passes it on in
`CreateRequest.user_data`. For GCP that is the ``startup-script`` metadata item.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from lab.faults import FaultKind


@dataclass(frozen=True)
class Request:
    """One HTTP request.

    Attributes:
        path: Without the query, percent-decoded.
        query: Decoded, in the order of the URL; a key may repeat.
        headers: Names in lower case.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]
    body: bytes

    def param(self, name: str, otherwise: str = "") -> str:
        """The last value of a query parameter."""
        return dict(self.query).get(name, otherwise)

    def json(self) -> Any:
        """The body as JSON; None when it is empty.

        Raises:
            ValueError: it is no JSON.
        """
        return json.loads(self.body) if self.body else None


@dataclass(frozen=True)
class Reply:
    """One HTTP reply; Content-Length and Date are the server's.

    Attributes:
        parts: The body of a long reply, made while it is sent; then `body` is empty.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    parts: Iterator[bytes] | None = None

    @classmethod
    def of_json(cls, document: Any, status: int = 200) -> "Reply":
        """A JSON reply."""
        return cls(status, json.dumps(document).encode(), {"Content-Type": "application/json; charset=UTF-8"})


class DropConnection(Exception):
    """Close the connection without a byte of reply."""


Handler = Callable[[Request], Reply]


class Face(Protocol):
    """A handler that is a whole cloud, and what can go wrong there on purpose."""

    @property
    def operations(self) -> Collection[str]:
        """The cloud's own names of its calls."""

    @property
    def kinds(self) -> Collection[FaultKind]:
        """What it can act out, on one of its calls at least."""

    def __call__(self, request: Request) -> Reply: ...
