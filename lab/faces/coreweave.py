"""CoreWeave: the reading side of one CKS cluster's Kubernetes API; and what an operator's kubeconfig for it holds.

The cluster has a node pool of one node for everything that the world sells in its zone. Where the world has a node
left, the pool has got its node; where it has none, the pool waits, and its condition says why.
"""

import base64
import hmac
import json
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from lab.faces import DropConnection, Face, Reply, Request
from lab.faces.coreweave_objects import DISCOVERY, node, node_pool, status
from lab.faults import ON_EVERY_CALL, Fault, FaultKind
from lab.world import World

_THROTTLED_S = 2
_LARGEST_PAGE = 500
_EXPIRED = "expired"
_LISTS = {"nodepools": ("NodePoolList", "compute.coreweave.com/v1alpha1"), "nodes": ("NodeList", "v1")}
_log = logging.getLogger("lab.coreweave")

_POOLS = "/apis/compute.coreweave.com/v1alpha1/nodepools"
_NODES = "/api/v1/nodes"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def create(world: World, zone: str, token: str) -> Face:
    """The face over a world: the cluster of one zone."""
    return Cluster(world, zone, token)


def kubeconfig(url: str, ca_pem: bytes, token: str) -> str:
    """A kubeconfig as the Cloud Console hands it out, with the token in it."""
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(ca_pem).decode()}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "current-context": "lab",
    }
    return json.dumps(document, indent=2)  # JSON is YAML


