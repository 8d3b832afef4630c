"""The hand on the world: a token-protected HTTP interface, and its client.

GET  /state                                     machines, prices, stock, faults, the time
GET  /truth                                     bill and log: what happened and what it costs
GET  /hold_cost?offer_key=K&from_s=A&to_s=B     what staying would have cost
GET  /console?machine=ID                        what a node has printed
POST /price      {offer_key, usd | factor}      of the pools that the cloud prices together
POST /doubt      {offer_key}                    an Azure price rises by what Windows costs
POST /stock      {offer_key, machines | null}
POST /interrupt  {machine, notice_s?}
POST /fault      {cloud, operation, kind, count?, seconds?}
POST /clear                                     no more faults
POST /shutdown
"""

import hmac
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import httpx

from broker.core.time import to_iso
from lab.faces import Face, Reply, Request
from lab.faults import Fault, FaultKind
from lab.licences import with_licence
from lab.machines import Machine, WorldError
from lab.world import World


class Control:
    """The interface over a world.

    Args:
        faces: By cloud.
        priced: Called with an offer's key when its price was set.
    """

    def __init__(
        self,
        world: World,
        token: str,
        faces: Mapping[str, Face],
        console: Callable[[str], str],
        shutdown: Callable[[], None],
        priced: Callable[[str], None] = lambda offer_key: None,
    ) -> None:
        self._world = world
        self._token = token
        self._faces = faces
        self._priced = priced
        self._console = console
        self._shutdown = shutdown

    def handle(self, request: Request) -> Reply:
        """One request."""
        if not hmac.compare_digest(request.headers.get("authorization", ""), f"Bearer {self._token}"):
            return Reply.of_json({"error": "wrong or missing token"}, 401)
        routes: dict[tuple[str, str], Callable[[Request], Any]] = {
            ("GET", "/state"): lambda _: self._state(),
            ("GET", "/truth"): lambda _: self._truth(),
            ("GET", "/hold_cost"): self._hold_cost,
            ("GET", "/console"): lambda asked: {"text": self._console(asked.param("machine"))},
            ("POST", "/price"): lambda asked: self._price(asked.json()),
            ("POST", "/doubt"): lambda asked: self._doubt(asked.json()),
            ("POST", "/stock"): lambda asked: self._stock(asked.json()),
            ("POST", "/interrupt"): lambda asked: self._interrupt(asked.json()),
            ("POST", "/fault"): lambda asked: self._fault(asked.json()),
            ("POST", "/clear"): lambda _: self._world.faults.clear(),
            ("POST", "/shutdown"): lambda _: self._shutdown(),
        }
        route = routes.get((request.method, request.path))
        if route is None:
            return Reply.of_json({"error": f"no {request.method} {request.path}"}, 404)
        try:
            return Reply.of_json(route(request) or {})
        except (WorldError, ValueError) as error:
            return Reply.of_json({"error": str(error)}, 400)
        except (KeyError, TypeError, InvalidOperation) as error:
            return Reply.of_json({"error": f"{type(error).__name__}: {error}"}, 400)

    def _state(self) -> dict[str, Any]:
        world, now_s = self._world, self._world.advance()
        return {
            "now_s": now_s,
            "now": to_iso(now_s * 1000),
            "rate": world.clock.rate,
            "machines": [shown(machine) for machine in world.machines()],
            "pools": {
                key: {
                    "price_micro_usd_h": pool.at(now_s).price_micro_usd_h,
                    "stock": pool.stock,
                    "free": world.free(key),
                }
                for key, pool in world.pools.items()
            },
            "faults": [asdict(fault) for fault in world.faults.pending()],
        }

    def _truth(self) -> dict[str, Any]:
        lines = [asdict(line) for line in self._world.bill()]
        return {
            "now_s": self._world.now_s(),
            "total_micro_usd": sum(line["cost_micro_usd"] for line in lines),
            "lines": lines,
            "log": [asdict(entry) for entry in self._world.log()],
        }

    def _hold_cost(self, asked: Request) -> dict[str, int]:
        span = int(asked.param("from_s")), int(asked.param("to_s"))
        return {"cost_micro_usd": self._world.hold_cost(asked.param("offer_key"), *span)}

    def _price(self, wish: Mapping[str, Any]) -> dict[str, int]:
        key = wish["offer_key"]
        if "usd" in wish:
            price = int(Decimal(str(wish["usd"])) * 1_000_000)
        else:
            price = int(self._world.price(key) * Decimal(str(wish["factor"])))
        if price <= 0:
            raise ValueError("a price must be positive")
        return self._set_price(key, price)

    def _doubt(self, wish: Mapping[str, Any]) -> dict[str, int]:
        key = wish["offer_key"]
        return self._set_price(key, with_licence(self._world, key))

    def _set_price(self, offer_key: str, price_micro_usd_h: int) -> dict[str, int]:
        self._world.set_price(offer_key, price_micro_usd_h)
        self._priced(offer_key)
        return {"price_micro_usd_h": price_micro_usd_h}

    def _stock(self, wish: Mapping[str, Any]) -> None:
        machines = wish["machines"]
        self._world.set_stock(wish["offer_key"], None if machines is None else int(machines))

    def _interrupt(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        notice_s = wish.get("notice_s")
        return shown(self._world.interrupt(wish["machine"], None if notice_s is None else int(notice_s)))

    def _fault(self, wish: Mapping[str, Any]) -> None:
        count = wish.get("count", 1)
        fault = Fault(
            cloud=str(wish["cloud"]),
            operation=str(wish["operation"]),
            kind=FaultKind(wish["kind"]),
            count=None if count is None else int(count),
            seconds=float(wish.get("seconds", 0)),
        )
        self._check(fault)
        self._world.faults.add(fault)

    def _check(self, fault: Fault) -> None:
        """A fault that no call would ever take is a mistake of whoever queues it."""
        face = self._faces.get(fault.cloud)
        if face is None:
            raise ValueError(f"no cloud {fault.cloud!r} here; there are {_listed(self._faces)}")
        if fault.operation not in ("*", *face.operations):
            raise ValueError(
                f"{fault.cloud} has no call {fault.operation!r} here; there are * and {_listed(face.operations)}"
            )
        if fault.kind not in face.kinds:
            raise ValueError(
                f"{fault.cloud} cannot act out {fault.kind} here; it can {_listed(map(str, face.kinds))}"
            )
        if fault.count is not None and fault.count < 1:
            raise ValueError("a fault happens once at least")
        if not (math.isfinite(fault.seconds) and fault.seconds >= 0):
            raise ValueError("seconds must be a number, and not below zero")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def shown(machine: Machine) -> dict[str, Any]:
    """A machine without its script."""
    row = asdict(machine)
    del row["request"]
    return row | {"offer_key": machine.offer_key, "name": machine.name, "token": machine.token}


class LabClient:
    """A running lab, from outside.

    Attributes:
        info: ``lab.json``: end points, keys, the environment that a broker needs.
    """

    def __init__(self, info: Mapping[str, Any]) -> None:
        self.info = info
        self._http = httpx.Client(
            base_url=info["endpoints"]["control"],
            headers={"Authorization": f"Bearer {info['control_token']}"},
            timeout=10,
            trust_env=False,
        )

    @classmethod
    def open(cls, folder: Path) -> "LabClient":
        """The lab of that folder.

        Raises:
            FileNotFoundError: it is not ready, or not there.
        """
        return cls(json.loads((folder / "lab.json").read_text()))

    def state(self) -> dict[str, Any]:
        """Machines, prices, stock, faults, the time."""
        return self._call("GET", "/state")

    def truth(self) -> dict[str, Any]:
        """Bill and log."""
        return self._call("GET", "/truth")

    def hold_cost(self, offer_key: str, from_s: int, to_s: int) -> int:
        """What one machine of the pool costs over a span, in micro-USD."""
        answer = self._call("GET", f"/hold_cost?offer_key={offer_key}&from_s={from_s}&to_s={to_s}")
        return int(answer["cost_micro_usd"])

    def console(self, machine: str) -> str:
        """What a node has printed."""
        return str(self._call("GET", f"/console?machine={machine}")["text"])

    def price(self, offer_key: str, usd: str | None = None, factor: float | None = None) -> int:
        """Set a price in dollars, or multiply it. Returns micro-USD an hour."""
        wish = {"offer_key": offer_key} | ({"usd": usd} if usd is not None else {"factor": str(factor)})
        return int(self._call("POST", "/price", wish)["price_micro_usd_h"])

    def doubt(self, offer_key: str) -> int:
        """Let an Azure price rise by what Windows costs. Returns micro-USD an hour."""
        return int(self._call("POST", "/doubt", {"offer_key": offer_key})["price_micro_usd_h"])

    def stock(self, offer_key: str, machines: int | None) -> None:
        """How many machines may exist in a pool at once."""
        self._call("POST", "/stock", {"offer_key": offer_key, "machines": machines})

    def interrupt(self, machine: str, notice_s: int | None = None) -> dict[str, Any]:
        """Announce that the cloud takes a machine back; `notice_s` is on the lab's clock."""
        return self._call("POST", "/interrupt", {"machine": machine, "notice_s": notice_s})

    def fault(self, cloud: str, operation: str, kind: str, count: int | None = 1, seconds: float = 0) -> None:
        """Queue a fault; see `lab.faults`."""
        wish = {"cloud": cloud, "operation": operation, "kind": kind, "count": count, "seconds": seconds}
        self._call("POST", "/fault", wish)

    def clear(self) -> None:
        """No more faults."""
        self._call("POST", "/clear")

    def shutdown(self) -> None:
        """End the lab with all its nodes."""
        self._call("POST", "/shutdown")

    def _call(self, method: str, path: str, wish: Mapping[str, Any] | None = None) -> dict[str, Any]:
        answer = self._http.request(method, path, json=wish)
        if answer.status_code == 400:
            raise ValueError(str(answer.json()["error"]))
        if answer.status_code != 200:
            raise ValueError(f"lab: {method} {path}: {answer.status_code} {answer.text}")
        return dict(answer.json())
