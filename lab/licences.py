"""A price that a daemon doubts until a person decides: Azure's list says one meter for another.

Every size has a meter without a licence and one with Windows, dearer by so much a vCPU on demand, and by the same share
at spot. A rise by just that proves nothing, however often it is read.
"""

from lab.faces.azure_meters import WINDOWS_USD_VCPU_H
from lab.world import World


def with_licence(world: World, offer_key: str) -> int:
    """What the meter with the licence would say of an offer of Azure, in micro-USD an hour.

    Raises:
        UnknownPool: no such offer.
        ValueError: an offer of another cloud.
    """
    listing, price = world.pool(offer_key).listing, world.price(offer_key)
    if listing.zone.cloud != "azure":
        raise ValueError(
            f"{offer_key}: only Azure's list has two meters; elsewhere a price that jumps is believed when it has held for a while"
        )
    licence = round(WINDOWS_USD_VCPU_H * listing.type.vcpus * 1_000_000)
    if listing.market == "on_demand":
        return price + licence
    on_demand = world.price(offer_key.removesuffix(listing.market) + "on_demand")
    return round(price * (1 + licence / on_demand))
