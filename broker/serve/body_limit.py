"""No body of the JSON API is read without bound: a few bytes a call are enough for all of them. Nor is one with a
text that cannot be kept: see `broker.serve.body_text`.

Routes that take more read their body in pieces, with a limit of their own (`broker.serve.files`), and are left alone.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.core.errors import UsageError
from broker.serve.body_text import why_illegible
from broker.serve.problem import TooLarge, problem, status_of

BODY_MAX_BYTES: Final = 1 << 20
# Sources, and what agents send: messages, logs.
_OWN_LIMIT: Final = re.compile(r"/api/v1/sources/|/agent/")


@dataclass(frozen=True)
class BodyLimit:
    """ASGI middleware: 413 as soon as a body turns out longer than `BODY_MAX_BYTES`; at once where its length is told.

    422 for a body with a text that cannot be kept.
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _OWN_LIMIT.match(scope["path"]):
            await self.app(scope, receive, send)
            return
        told = dict(scope["headers"]).get(b"content-length", b"")
        body = None if told.isdigit() and int(told[:20]) > BODY_MAX_BYTES else await _body(receive)
        error: UsageError | None = None
        if body is None:
            error = TooLarge(f"the body is longer than {BODY_MAX_BYTES} bytes, more than this call takes")
        elif why := why_illegible(body):
            error = UsageError(why)
        if error is not None:
            answer = problem(status_of(error), error.code, error.message, exit_code=error.exit_code)
            await answer(scope, receive, send)
            return
        await self.app(scope, _Again(body or b"", receive), send)


class _Again:
    """What the application receives: the body in one piece, then whatever comes (a client that goes away)."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            return await self._receive()
        return {"type": "http.request", "body": body, "more_body": False}


async def _body(receive: Receive) -> bytes | None:
    """All of it; None when it is too long. What a client that has gone away had sent is enough: nobody will listen."""
    body = bytearray()
    while True:
        message: Any = await receive()
        body += message.get("body", b"")
        if len(body) > BODY_MAX_BYTES:
            return None
        if not message.get("more_body", False):
            return bytes(body)
