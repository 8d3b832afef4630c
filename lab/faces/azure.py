"""Azure on one HTTPS port: the retail price list, Entra ID, and what the resource manager tells of one subscription.

A call of the resource manager is refused when its body does not fit Microsoft's own models.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from lab.faces import DropConnection, Face, Reply, Request
from lab.faces.azure_arm import Arm
from lab.faces.azure_errors import ArmError, RetailError, arm_refusal, retail_refusal
from lab.faces.azure_graph import Graph
from lab.faces.azure_meters import Meters
from lab.faces.azure_models import find, problems
from lab.faces.azure_retail import PATH, Retail
from lab.faces.azure_tokens import Account, Tokens
from lab.faults import ON_EVERY_CALL, Fault, FaultKind
from lab.world import World

RETAIL, TOKEN = "RetailPrices", "Token"
_log = logging.getLogger("lab.azure")


def create(world: World, account: Account, filler: int = 0) -> Face:
    """The face over a world, for one application with the Reader role on one subscription.

    Args:
        filler: Rows of other machines in the price list of each region; a real region has some 12,000.
    """
    return Azure(world, account, filler)


class Azure:
    """Authentication, faults and protocol; what the calls mean is in the modules beside it."""

    operations = (RETAIL, TOKEN, "ResourceSkus_List", "Usage_List", "SpotPlacementScores_Post", "Resources")
    kinds = ON_EVERY_CALL | {
        FaultKind.PARTIAL_PAGE,
        FaultKind.LINK_LOST,
        FaultKind.STALE,
        FaultKind.WRONG_CURRENCY,
    }

    def __init__(self, world: World, account: Account, filler: int = 0) -> None:
        self._world = world
        self._account = account
        self._tokens = Tokens(account)
        self._retail = Retail(Meters(world, filler))
        self._arm = Arm(world)
        self._graph = Graph(world)

    def __call__(self, request: Request) -> Reply:
        """One call."""
        try:
            if request.path == PATH:
                return self._prices(request)
            if self._tokens.handles(request.path):
                return self._token(request)
            return self._managed(request)
        except (RetailError, ArmError) as error:
            _log.info("%s %s: %s", request.method, request.path, error)
            return error.reply()

    def _prices(self, request: Request) -> Reply:
        fault = self._take(RETAIL)
        if fault is not None and (error := retail_refusal(fault.kind)) is not None:
            raise error
        return self._acted(fault, self._retail.answer(request, None if fault is None else fault.kind))

    def _token(self, request: Request) -> Reply:
        fault = self._take(TOKEN) if request.method == "POST" else None
        if (
            fault is not None
            and (error := retail_refusal(fault.kind))
            and fault.kind is not FaultKind.EXPIRED
        ):
            raise error
        expired = fault is not None and fault.kind is FaultKind.EXPIRED
        return self._acted(fault, self._tokens.answer(request, expired))

    def _managed(self, request: Request) -> Reply:
        self._tokens.check(request)
        found = find(request.method, request.path)
        if found is None:
            raise ArmError(
                404, "InvalidResourceType", f"{request.method} {request.path} is no call of the lab"
            )
        operation, path = found
        query = dict(request.query)
        if not query.get("api-version"):
            raise ArmError(400, "MissingApiVersionParameter", "The api-version query parameter is required.")
        subscription = path.get("subscription", self._account.subscription)
        if subscription != self._account.subscription:
            raise ArmError(
                404, "SubscriptionNotFound", f"The subscription '{subscription}' could not be found."
            )
        body = self._body(request, operation.request)
        fault = self._take(operation.id)
        if fault is not None and (error := arm_refusal(operation.id, fault.kind)) is not None:
            raise error
        kind = None if fault is None else fault.kind
        answers: Mapping[str, Callable[[], dict[str, Any]]] = {
            "ResourceSkus_List": lambda: self._arm.skus(query),
            "Usage_List": lambda: self._arm.usages(path["location"]),
            "SpotPlacementScores_Post": lambda: self._arm.scores(path["location"], body),
            "Resources": lambda: self._graph.resources(body, kind),
        }
        return self._acted(fault, Reply.of_json(answers[operation.id]()))

    def _body(self, request: Request, model: type | None) -> Any:
        try:
            body = request.json()
        except ValueError:
            raise ArmError(400, "InvalidRequestContent", "The request content was invalid.") from None
        if model is not None and (wrong := problems(model, body)):
            raise ArmError(400, "InvalidRequestContent", f"The request content was invalid: {wrong[0]}")
        for subscription in (body or {}).get("subscriptions") or ():
            if subscription != self._account.subscription:
                raise ArmError(403, "AuthorizationFailed", "The provided credentials have no access to it.")
        return body

    def _take(self, operation: str) -> Fault | None:
        """The fault for this call, with what it does before anything else done."""
        fault = self._world.faults.take("azure", operation)
        if fault is not None:
            _log.info("fault %s on %s", fault.kind, operation)
            if fault.kind in (FaultKind.REQUEST_LOST, FaultKind.DOWN):
                raise DropConnection
            if fault.kind is FaultKind.SLOW:
                time.sleep(fault.seconds)
        return fault

    def _acted(self, fault: Fault | None, reply: Reply) -> Reply:
        """The reply, with what a fault does to it."""
        if fault is not None and fault.kind is FaultKind.REPLY_LOST:
            raise DropConnection
        if fault is not None and fault.kind is FaultKind.WRONG_SHAPE:
            return Reply(reply.status, reply.body[: len(reply.body) // 2], reply.headers)
        return reply
