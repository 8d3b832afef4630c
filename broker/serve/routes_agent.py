"""``/agent/v1``: what nodes call. The messages and their meaning are in `broker.wire.messages`.

A node proves itself by its token and the secret that it made before its first call. The first secret that is shown
for a token is the node's; the same one may be shown again (a lost reply), another is refused.
"""

import hashlib
import hmac
import json
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import structlog
from fastapi import APIRouter, FastAPI, Header, Request, Response
from fastapi.responses import FileResponse
from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool

from broker.core.errors import AuthError, NotFound, UsageError
from broker.core.model import Event, Node, NodeState, Verdict
from broker.serve import files
from broker.serve.auth import Broker
from broker.serve.beats import over, restarted, take_beat
from broker.serve.problem import Gone, Unauthenticated
from broker.serve.services import Services
from broker.store.memory import ProbeReport
from broker.store.state import Tx
from broker.wire.bounds import bounded, legible, legible_json
from broker.wire.messages import (
    ORDER_EXIT,
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    Beat,
    Directive,
    Hello,
    Welcome,
    encode,
)

_MESSAGE_MAX_BYTES = 1 << 20
_LOG_CHUNK_MAX_BYTES = 8 << 20

M = TypeVar("M", Hello, Beat)
_READERS: dict[type[Any], TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (Hello, Beat)}

log = structlog.get_logger(__name__)

router = APIRouter(prefix="/agent/v1", tags=["agent"], include_in_schema=False)

Authorization = Annotated[str, Header()]


@router.post("/hello")
async def hello(request: Request, broker: Broker) -> Response:
    """One-time token for a session."""
    message = _message(Hello, await files.read_at_most(request.stream(), _MESSAGE_MAX_BYTES))
    return _answer(await run_in_threadpool(_hello, broker, message))


@router.post("/beat")
async def beat(request: Request, broker: Broker, authorization: Authorization = "") -> Response:
    """What is true on the node, for what is wanted of it."""
    body = await files.read_at_most(request.stream(), _MESSAGE_MAX_BYTES)
    return _answer(await run_in_threadpool(_read_beat, broker, authorization, body, _refused(request.app)))


@router.post("/logs")
async def logs(
    request: Request, offset: int, broker: Broker, authorization: Authorization = ""
) -> dict[str, int]:
    """Append to the node's log."""
    if offset < 0:
        raise UsageError(f"offset {offset} is negative")
    data = await files.read_at_most(request.stream(), _LOG_CHUNK_MAX_BYTES)
    return {"size": await run_in_threadpool(_append, broker, authorization, offset, data)}


@router.get("/agent.pyz")
def agent(broker: Broker, sha256: str = "") -> Response:
    """The agent. Public: user-data fetches it before there is a secret, and pins its hash.

    A node that boots across an upgrade was promised the agent of the release before.
    """
    wanted = sha256 or broker.agent_sha256
    data = broker.agent_bytes
    if wanted != broker.agent_sha256:
        try:
            data = files.agent_file(broker.agent_dir, wanted).read_bytes()
        except FileNotFoundError:
            raise NotFound(f"no agent {wanted}") from None
    return Response(data, media_type="application/zip", headers={"X-Agent-SHA256": wanted})


@router.get("/source/{sha256}")
def source(sha256: str, broker: Broker, authorization: Authorization = "") -> Response:
    """The files of the node's own job, and of no other."""
    with broker.store.read() as tx:
        node = _known(tx, authorization)
        job = tx.job(node.job_id)
    file = files.source_file(broker.source_dir, sha256)
    if job is None or job.spec.source is None or job.spec.source.sha256 != sha256 or not file.is_file():
        raise NotFound(f"no source {sha256} for this node")
    return FileResponse(file, media_type="application/gzip")


def _hello(broker: Services, message: Hello) -> Welcome:
    protocol = min(message.protocol_max, PROTOCOL_MAX)
    if protocol < max(message.protocol_min, PROTOCOL_MIN):
        raise UsageError(
            f"the agent speaks protocol {message.protocol_min} to {message.protocol_max}, "
            f"this daemon {PROTOCOL_MIN} to {PROTOCOL_MAX}"
        )
    if len(message.secret) < 16:
        raise UsageError("a secret of fewer than 16 characters can be guessed")
    digest = _sha256(message.secret)
    with broker.store.write() as tx:
        node = tx.node(message.token)
        if node is None:
            raise AuthError("unknown node")
        if node.state == NodeState.GONE:
            raise Gone(f"node {node.token} is gone")
        if node.secret_sha256 is not None and not hmac.compare_digest(node.secret_sha256, digest):
            # Somebody else got hold of the user-data, or the disk was replaced. Neither may speak for this node.
            raise AuthError("this token has been exchanged for another secret")
        now_ms = broker.clock.now_ms()
        if node.secret_sha256 is None:
            tx.emit(
                Event(
                    "node.hello",
                    now_ms,
                    actor="node",
                    project_id=node.project_id,
                    job_id=node.job_id,
                    placement_id=node.placement_id,
                    node_token=node.token,
                    data={"protocol": protocol},
                )
            )
        tx.save(replace(restarted(node), secret_sha256=digest, seen_at_ms=now_ms))
    broker.wake()
    return Welcome(protocol, broker.settings.timing.beat_s / broker.clock.rate)