class KubeError(Exception):
    """A refusal as Kubernetes sends it."""

    def __init__(self, code: int, reason: str, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s

    def reply(self) -> Reply:
        """As HTTP."""
        reply = Reply.of_json(status(self.code, self.reason, self.message, self.retry_after_s), self.code)
        if self.retry_after_s is None:
            return reply
        return Reply(reply.status, reply.body, {**reply.headers, "Retry-After": str(self.retry_after_s)})


class Cluster:
    """Token, faults, lists with their pages."""

    operations = (
        *(f"{name}.{verb}" for name in _LISTS for verb in ("list", "get")),
        "selfsubjectaccessreviews.create",
        "version.get",
        "discovery",
    )
    kinds = ON_EVERY_CALL | {FaultKind.PARTIAL_PAGE}

    def __init__(self, world: World, zone: str, token: str) -> None:
        self._world = world
        self._zone = zone
        self._token = token

    def __call__(self, request: Request) -> Reply:
        """One call."""
        try:
            kind, _, given = request.headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.encode(), self._token.encode()):
                raise _unauthorized()
            name, answer = self._route(request)
            return self._perform(name, request, answer)
        except KubeError as error:
            _log.info("%s %s: %s", request.method, request.path, error)
            return error.reply()

    def _route(self, request: Request) -> tuple[str, Callable[[Request, Fault | None], Any]]:
        path = request.path.rstrip("/")
        if request.method == "POST" and path == _REVIEWS:
            return "selfsubjectaccessreviews.create", self._review
        if request.method != "GET":
            raise KubeError(
                405, "MethodNotAllowed", f"the lab's cluster is not to be changed: {request.method}"
            )
        if path in DISCOVERY:
            return "version.get" if path == "/version" else "discovery", lambda *_: DISCOVERY[path]
        for prefix, name in ((_POOLS, "nodepools"), (_NODES, "nodes")):
            if path == prefix:
                return f"{name}.list", partial(self._list, name)
            if path.startswith(f"{prefix}/"):
                return f"{name}.get", partial(self._get, name)
        raise KubeError(404, "NotFound", "the server could not find the requested resource")

    def _perform(
        self, operation: str, request: Request, answer: Callable[[Request, Fault | None], Any]
    ) -> Reply:
        fault = self._world.faults.take("coreweave", operation)
        if fault is not None:
            _log.info("fault %s on %s", fault.kind, operation)
            _act_out(fault, operation)
            if fault.kind is FaultKind.WRONG_SHAPE:
                return Reply(200, b"<html>Sign in</html>", {"Content-Type": "text/html"})
        document = answer(request, fault)
        if fault is not None and fault.kind is FaultKind.REPLY_LOST:
            raise DropConnection
        return Reply.of_json(document, 201 if request.method == "POST" else 200)

    def _review(self, request: Request, fault: Fault | None) -> dict[str, Any]:
        try:
            review = request.json()
        except ValueError:
            raise KubeError(400, "BadRequest", "the body is no JSON") from None
        if not isinstance(review, dict) or not isinstance(review.get("spec"), dict):
            raise KubeError(400, "BadRequest", "no SelfSubjectAccessReview")
        wanted = review["spec"].get("resourceAttributes") or {}
        allowed = (fault is None or fault.kind is not FaultKind.DENIED) and wanted.get("verb") in (
            "get",
            "list",
        )
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": review["spec"],
            "status": {"allowed": allowed},
        }

    def _list(self, name: str, request: Request, fault: Fault | None) -> dict[str, Any]:
        """One page. `FaultKind.PARTIAL_PAGE`: it is right and short, and the one after it has expired (410)."""
        token, limit = request.param("continue", "0"), request.param("limit", "0")
        if token == _EXPIRED:
            raise KubeError(410, "Expired", "The provided continue parameter is too old")
        if not (token.isdecimal() and limit.isdecimal()):
            raise KubeError(400, "BadRequest", "limit and continue are as they were given")
        objects = self._node_pools() if name == "nodepools" else self._nodes()
        start = int(token)
        end = start + (int(limit) or _LARGEST_PAGE)
        more = str(end)
        if fault is not None and fault.kind is FaultKind.PARTIAL_PAGE:
            end, more = start + max(1, len(objects) // 2), _EXPIRED
        about: dict[str, Any] = {"resourceVersion": str(len(objects) + 1)}
        if end < len(objects):
            about |= {"continue": more, "remainingItemCount": len(objects) - end}
        kind, version = _LISTS[name]
        return {"apiVersion": version, "kind": kind, "metadata": about, "items": objects[start:end]}

    def _get(self, name: str, request: Request, fault: Fault | None) -> dict[str, Any]:
        wanted = request.path.rstrip("/").rpartition("/")[2]
        for item in self._node_pools() if name == "nodepools" else self._nodes():
            if item["metadata"]["name"] == wanted:
                return item
        raise KubeError(404, "NotFound", f'{name} "{wanted}" not found')

    def _node_pools(self) -> list[dict[str, Any]]:
        now_s = self._world.advance()
        return [
            node_pool(pool, self._world.free(pool.key) != 0, self._world.start_s, now_s)
            for pool in self._world.pools.values()
            if pool.listing.zone.id == self._zone and pool.listing.zone.cloud == "coreweave"
        ]

    def _nodes(self) -> list[dict[str, Any]]:
        now_s = self._world.advance()
        return [
            node(pool, self._zone, self._world.start_s, now_s)
            for pool in self._world.pools.values()
            if pool.listing.zone.id == self._zone
            and pool.listing.zone.cloud == "coreweave"
            and self._world.free(pool.key) != 0
        ]


def _act_out(fault: Fault, operation: str) -> None:
    """What a fault does before the call is performed."""
    if fault.kind in (FaultKind.REQUEST_LOST, FaultKind.DOWN):
        raise DropConnection
    if fault.kind is FaultKind.SLOW:
        time.sleep(fault.seconds)
    if fault.kind is FaultKind.THROTTLE:
        raise KubeError(429, "TooManyRequests", "too many requests, please try again later", _THROTTLED_S)
    if fault.kind is FaultKind.EXPIRED:
        raise _unauthorized()
    if fault.kind is FaultKind.DENIED and not operation.startswith("selfsubjectaccessreviews"):
        raise KubeError(403, "Forbidden", f'User "lab" cannot {operation} at the cluster scope')
    if fault.kind is FaultKind.HTTP_500:
        raise KubeError(500, "InternalError", "Internal error occurred")


def _unauthorized() -> KubeError:
    return KubeError(401, "Unauthorized", "Unauthorized")
