"""What a subscription may use: sizes with their counts and restrictions, and quotas, from ``Microsoft.Compute``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from providers.azure.clients import Clients
from providers.azure.errors import translated
from providers.azure.sizes import Told, size_of

SPOT_QUOTA = "lowPriorityCores"


@dataclass(frozen=True)
class Quota:
    """A bound of one region, in vCPUs. Spot machines of every size share one; the others have one a family."""

    name: str
    used: int
    limit: int


def sizes(clients: Clients, region: str) -> dict[str, Told]:
    """What Azure tells of the sizes of a region, by name; the filter takes a location and nothing else.

    Raises:
        ProviderError: the call failed.
    """
    with translated(f"reading the sizes of {region}", clients.arm_host):
        listed = clients.compute.resource_skus.list(filter=f"location eq '{region}'")
        return {
            sku.name: _told(sku)
            for sku in listed
            if sku.resource_type == "virtualMachines" and sku.name and region in _lower(sku.locations)
        }


def quotas(clients: Clients, region: str, told: Mapping[str, Told]) -> list[Quota]:
    """The quota of spot machines, and that of each family with GPUs.

    Raises:
        ProviderError: the call failed.
    """
    families = {one.family.lower() for name, one in told.items() if one.family and size_of(name, one)}
    with translated(f"reading quotas in {region}", clients.arm_host):
        return [
            Quota(usage.name.value, usage.current_value, usage.limit)
            for usage in clients.compute.usage.list(region)
            if usage.name.value and (usage.name.value == SPOT_QUOTA or usage.name.value.lower() in families)
        ]


def _told(sku: Any) -> Told:
    capabilities = {item.name: item.value for item in sku.capabilities or ()}
    return Told(
        gpus=_whole(capabilities.get("GPUs")),
        vcpus=_whole(capabilities.get("vCPUs")),
        memory_gib=_whole(capabilities.get("MemoryGB")),
        family=sku.family or "",
        restricted=", ".join(_refusals(sku)),
    )


def _refusals(sku: Any) -> Iterator[str]:
    """Why the whole region is closed. A restriction of type Zone leaves machines without a zone."""
    for restriction in sku.restrictions or ():
        if restriction.type == "Location":
            reason = restriction.reason_code
            yield str(getattr(reason, "value", reason) or "restricted")


def _whole(text: str | None) -> int | None:
    """Capabilities are text; ``MemoryGB`` may have a fraction."""
    try:
        return None if text is None else int(float(text))
    except ValueError:
        return None


def _lower(names: Any) -> list[str]:
    return [str(name).lower() for name in names or ()]
