"""Two meters under one name: a list that sells a machine with and without a licence, and says one for the other.

Azure sells every size with Linux and with Windows. The Windows meter of on-demand is dearer by $0.046 a vCPU and hour,
exactly; that of spot is usually dearer by the same *share* as that of on-demand. A reader that takes one for the other
sees a rise, and a fall when it reads the right one again. Measured in `docs/internals/market.md`.
"""

from broker.core.offer import Market, Offer

LICENCE_MICRO_USD_PER_VCPU_H = {"azure": 46_000}
"""By cloud whose list has two meters under one name."""

# Some list prices are written with three decimals, so that a difference of two is off by as much.
_ROUNDED_MICRO_USD = 1_000
# Spot prices are written with six decimals, of which the cheapest use four.
_SAME_SHARE = 1e-3
# No fall was ever false, and the real ones were of a fifth at most. Of the rises of spot, the real ones would have been
# less than $0.020 a vCPU on demand, and the false ones that are not by the licence more than $0.045 (V100) or far away.
_ORDINARY_FALL = 0.2005
_ORDINARY_LICENCE = 0.5


def has_two_meters(offer: Offer) -> bool:
    """Whether the list that this offer comes from may say one meter for another."""
    return offer.cloud in LICENCE_MICRO_USD_PER_VCPU_H


def meter_flip(
    offer: Offer, base_micro_usd_h: int, price_micro_usd_h: int, on_demand_micro_usd_h: int | None
) -> int:
    """Whether a change is that between the two meters of an offer.

    Args:
        base_micro_usd_h: The price before.
        price_micro_usd_h: The price after.
        on_demand_micro_usd_h: On-demand price of the same machine without licence; needed for spot only.

    Returns:
        1 for a change to the meter with the licence, -1 for one back to that without, 0 for any other.
    """
    licence = LICENCE_MICRO_USD_PER_VCPU_H.get(offer.cloud, 0) * offer.vcpus
    if not licence:
        return 0
    low, high = sorted((base_micro_usd_h, price_micro_usd_h))
    if offer.market is Market.ON_DEMAND:
        flips = abs(high - low - licence) <= _ROUNDED_MICRO_USD
    elif offer.market is Market.SPOT and on_demand_micro_usd_h:
        dearer = low * (1 + licence / on_demand_micro_usd_h)
        flips = abs(high - dearer) <= _SAME_SHARE * dearer
    else:
        flips = False
    return 0 if not flips else 1 if price_micro_usd_h > base_micro_usd_h else -1


def is_ordinary(
    offer: Offer, base_micro_usd_h: int, price_micro_usd_h: int, on_demand_micro_usd_h: int | None
) -> bool:
    """Whether a change that is none between the two meters is one that prices of this list are known to make.

    A fall of a fifth at most; on spot a rise, too, that is less than half of what the licence's share would be.
    On-demand prices have never risen but falsely. Arguments as of `meter_flip`.
    """
    change = price_micro_usd_h / base_micro_usd_h - 1
    if change < 0:
        return change >= -_ORDINARY_FALL
    licence = LICENCE_MICRO_USD_PER_VCPU_H.get(offer.cloud, 0) * offer.vcpus
    if offer.market is not Market.SPOT or not licence or not on_demand_micro_usd_h:
        return False
    return change * on_demand_micro_usd_h < _ORDINARY_LICENCE * licence
