"""Azure: dollars an hour as published in spring 2026. A price holds for a whole region, and a region is one zone here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lab.listing import InstanceType, Listing, Zone, micro_usd

TYPES = (
    InstanceType("azure", "Standard_NC4as_T4_v3", "T4-16GB", "T4", 1, 16384, 4, 28, "none"),
    InstanceType("azure", "Standard_NV36ads_A10_v5", "A10-24GB", "A10", 1, 24576, 36, 440, "none"),
    InstanceType("azure", "Standard_NC24ads_A100_v4", "A100-PCIe-80GB", "A100", 1, 81920, 24, 220, "none"),
    InstanceType("azure", "Standard_NC40ads_H100_v5", "H100-NVL-94GB", "H100", 1, 96256, 40, 320, "none"),
    InstanceType(
        "azure",
        "Standard_ND96isr_H100_v5",
        "H100-SXM5-80GB",
        "H100",
        8,
        81920,
        96,
        1900,
        "nvlink",
        "infiniband",
    ),
)

ZONES = (
    Zone("azure", "eastus", "eastus", "eastus"),
    Zone("azure", "westus3", "westus3", "westus3"),
)

# Region -> size -> (on demand, spot).
_PRICES = {
    "eastus": {
        "Standard_NC4as_T4_v3": ("0.526", "0.204246"),
        "Standard_NV36ads_A10_v5": ("3.2", "0.59136"),
        "Standard_NC24ads_A100_v4": ("3.673", "0.746721"),
        "Standard_NC40ads_H100_v5": ("6.98", "2.192418"),
        "Standard_ND96isr_H100_v5": ("98.32", "18.169536"),
    },
    "westus3": {
        "Standard_NC4as_T4_v3": ("0.526", "0.15254"),
        "Standard_NV36ads_A10_v5": ("3.2", "0.59136"),
        "Standard_NC24ads_A100_v4": ("3.673", "1.336605"),
        "Standard_NC40ads_H100_v5": ("6.98", "3.89135"),
        "Standard_ND96isr_H100_v5": ("98.32", "18.169536"),
    },
}

_BY_NAME = {kind.name: kind for kind in TYPES}


@dataclass(frozen=True)
class Naming:
    """How Azure writes one size. Its lists follow no single rule.

    Attributes:
        product: ``productName`` of the Linux machines.
        sku: ``skuName``.
        meter: ``meterName``.
        family: Name of its quota.
        evictions: Its eviction rate, as Resource Graph has it.
    """

    product: str
    sku: str
    meter: str
    family: str
    evictions: str


NAMES: Mapping[str, Naming] = {
    "Standard_NC4as_T4_v3": Naming(
        "Virtual Machines NCasT4 v3 Series", "NC4as T4 v3", "NC4as T4 v3", "Standard NCASv3_T4 Family", "0-5"
    ),
    "Standard_NV36ads_A10_v5": Naming(
        "Virtual Machines NVadsA10v5 Series",
        "NV36adsA10v5",
        "NV36adsA10v5",
        "StandardNVADSA10v5Family",
        "5-10",
    ),
    "Standard_NC24ads_A100_v4": Naming(
        "NCads A100 v4 Series Linux",
        "Standard_NC24ads_A100_v4",
        "NC24ads_A100_v4",
        "StandardNCADSA100v4Family",
        "10-15",
    ),
    "Standard_NC40ads_H100_v5": Naming(
        "Virtual Machines NCadsH100v5 Series",
        "NC40adsH100v5",
        "NC40adsH100v5",
        "StandardNCadsH100v5Family",
        "15-20",
    ),
    "Standard_ND96isr_H100_v5": Naming(
        "Virtual Machines NDsrH100v5 Series",
        "ND96isrH100v5",
        "ND96isrH100v5",
        "standardNDSH100v5Family",
        "20+",
    ),
}
assert NAMES.keys() == _BY_NAME.keys(), "every size has its names"


def listings() -> Iterator[Listing]:
    """Every pool, in a fixed order."""
    for zone in ZONES:
        for name, (on_demand, spot) in _PRICES[zone.region].items():
            yield Listing(zone, _BY_NAME[name], "spot", micro_usd(spot))
            yield Listing(zone, _BY_NAME[name], "on_demand", micro_usd(on_demand))
