"""What a GPU-hour can cost: wide bands that catch a wrong unit or a bid floor, not a bargain.

For each SKU the cheapest and the dearest usual on-demand price of one GPU with its share of the machine, list
prices of 2025 and 2026 over the hyperscalers' regions and the GPU clouds; single-GPU machines with many CPUs are
inside. A price outside waits for a person or a second source, however often it is read: a wrong unit stays wrong.
"""

from broker.core.gpu import GPUS
from broker.core.money import MICRO_PER_USD, format_usd
from broker.core.offer import Market, Offer

_ON_DEMAND_USD_H: dict[str, tuple[float, float]] = {
    "T4-16GB": (0.30, 4.5),
    "V100-SXM2-16GB": (0.50, 4.5),
    "V100-SXM2-32GB": (0.55, 5.0),
    "V100-PCIe-16GB": (0.40, 4.5),
    "A10-24GB": (0.60, 4.5),
    "A10G-24GB": (0.80, 5.5),
    "L4-24GB": (0.40, 5.0),
    "L40S-48GB": (0.80, 9.0),
    "A100-PCIe-40GB": (1.00, 6.0),
    "A100-PCIe-80GB": (1.10, 7.0),
    "A100-SXM4-40GB": (1.10, 6.0),
    "A100-SXM4-80GB": (1.20, 7.0),
    "H100-PCIe-80GB": (1.50, 10.0),
    "H100-NVL-94GB": (1.80, 12.0),
    "H100-SXM5-80GB": (1.90, 16.0),
    "H200-SXM-141GB": (2.20, 16.0),
    "GH200-96GB": (1.40, 7.0),
    "B200-SXM-180GB": (3.00, 20.0),
    "B300-SXM-288GB": (4.00, 25.0),
    "MI300X-192GB": (1.50, 10.0),
    "MI325X-256GB": (1.80, 12.0),
}
assert _ON_DEMAND_USD_H.keys() == GPUS.keys(), "every SKU has a band"

# Of the usual on-demand prices: spot goes below a tenth of the cheapest nowhere, nor far above the dearest.
_SPOT_REACH = (0.1, 1.5)
_ON_DEMAND_REACH = (1 / 3, 3.0)

# From one poll to the next. List prices have moved by +16 % at the median and -44 % at most; real spot steps of
# x 0.4, x 1.9, x 3.3 (AWS p2, 2021) and x 5.2 (GCP, 2023) are ordinary and must be believed at once.
_SPOT_STEP = 6.0
_ON_DEMAND_STEP = 3.0


def outside_band(offer: Offer, price_micro_usd_h: int, last_micro_usd_h: int | None = None) -> str:
    """Why that GPU cannot cost as much, or as little; empty when it can.

    Owned capacity costs what its owner says.
    """
    if offer.market is Market.OWNED:
        return ""
    low, high = _band_micro_usd_h(offer)
    # What was outside before has been confirmed there.
    was_outside = last_micro_usd_h is not None and not low <= last_micro_usd_h <= high
    if was_outside or low <= price_micro_usd_h <= high:
        return ""
    return (
        f"{format_usd(price_micro_usd_h)}/h is outside what {offer.gpus} x {offer.gpu} {offer.market} can cost, "
        f"{format_usd(low)} to {format_usd(high)}"
    )


def jump(offer: Offer, price_micro_usd_h: int, last_micro_usd_h: int) -> str:
    """Why a price looks wrong beside the last one; empty when it does not."""
    step = _SPOT_STEP if offer.market is Market.SPOT else _ON_DEMAND_STEP
    if offer.market is Market.OWNED or 1 / step <= price_micro_usd_h / last_micro_usd_h <= step:
        return ""
    return (
        f"jumped from {format_usd(last_micro_usd_h)}/h to {format_usd(price_micro_usd_h)}/h between two polls"
    )


def _band_micro_usd_h(offer: Offer) -> tuple[int, int]:
    low, high = _ON_DEMAND_USD_H[offer.gpu]
    reach = _SPOT_REACH if offer.market is Market.SPOT else _ON_DEMAND_REACH
    scale = offer.gpus * MICRO_PER_USD
    return round(low * reach[0] * scale), round(high * reach[1] * scale)
