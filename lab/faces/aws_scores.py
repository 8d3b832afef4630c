"""EC2's Spot placement scores, from the stock of the world's pools: the same stock, the same scores."""

import json
import threading
from typing import Any

from lab.catalog import ZONES
from lab.faces.aws_errors import AwsError, Call, page
from lab.faults import FaultKind
from lab.listing import Zone
from lab.world import World

CONFIGURATIONS_A_DAY = 50  # Amazon publishes no number
BEST = 10  # no more zones are told
DAY_S = 86_400
_PLENTY = 9
_LOW = 3  # of a request for fewer than three types, at most


class Scores:
    """``GetSpotPlacementScores`` over a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}

    def get(self, call: Call) -> dict[str, Any]:
        """The best zones; only requests with one zone each and by instance types."""
        given = call.given
        types, capacity = given.get("InstanceTypes") or [], given.get("TargetCapacity") or 0
        if not types or given.get("InstanceRequirementsWithMetadata"):
            raise AwsError("InvalidParameterCombination", "The lab scores InstanceTypes only.")
        if not given.get("SingleAvailabilityZone"):
            raise AwsError("InvalidParameterValue", "The lab scores single zones only.")
        if capacity < 1:
            raise AwsError("InvalidParameterValue", "TargetCapacity must be at least 1")
        self._count(call)
        regions = given.get("RegionNames") or [call.region]
        rows: list[dict[str, Any]] = []
        for zone in ZONES.values():
            if zone.cloud == "aws" and zone.region in regions:
                score = self._score(zone, types, capacity)
                if score is not None:
                    rows.append({"Region": zone.region, "AvailabilityZoneId": zone.id, "Score": score})
        rows.sort(key=lambda row: (-row["Score"], row["AvailabilityZoneId"]))
        found, token = page(rows[:BEST], call, smallest=10)
        return {"SpotPlacementScores": found} | ({"NextToken": token} if token else {})

    def _count(self, call: Call) -> None:
        """A configuration that is new in this day counts; there are so many a day and no more."""
        parts = {key: value for key, value in call.given.items() if key not in ("NextToken", "MaxResults")}
        name, now_s = json.dumps(parts, sort_keys=True), self._world.advance()
        with self._lock:
            self._seen = {seen: at_s for seen, at_s in self._seen.items() if now_s - at_s < DAY_S}
            full = len(self._seen) >= CONFIGURATIONS_A_DAY or call.fault is FaultKind.QUOTA
            if full and name not in self._seen:
                raise AwsError(
                    "MaxConfigLimitExceeded",
                    "You have exceeded your maximum allowed Spot placement configurations. You can retry configurations "
                    "that you used within the last 24 hours, or wait for 24 hours before specifying a new configuration.",
                )
            self._seen.setdefault(name, now_s)

    def _score(self, zone: Zone, types: list[str], capacity: int) -> int | None:
        """None where none of the types is sold."""
        keys = [f"aws/{zone.id}/{name}/spot" for name in sorted(set(types))]
        free = [self._world.free(key) for key in keys if key in self._world.pools]
        if not free:
            return None
        known = [machines for machines in free if machines is not None]
        if len(known) < len(free):
            score = _PLENTY
        else:
            score = 1 if sum(known) < capacity else min(_PLENTY, 2 + sum(known) // capacity)
        return score if len(set(types)) >= 3 else min(score, _LOW)
