"""``GET /api/v1/events``: the event log as server-sent events, from any point on.

The `id` of each message is the event's number, so a client that reconnects with ``Last-Event-ID`` misses nothing and
sees nothing twice: the log is append-only and numbers are never given twice.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from broker.core.errors import UsageError
from broker.core.model import Event
from broker.core.plain import to_plain
from broker.core.time import LONGEST_S, MS
from broker.serve.auth import Broker, Principal, Viewer
from broker.serve.numbers import Number
from broker.serve.services import Services
from broker.store.access import Role

# Real seconds: how late a watcher may hear of an event. Reading the log's end costs some 50 microseconds.
_LOOK_EVERY_S = 0.5
_BATCH = 500
# Proxies cut connections that are silent for a minute.
_PING_S = 15

router = APIRouter(prefix="/api/v1")


@router.get("/events", tags=["events"], response_class=EventSourceResponse)
async def events(
    request: Request,
    viewer: Viewer,
    broker: Broker,
    after: Annotated[
        Number | None,
        Query(ge=0, le=2**63 - 1, description="Start behind this event; default: only new ones."),
    ] = None,
    job: Annotated[str | None, Query(description="Only of this job (id).")] = None,
    since_s: Annotated[
        Number | None,
        Query(ge=0, le=LONGEST_S, description="Start so many seconds ago, on the daemon's clock."),
    ] = None,
    follow: Annotated[bool, Query(description="False: end where the log ends now.")] = True,
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventSourceResponse:
    """Events as they happen, each with its number as `id`, its kind as `event` and its JSON as `data`."""
    start = _start(after, last_event_id)
    if start is None:
        start = await run_in_threadpool(_seq_before, broker, since_s)
    return EventSourceResponse(_follow(request, broker, viewer, start, job, follow), ping=_PING_S)


def _start(after: int | None, last_event_id: str | None) -> int | None:
    if last_event_id is None:
        return after
    if not (last_event_id.isascii() and last_event_id.isdecimal()) or len(last_event_id) > 18:
        raise UsageError(f"Last-Event-ID {last_event_id!r} is no event number")
    return int(last_event_id)


async def _follow(
    request: Request, broker: Services, viewer: Principal, seq: int, job_id: str | None, on: bool
) -> AsyncIterator[ServerSentEvent]:
    while not await request.is_disconnected():
        batch = await run_in_threadpool(_batch, broker, viewer, seq, job_id)
        for event in batch:
            seq = event.seq
            yield ServerSentEvent(id=str(seq), event=event.kind, data=json.dumps(to_plain(event)))
        if len(batch) < _BATCH:
            if not on:
                return
            await asyncio.sleep(_LOOK_EVERY_S)


def _batch(broker: Services, viewer: Principal, seq: int, job_id: str | None) -> list[Event]:
    project = None if viewer.role == Role.OPERATOR else viewer.project_id
    with broker.store.read() as tx:
        return tx.events(seq, job_id, _BATCH, project_id=project)


def _seq_before(broker: Services, since_s: int | None) -> int:
    """Number of the last event before that time; of the last of all when there is none to start from.

    Bisected: numbers and times grow together, and there is no index over times.
    """
    with broker.store.read() as tx:
        before, end = 0, tx.last_seq()
        if since_s is None:
            return end
        since_ms = broker.clock.now_ms() - since_s * MS
        while before < end:
            middle = (before + end) // 2
            following = tx.events(middle, None, 1)
            if following and following[0].at_ms < since_ms:
                before = following[0].seq
            else:
                end = middle
        return before
