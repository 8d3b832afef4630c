"""Resource Graph: the table ``SpotResources`` over the world, and as much of its query language as is asked here.

Eviction rates are ranges, of 28 days as Microsoft says; past prices are the world's change points, newest first.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from broker.core.time import to_iso
from lab.faces.azure_errors import ArmError
from lab.faces.azure_meters import WINDOWS_USD_VCPU_H
from lab.faults import FaultKind
from lab.pools import Pool
from lab.sold.azure import NAMES
from lab.world import World

Row = Mapping[str, Any]

_LARGEST = 1000
_BROKEN = "half"
_TEXT = r"'[^']*'"
_EQUAL = re.compile(rf"([\w.]+)\s*=~\s*({_TEXT})")
_AMONG = re.compile(rf"([\w.]+)\s+in~\s*\(\s*({_TEXT}(?:\s*,\s*{_TEXT})*)\s*\)")
_COLUMN = re.compile(r"(?:(\w+)\s*=\s*)?(?:tostring\(([\w.]+)\)|([\w.]+))")


class Graph:
    """Answers queries."""

    def __init__(self, world: World) -> None:
        self._world = world

    def resources(self, body: Mapping[str, Any], fault: FaultKind | None) -> dict[str, Any]:
        """One page of a query's rows.

        Raises:
            ArmError: not a query of this grammar, or a page that there is not.
        """
        options = body.get("options") or {}
        found = list(_run(body["query"], list(self._rows())))
        token = options.get("$skipToken") or ""
        if token == _BROKEN:
            raise ArmError(500, "InternalServerError", "An internal server error occurred.")
        if not re.fullmatch(r"|after-\d+", token):
            raise ArmError(400, "BadRequest", f"Invalid skip token '{token}'.")
        start, size = int(token.removeprefix("after-") or 0), min(_LARGEST, options.get("$top") or _LARGEST)
        page, end = found[start : start + size], start + size
        more = {"$skipToken": f"after-{end}"} if end < len(found) else {}
        if fault is FaultKind.PARTIAL_PAGE:
            page, more = page[: max(1, len(page) // 2)], {"$skipToken": _BROKEN}
        counts = {"totalRecords": len(found), "count": len(page), "resultTruncated": "false"}
        return {**counts, "data": page, "facets": [], **more}

    def _rows(self) -> Iterator[Row]:
        self._world.advance()
        for pool in self._world.pools.values():
            listing = pool.listing
            if listing.zone.cloud != "azure" or listing.market != "spot":
                continue
            size, region = listing.type.name.lower(), listing.zone.region
            rate = NAMES[listing.type.name].evictions
            yield {
                "type": "microsoft.compute/skuspotevictionrate/location",
                "location": region,
                "sku": {"name": size},
                "properties": {"skuName": size, "evictionRate": rate},
            }
            for system, extra_usd_h in (("linux", 0.0), ("windows", WINDOWS_USD_VCPU_H * listing.type.vcpus)):
                yield {
                    "type": "microsoft.compute/skuspotpricehistory/ostype/location",
                    "location": region,
                    "sku": {"name": size},
                    "properties": {"osType": system, "spotPrices": _past(pool, extra_usd_h)},
                }


def _past(pool: Pool, extra_usd_h: float) -> list[dict[str, Any]]:
    return [
        {
            "effectiveDate": to_iso(change.at_s * 1000),
            "priceUSD": round(change.price_micro_usd_h / 1e6 + extra_usd_h, 6),
        }
        for change in reversed(pool.changes)
    ]


def _run(query: str, rows: list[Row]) -> list[Row]:
    """``Table | where ... and ... | project ... | order by ...``"""
    table, *steps = [part.strip() for part in query.split("|")]
    if table.lower() != "spotresources":
        raise _bad(f"'{table}' is no table here")
    for step in steps:
        word, _, rest = step.partition(" ")
        if word == "where":
            tests = [_condition(text.strip()) for text in re.split(r"\s+and\s+", rest.strip())]
            rows = [row for row in rows if all(test(row) for test in tests)]
        elif word == "project":
            columns = [_column(text.strip()) for text in rest.split(",")]
            rows = [{name: _at(row, path) for name, path in columns} for row in rows]
        elif step.startswith("order by "):
            keys = [text.split()[0] for text in step.removeprefix("order by ").split(",")]
            rows = sorted(rows, key=lambda row: [str(_at(row, key)) for key in keys])
        else:
            raise _bad(f"'{word}' is not understood here")
    return rows


def _condition(text: str) -> Callable[[Row], bool]:
    if match := _EQUAL.fullmatch(text) or _AMONG.fullmatch(text):
        path, wanted = match.group(1), {value.lower() for value in re.findall(r"'([^']*)'", match.group(2))}
        return lambda row: str(_at(row, path)).lower() in wanted
    raise _bad(f"'{text}' is not understood here")


def _column(text: str) -> tuple[str, str]:
    match = _COLUMN.fullmatch(text)
    if match is None:
        raise _bad(f"'{text}' is not understood here")
    path = match.group(2) or match.group(3)
    return match.group(1) or path, path


def _at(row: Any, path: str) -> Any:
    for name in path.split("."):
        row = row.get(name) if isinstance(row, Mapping) else None
    return row


def _bad(why: str) -> ArmError:
    return ArmError(400, "BadRequest", f"InvalidQuery: {why}")
