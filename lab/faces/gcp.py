"""Google Cloud: Compute Engine v1, Cloud Billing v1 and the token end point on one HTTPS port.

A request is found in Google's discovery documents, and refused when its query or body does not fit them. A throttled
reply carries a ``Retry-After`` of the fault's seconds, when it has any.
"""

import logging
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from lab.faces import DropConnection, Face, Reply, Request
from lab.faces.gcp_advice import Advice
from lab.faces.gcp_billing import Billing
from lab.faces.gcp_compute import Compute
from lab.faces.gcp_discovery import Api, Method
from lab.faces.gcp_errors import Call, GcpError, refusal
from lab.faces.gcp_tokens import Tokens
from lab.faults import ON_EVERY_CALL, RENTING, Fault, FaultKind
from lab.world import World

_log = logging.getLogger("lab.gcp")


def create(world: World, project: str, service_account: str, public_key_pem: str, filler: int = 0) -> Face:
    """The face over a world, for one project and one service account.

    Args:
        filler: SKUs of other machines in the price list.
    """
    return Gcp(world, project, Tokens(service_account, public_key_pem), filler)


@cache
def apis() -> tuple[Api, Api]:
    """The two APIs; reading their documents takes a moment, once."""
    return Api("compute.v1"), Api("cloudbilling.v1")


class Gcp:
    """Authentication, faults and protocol; what the calls mean is in `gcp_compute`, `gcp_advice`, `gcp_billing`."""

    kinds = ON_EVERY_CALL | RENTING | {FaultKind.PARTIAL_PAGE, FaultKind.LINK_LOST, FaultKind.WRONG_CURRENCY}

    def __init__(self, world: World, project: str, tokens: Tokens, filler: int = 0) -> None:
        self._world = world
        self._project = project
        self._tokens = tokens
        self._apis = apis()
        self._operations: Mapping[str, Callable[[Call], dict[str, Any]]] = {
            **Compute(world, project).operations,
            **Advice(world, project).operations,
            **Billing(world, filler).operations,
        }
        self.operations = tuple(self._operations)

    def __call__(self, request: Request) -> Reply:
        """One call."""
        if (request.method, request.path) == ("POST", "/token"):
            return self._tokens.exchange(request)
        try:
            user = self._tokens.caller(request)
            for api in self._apis:
                if found := api.find(request.method, request.path):
                    call = self._call(api, *found, request, user)
                    answer = self._perform(call)
                    if call.fault is FaultKind.WRONG_SHAPE:
                        answer = {key: {"surprise": True} for key in answer}
                    return Reply.of_json(answer)
            raise GcpError(404, "notFound", f"{request.method} {request.path} is no method of these APIs")
        except GcpError as error:
            _log.info("%s %s: %s", request.method, request.path, error)
            reply = Reply.of_json(error.document(), error.status)
            return Reply(reply.status, reply.body, {**reply.headers, **error.headers})

    def _call(self, api: Api, method: Method, path: dict[str, str], request: Request, user: str) -> Call:
        """The call, checked against the vendor's schema.

        Raises:
            GcpError: not one that the lab has, of another project, or not of the right shape.
        """
        if method.id not in self._operations:
            raise GcpError(404, "notFound", f"The lab has no {method.id}")
        if path.get("project", self._project) != self._project:
            raise GcpError(403, "forbidden", f"Permission denied on resource project {path['project']}.")
        query = dict(request.query)
        if unknown := api.unknown_parameters(method, list(query)):
            raise GcpError(400, "badRequest", f"Invalid query parameter '{unknown[0]}'.")
        try:
            body = request.json()
        except ValueError:
            raise GcpError(400, "parseError", "Parse Error") from None
        if method.request and (problems := api.problems(method.request, body)):
            raise GcpError(400, "badRequest", f"Invalid JSON payload received. {problems[0]}")
        return Call(method.id, path, query, body, user)

    def _perform(self, call: Call) -> dict[str, Any]:
        fault = self._world.faults.take("gcp", call.operation)
        if fault is not None:
            _log.info("fault %s on %s", fault.kind, call.operation)
            self._before(call, fault)
        answer = self._operations[call.operation](call)
        if fault is not None and fault.kind is FaultKind.REPLY_LOST:
            raise DropConnection
        return answer

    def _before(self, call: Call, fault: Fault) -> None:
        """What a fault does before the call is performed; the rest travels with the call."""
        if fault.kind in (FaultKind.REQUEST_LOST, FaultKind.DOWN):
            raise DropConnection
        if fault.kind is FaultKind.SLOW:
            time.sleep(fault.seconds)
        if (error := refusal(call.operation, fault.kind)) is not None:
            if fault.kind is FaultKind.THROTTLE and fault.seconds:
                error.headers = {"Retry-After": f"{fault.seconds:g}"}
            raise error
        call.fault = fault.kind
