"""Compute Engine's Capacity Advisor over a world: prices from the pools' own, the rest from their stock.

The same stock gives the same answer. Days are Pacific; the running one is among the rates, and ends the last price.
"""

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from broker.core.time import to_iso
from lab.catalog import ZONES
from lab.faces import gcp_resources as resources
from lab.faces.gcp_errors import Call, GcpError
from lab.faults import FaultKind
from lab.pools import Pool
from lab.world import World

RATE_DAYS = 30
PRICE_DAYS = 365
_PACIFIC = timezone(timedelta(hours=-8))
_NO_SUPPLY = 0.1


class Advice:
    """``advice`` over a world.

    Attributes:
        operations: By method id.
    """

    def __init__(self, world: World, project: str) -> None:
        self._world = world
        self._project = project
        self.operations: Mapping[str, Callable[[Call], dict[str, Any]]] = {
            "advice.capacityHistory": self.history,
            "advice.capacity": self.capacity,
        }

    def history(self, call: Call) -> dict[str, Any]:
        """Prices of a region, rates of preemption of a region or a zone."""
        body = call.body or {}
        wanted = body.get("instanceProperties", {})
        if wanted.get("scheduling", {}).get("provisioningModel") != "SPOT":
            raise GcpError(400, "invalid", "Invalid value for field 'provisioningModel': must be SPOT.")
        if not body.get("types"):
            raise GcpError(400, "required", "Required field 'types' not specified")
        region, place = call.path["region"], body.get("locationPolicy", {}).get("location", "")
        zone = place.rpartition("/")[2] if "zones/" in place else None
        pools = self._pools(region, [wanted.get("machineType", "")], [zone] if zone else [])
        link = resources.zone_link(self._project, zone) if zone else f"{_regions(self._project)}/{region}"
        answer: dict[str, Any] = {"machineType": wanted["machineType"], "location": link}
        if "PRICE" in body["types"] and zone is None:
            answer["priceHistory"] = self._price_history(pools[0], call.fault is FaultKind.WRONG_CURRENCY)
        if "PREEMPTION" in body["types"]:
            answer["preemptionHistory"] = self._preemption_history(pools)
        return answer

    def capacity(self, call: Call) -> dict[str, Any]:
        """One recommendation: the zone and machine type with most to give."""
        body = call.body or {}
        size = body.get("size", 0)
        if size < 1:
            raise GcpError(400, "invalid", "Invalid value for field 'size': must be at least 1.")
        selections = body.get("instanceFlexibilityPolicy", {}).get("instanceSelections", {}).values()
        types = [name for selection in selections for name in selection.get("machineTypes", [])]
        asked = [
            row["zone"].rpartition("/")[2] for row in body.get("distributionPolicy", {}).get("zones", [])
        ]
        pools = self._pools(call.path["region"], types, asked)
        best = max(pools, key=lambda pool: (self._obtainability(pool, size), pool.key))
        likely = self._obtainability(best, size)
        shard = {
            "zone": resources.zone_link(self._project, best.listing.zone.id),
            "machineType": best.listing.type.name,
            "instanceCount": size,
            "provisioningModel": "SPOT",
        }
        scores = {"obtainability": likely, "estimatedUptime": "3600s" if likely > 0.5 else "600s"}
        return {"recommendations": [{"scores": scores, "shards": [shard]}]}

    def _pools(self, region: str, types: list[str], zones: list[str]) -> list[Pool]:
        """Spot pools of these types in these zones, or in all of the region; never empty.

        Raises:
            GcpError: none is sold there.
        """
        known = [zone.id for zone in ZONES.values() if zone.cloud == "gcp" and zone.region == region]
        if not known or set(zones) - set(known):
            raise GcpError(404, "notFound", f"The resource '{region}' was not found")
        keys = [f"gcp/{zone}/{name}/spot" for zone in zones or known for name in types]
        found = [self._world.pools[key] for key in keys if key in self._world.pools]
        if not found:
            text = f"Invalid value for field 'machineType': '{', '.join(types)}' is not supported here."
            raise GcpError(400, "invalid", text)
        return found

    def _price_history(self, pool: Pool, in_euro: bool) -> list[dict[str, Any]]:
        now_s = self._world.advance()
        begun = [change for change in pool.changes if change.at_s <= now_s]
        ends = [change.at_s for change in begun[1:]] + [_midnight_after(now_s)]
        rows = []
        for change, end_s in zip(begun, ends, strict=True):
            if end_s >= now_s - PRICE_DAYS * 86_400:
                units, micro = divmod(change.price_micro_usd_h, 10**6)
                money = {"currencyCode": "EUR" if in_euro else "USD", "nanos": micro * 1000}
                money |= {"units": str(units)} if units else {}
                rows.append({"interval": _interval(change.at_s, end_s), "listPrice": money})
        return rows

    def _preemption_history(self, pools: list[Pool]) -> list[dict[str, Any]]:
        today_s = _midnight_after(self._world.advance())
        rows = []
        for day in range(RATE_DAYS, 0, -1):
            end_s = today_s - (day - 1) * 86_400
            rate = sum(self._rate(pool, end_s) for pool in pools) / len(pools)
            rows.append({"interval": _interval(end_s - 86_400, end_s), "preemptionRate": round(rate, 2)})
        return rows

    def _rate(self, pool: Pool, end_s: int) -> float:
        """Few are left: many are preempted; and no two days are alike."""
        free = self._world.free(pool.key)
        base = 0.1 if free is None else 0.8 / (1 + free)
        noise = int(hashlib.sha256(f"{pool.key}/{end_s}".encode()).hexdigest()[:4], 16) / 0xFFFF
        return base + 0.1 * noise

    def _obtainability(self, pool: Pool, size: int) -> float:
        free = self._world.free(pool.key)
        if free is None:
            return 0.9
        return round(min(0.8, 0.4 + 0.1 * (free - size)), 2) if free >= size else _NO_SUPPLY


def _midnight_after(at_s: int) -> int:
    day = datetime.fromtimestamp(at_s, _PACIFIC).date() + timedelta(days=1)
    return int(datetime(day.year, day.month, day.day, tzinfo=_PACIFIC).timestamp())


def _interval(from_s: int, to_s: int) -> dict[str, str]:
    return {"startTime": to_iso(from_s * 1000), "endTime": to_iso(to_s * 1000)}


def _regions(project: str) -> str:
    return f"{resources.WWW}/projects/{project}/regions"
