"""Microsoft.Compute of one subscription: sizes, quotas, placement scores. Nothing can be created here."""

from collections.abc import Iterator, Mapping
from typing import Any

from lab.faces.azure_errors import ArmError
from lab.listing import InstanceType
from lab.sold.azure import NAMES
from lab.world import World

# As Azure tells them: a sixth of a GPU counts as one, FPGAs as none, and the newest have no count at all.
_OTHERS = (
    ("Standard_NV6ads_A10_v5", "StandardNVADSA10v5Family", {"GPUs": "1", "vCPUs": "6", "MemoryGB": "55"}),
    ("Standard_D4s_v5", "standardDSv5Family", {"vCPUs": "4", "MemoryGB": "16"}),
    ("Standard_NP10s", "standardNPSFamily", {"vCPUs": "10", "MemoryGB": "168"}),
    ("Standard_ND128isr_NDR_GB200_v6", "standardNDISRGB200V6NDRFamily", {"vCPUs": "128", "MemoryGB": "864"}),
    (
        "Standard_ND96isrf_H200_v5",
        "standardNDISRH200V5Family",
        {"GPUs": "8", "vCPUs": "96", "MemoryGB": "1850"},
    ),
)
# What a new subscription may not have without asking, and what it may have only without choosing a zone.
RESTRICTED, ZONELESS = "Standard_ND96isr_H100_v5", "Standard_NC40ads_H100_v5"
_QUOTA_VCPUS = 480


class Arm:
    """Answers over a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def skus(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Every size of a location, and a disk, for the list has more than machines.

        Raises:
            ArmError: a filter of another thing than the location.
        """
        name, _, value = query.get("$filter", "").partition(" eq ")
        if name not in ("", "location"):
            raise ArmError(400, "InvalidFilter", f"Filtering by '{name}' is not supported.")
        wanted = value.strip("'").lower()
        regions = [region for region in self._sold() if wanted in ("", region)]
        return {"value": [sku for region in regions for sku in self._skus(region)]}

    def usages(self, location: str) -> dict[str, Any]:
        """Quotas, all of them unused."""
        self._known(location)
        families = [names.family for names in NAMES.values()] + [family for _, family, _ in _OTHERS]
        names = ["cores", "lowPriorityCores", *dict.fromkeys(families)]
        return {
            "value": [
                {
                    "unit": "Count",
                    "currentValue": 0,
                    "limit": 0 if "GB200" in name else _QUOTA_VCPUS,
                    "name": {"value": name, "localizedValue": f"Total of {name}"},
                }
                for name in names
            ]
        }

    def scores(self, location: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Placement scores, from what is in stock.

        Raises:
            ArmError: more regions or sizes than one call may ask about.
        """
        self._known(location)
        regions, sizes = body.get("desiredLocations") or [], body.get("desiredSizes") or []
        if not 0 < len(regions) <= 8 or not 0 < len(sizes) <= 5:
            raise ArmError(400, "BadRequest", "One request takes 1 to 8 locations and 1 to 5 sizes.")
        scored = [
            {
                "sku": size["sku"],
                "region": region,
                "score": self._score(size["sku"], region),
                "isQuotaAvailable": True,
            }
            for region in regions
            for size in sizes
        ]
        return {**body, "placementScores": scored}

    def _score(self, size: str, region: str) -> str:
        key = f"azure/{region}/{size}/spot"
        if key not in self._world.pools:
            return "DataNotFoundOrStale"
        free = self._world.free(key)
        return "High" if free is None or free >= 8 else "Medium" if free else "Low"

    def _sold(self) -> Mapping[str, list[InstanceType]]:
        """Types by region."""
        found: dict[str, dict[str, InstanceType]] = {}
        for pool in self._world.pools.values():
            if pool.listing.zone.cloud == "azure":
                found.setdefault(pool.listing.zone.region, {})[pool.listing.type.name] = pool.listing.type
        return {region: list(kinds.values()) for region, kinds in found.items()}

    def _known(self, location: str) -> None:
        if location.lower() not in self._sold():
            raise ArmError(
                400, "NoRegisteredProviderFound", f"No registered resource provider for '{location}'."
            )

    def _skus(self, region: str) -> Iterator[dict[str, Any]]:
        for kind in self._sold()[region]:
            told = {"GPUs": str(kind.gpus), "vCPUs": str(kind.vcpus), "MemoryGB": str(kind.memory_gib)}
            yield _sku(kind.name, NAMES[kind.name].family, told, region)
        for name, family, told in _OTHERS:
            yield _sku(name, family, told, region)
        yield {"resourceType": "disks", "name": "StandardSSD_LRS", "locations": [region], "restrictions": []}


def _sku(name: str, family: str, told: Mapping[str, str], region: str) -> dict[str, Any]:
    info: dict[str, Any] = {"locations": [region]} | ({"zones": ["1", "2", "3"]} if name == ZONELESS else {})
    restriction = {
        "type": "Zone" if name == ZONELESS else "Location",
        "values": [region],
        "restrictionInfo": info,
        "reasonCode": "NotAvailableForSubscription",
    }
    capabilities = {**told, "LowPriorityCapable": "True", "HyperVGenerations": "V2"}
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "tier": "Standard",
        "size": name.removeprefix("Standard_"),
        "family": family,
        "locations": [region],
        "locationInfo": [{"location": region, "zones": ["1", "2", "3"], "zoneDetails": []}],
        "capabilities": [{"name": key, "value": value} for key, value in capabilities.items()],
        "restrictions": [restriction] if name in (RESTRICTED, ZONELESS) else [],
    }