def _refused(app: FastAPI) -> set[str]:
    """Nodes of whose beats one has been refused since this process began: each is logged once."""
    if not hasattr(app.state, "refused"):
        app.state.refused = set()
    refused: set[str] = app.state.refused
    return refused


def _read_beat(broker: Services, authorization: str, body: bytes, refused: set[str]) -> Directive:
    try:
        message = _message(Beat, body)
    except UsageError as error:
        with broker.store.read() as tx:
            token = _known(tx, authorization).token
        if token not in refused:
            refused.add(token)
            log.warning("beat.refused", node=token, error=str(error)[:500])
        raise
    return _beat(broker, authorization, message)


def _beat(broker: Services, authorization: str, message: Beat) -> Directive:
    rate = broker.clock.rate
    with broker.store.write() as tx:
        node = _known(tx, authorization)
        if node.state == NodeState.GONE:
            return _exit(broker)
        job = tx.job(node.job_id)
        assert job is not None, "a node's job is a foreign key"
        taken = take_beat(node, job, message, broker.clock.now_ms(), rate)
        if not taken.stale:
            tx.save(taken.node)
            if taken.job != job:
                tx.save(taken.job)
            for event in taken.events:
                tx.emit(event)
            if taken.probe is not None:
                verdict = _verdict(taken.probe.get("verdict"))
                tx.save_probe_report(
                    ProbeReport(node.token, node.placement_id, broker.clock.now_ms(), verdict, taken.probe)
                )
    if taken.events or node.report.get("phase") != message.phase:
        broker.wake()
    if over(node):
        return _exit(broker)
    # Apart from the write: a directive may mint store credentials, and no writer waits for a network.
    with broker.store.read() as tx:
        return broker.directive(tx, taken.node)


def _append(broker: Services, authorization: str, offset: int, data: bytes) -> int:
    with broker.store.read() as tx:
        node = _known(tx, authorization)
        placement = tx.placement(node.placement_id)
    assert placement is not None, "a node's placement is a foreign key"
    heading = f"--- attempt {placement.attempt} on {placement.offer.key} ---"
    also = files.job_log(broker.log_dir, node.job_id) if node.rank == 0 else None
    return files.append_log(files.node_log(broker.log_dir, node.token), offset, data, also, heading)


def _known(tx: Tx, authorization: str) -> Node:
    """The node that an ``Authorization: Bearer TOKEN:SECRET`` belongs to.

    Raises:
        AuthError: it belongs to none.
    """
    scheme, _, credentials = authorization.partition(" ")
    token, _, secret = credentials.strip().partition(":")
    if scheme.lower() != "bearer" or not secret:
        raise Unauthenticated("this needs `Authorization: Bearer TOKEN:SECRET`")
    node = tx.node(token)
    if (
        node is None
        or node.secret_sha256 is None
        or not hmac.compare_digest(node.secret_sha256, _sha256(secret))
    ):
        raise AuthError("unknown node, or not its secret")
    return node


def _exit(broker: Services) -> Directive:
    timing, rate = broker.settings.timing, broker.clock.rate
    return Directive(ORDER_EXIT, timing.beat_s / rate, timing.run_lease_s / rate, timing.dead_man_s / rate)


def _verdict(text: object) -> Verdict:
    try:
        return Verdict(str(text))
    except ValueError:
        return Verdict.INCONCLUSIVE


def _message(kind: type[M], body: bytes) -> M:
    """A message, with every field of its declared type and within its bounds: what is stored must decode again.

    What a job can put out of bounds (its numbers, its names) is left out or mended: it is to go on.

    Raises:
        UsageError: a field that must be there is none, or out of its bounds.
    """
    try:
        document = legible_json(json.loads(body))
        return bounded(_READERS[kind].validate_python(document))  # type: ignore[no-any-return]
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not a {kind.__name__}: {legible(str(error), 1000)}") from error


def _answer(message: Any) -> Response:
    return Response(encode(message), media_type="application/json")


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
