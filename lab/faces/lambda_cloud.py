"""Lambda's public cloud: the reading side of its Cloud API 1.8.3, without the calls that rent.

Shapes are those of `lambda_cloud_schema`. The API's document names neither status nor code of a call too many: 429 is
what clients report, the code is ours. Its limit is a request a second for the account, in real time.
"""

import base64
import hmac
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from broker.core.time import to_iso
from lab.faces import DropConnection, Face, Reply, Request
from lab.faces.lambda_cloud_schema import OPERATIONS
from lab.faults import ON_EVERY_CALL, Fault, FaultKind
from lab.pools import Pool
from lab.sold.lambda_cloud import PLACES, STORAGE_GIB
from lab.world import World

_MICRO_USD_IN_CENT = 10_000
_THROTTLED_S = 3
_IMAGES_MADE_MS = 1_770_000_000_000
_log = logging.getLogger("lab.lambda")


def create(
    world: World,
    api_key: str,
    *,
    limit_s: float = 1.0,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> Face:
    """The face over a world.

    Args:
        limit_s: Real seconds that must lie between two requests; 0 for no limit.
    """
    return Lambda(world, api_key, limit_s, monotonic_s)


class LambdaError(Exception):
    """An error as Lambda sends it."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        suggestion: str,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.body = {"error": {"code": code, "message": message, "suggestion": suggestion}}
        self.retry_after_s = retry_after_s

    def reply(self) -> Reply:
        """As HTTP."""
        reply = Reply.of_json(self.body, self.status)
        if self.retry_after_s is None:
            return reply
        return Reply(reply.status, reply.body, {**reply.headers, "Retry-After": str(self.retry_after_s)})


class Lambda:
    """Limit, key, faults and the three lists. They have no pages and name no currency."""

    operations = tuple(operation for operation, _ in OPERATIONS.values())
    kinds = ON_EVERY_CALL

    def __init__(self, world: World, api_key: str, limit_s: float, monotonic_s: Callable[[], float]) -> None:
        self._world = world
        self._api_key = api_key
        self._limit_s = limit_s
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._last_s: float | None = None
        self._answers: Mapping[str, Callable[[], Any]] = {
            "listInstanceTypes": self._instance_types,
            "listInstances": list,
            "listImages": self._images,
        }

    def __call__(self, request: Request) -> Reply:
        """One call."""
        try:
            self._within_limit()
            self._authenticate(request)
            if request.method != "GET" or request.path not in OPERATIONS:
                raise LambdaError(
                    404,
                    "global/object-does-not-exist",
                    f"The lab has no {request.method} {request.path}.",
                    "Read what there is.",
                )
            return self._perform(OPERATIONS[request.path][0])
        except LambdaError as error:
            _log.info("%s %s: %s", request.method, request.path, error)
            return error.reply()

    def _within_limit(self) -> None:
        with self._lock:
            now_s, last_s = self._monotonic_s(), self._last_s
            self._last_s = now_s
        if last_s is not None and now_s - last_s < self._limit_s:
            raise _too_many(1)

    def _authenticate(self, request: Request) -> None:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "basic":
            try:
                given = base64.b64decode(given).decode()
            except ValueError:
                given = ""
            given = given.removesuffix(":")
        if not hmac.compare_digest(given.encode(), self._api_key.encode()):
            raise _unauthorized()

    def _perform(self, operation: str) -> Reply:
        fault = self._world.faults.take("lambda", operation)
        if fault is not None:
            _log.info("fault %s on %s", fault.kind, operation)
            _act_out(fault)
            if fault.kind is FaultKind.WRONG_SHAPE:
                page = b"<!doctype html><title>Lambda</title>Just a moment..."
                return Reply(200, page, {"Content-Type": "text/html; charset=utf-8"})
        reply = Reply.of_json({"data": self._answers[operation]()})
        if fault is not None and fault.kind is FaultKind.REPLY_LOST:
            raise DropConnection
        return reply

    def _instance_types(self) -> dict[str, Any]:
        """Every type that any region sells, with the regions that have a machine left."""
        now_s = self._world.advance()
        sold: dict[str, list[Pool]] = {}
        for pool in self._world.pools.values():
            if pool.listing.zone.cloud == "lambda":
                sold.setdefault(pool.listing.type.name, []).append(pool)
        return {
            name: {
                "instance_type": _type(pools[0], now_s),
                "regions_with_capacity_available": [
                    _region(pool.listing.zone.region) for pool in pools if self._world.free(pool.key) != 0
                ],
            }
            for name, pools in sold.items()
        }

    def _images(self) -> list[dict[str, Any]]:
        made = to_iso(_IMAGES_MADE_MS)
        return [
            {
                "id": f"{number:08x}-0000-4000-8000-000000000000",
                "created_time": made,
                "updated_time": made,
                "name": "ubuntu-24.04.01",
                "description": "Ubuntu LTS",
                "family": "ubuntu-lts",
                "version": "24.04.01",
                "architecture": "x86_64",
                "region": _region(name),
            }
            for number, name in enumerate(PLACES, start=1)
        ]


def _type(pool: Pool, now_s: int) -> dict[str, Any]:
    """Its price is the same in every region, and has no fraction of a cent."""
    kind = pool.listing.type
    return {
        "name": kind.name,
        "description": f"{kind.gpus}x {kind.vendor_gpu}",
        "gpu_description": kind.vendor_gpu,
        "price_cents_per_hour": round(pool.at(now_s).price_micro_usd_h / _MICRO_USD_IN_CENT),
        "specs": {
            "vcpus": kind.vcpus,
            "memory_gib": kind.memory_gib,
            "storage_gib": STORAGE_GIB[kind.name],
            "gpus": kind.gpus,
        },
    }


def _region(name: str) -> dict[str, str]:
    return {"name": name, "description": PLACES[name]}


def _act_out(fault: Fault) -> None:
    """What a fault does before the call is performed."""
    if fault.kind in (FaultKind.REQUEST_LOST, FaultKind.DOWN):
        raise DropConnection
    if fault.kind is FaultKind.SLOW:
        time.sleep(fault.seconds)
    if fault.kind is FaultKind.THROTTLE:
        raise _too_many(_THROTTLED_S)
    if fault.kind is FaultKind.EXPIRED:
        raise _unauthorized()
    if fault.kind is FaultKind.DENIED:
        raise LambdaError(403, "global/account-inactive", "The account is inactive.", "Check the billing.")
    if fault.kind is FaultKind.HTTP_500:
        raise LambdaError(500, "global/internal-error", "An internal error occurred.", "Try again later.")


def _too_many(retry_after_s: int) -> LambdaError:
    return LambdaError(
        429, "global/too-many-requests", "Too many requests.", "Send one a second.", retry_after_s
    )


def _unauthorized() -> LambdaError:
    return LambdaError(
        401, "global/invalid-api-key", "The API key is not valid.", "Check it, or make a new one."
    )
