"""NodePool objects (`compute.coreweave.com/v1alpha1`) into hints about obtaining a node. Pure.

A pool tells about its own target only: one that waits says that there is nothing now, one that is filled says that there
was something. Conditions were renamed in January 2026, and their full list is on no page that could be read; so a
condition is known by the word in its type, and what is not clear says nothing.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.core.offer import Market

NODES_PER_RACK = 18  # NVL72: 72 GPUs, 4 to a node

# ``computeClass``: the documentation writes both spot and Spot. "default" is on demand or reserved, which it is is not told.
_MARKETS = {"spot": Market.SPOT, "default": Market.ON_DEMAND, "": Market.ON_DEMAND}
# A type in which True is bad news: InsufficientCapacity, QuotaExceeded.
_BAD_NEWS = re.compile(r"insufficient|exceed|exhaust|lack|unavail|over(?!all)", re.IGNORECASE)


@dataclass(frozen=True)
class NodePool:
    """One pool.

    Attributes:
        target: Nodes asked for.
        current: Nodes in it.
        capacity: What its condition says: True there is enough, False there is not, None unknown.
        quota: The same of our quota.
    """

    name: str
    instance_type: str
    market: Market
    target: int
    current: int
    capacity: bool | None
    quota: bool | None

    @property
    def listed(self) -> bool | None:
        """Whether a node of this type can be had here, as far as this pool tells."""
        if self.target == 0:
            return None  # it asks for nothing
        if self.quota is False or self.capacity is False:
            return False
        return True if self.capacity or self.current >= self.target else None


def pool_of(item: Any) -> NodePool | None:
    """A pool from its object; None for one that is of no market here."""
    spec, status = _map(item, "spec"), _map(item, "status")
    name, instance_type = _map(item, "metadata").get("name"), spec.get("instanceType")
    market = _MARKETS.get(str(spec.get("computeClass") or "").lower())
    if not isinstance(name, str) or not isinstance(instance_type, str) or market is None:
        return None
    conditions = status.get("conditions")
    found = [c for c in conditions if isinstance(c, Mapping)] if isinstance(conditions, list) else []
    return NodePool(
        name=name,
        instance_type=instance_type,
        market=market,
        target=_count(spec, "targetNodes") or NODES_PER_RACK * _count(spec, "targetRacks"),
        current=_count(status, "currentNodes"),
        capacity=_says(found, "capacity"),
        quota=_says(found, "quota"),
    )


def listed(pools: Iterable[NodePool]) -> dict[tuple[str, Market], bool]:
    """By instance type and market, where a pool tells. One that waits now counts more than one that is filled."""
    told: dict[tuple[str, Market], bool] = {}
    for pool in pools:
        if (can := pool.listed) is not None:
            key = (pool.instance_type, pool.market)
            told[key] = told.get(key, True) and can
    return told


def _says(conditions: Iterable[Mapping[str, Any]], word: str) -> bool | None:
    """The first condition about it; None when there is none, or it is neither True nor False, or only in part so."""
    for condition in conditions:
        kind = str(condition.get("type", ""))
        if word in kind.lower():
            status = {"true": True, "false": False}.get(str(condition.get("status", "")).lower())
            if status is None or "partial" in str(condition.get("reason", "")).lower():
                return None
            return status != bool(_BAD_NEWS.search(kind))
    return None


def _map(document: Any, key: str) -> Mapping[str, Any]:
    value = document.get(key) if isinstance(document, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _count(document: Mapping[str, Any], key: str) -> int:
    value = document.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
