"""Instance types as the API lists them, into offers. Pure.

A price is integer US cents an hour for the whole instance, the same in every region; there is no spot market. Where a
type has capacity now is told beside it: a type without any is priced all the same.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from broker.core.errors import ProviderDown
from broker.core.gpu import GPUS
from broker.core.offer import Market, Offer
from providers.offers import interconnect_of, offer_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# "H100 (80 GB SXM5)", "A10 (24 GB PCIe)", "GH200 (96 GB)", "Tesla V100 (16 GB)"
_GPU = re.compile(r"(?:NVIDIA )?(?:Tesla )?(\w+) \((\d+) GB(?: (\w+))?\)")
_FORMS = {"sxm": "SXM", "pcie": "PCIe", "nvl": "NVL"}


@dataclass(frozen=True)
class InstanceType:
    """One row of the list.

    Attributes:
        gpu: SKU, or Lambda's own text when it is none of ours; the market puts that in quarantine.
        price_cents_h: Whole instance.
        listed: Regions with capacity now.
    """

    name: str
    gpu: str
    gpus: int
    vcpus: int
    memory_gib: int
    price_cents_h: int
    listed: frozenset[str]
    fabric: str = "ethernet"

    @property
    def interconnect(self) -> str:
        """Between its GPUs."""
        return interconnect_of(self.gpu, self.gpus)

    @property
    def price_text(self) -> str:
        """Dollars an hour."""
        return f"{Decimal(self.price_cents_h) / 100:.2f}"


def read_types(data: Any) -> tuple[InstanceType, ...]:
    """All types that have a GPU; those without are no offers of ours.

    Raises:
        ProviderDown: it is not what the API's document says, or has no such type. Nothing is returned then, for half a
            list looks like a stock-out.
    """
    if not isinstance(data, dict):
        raise _unreadable("data", "no map of types")
    kinds = tuple(kind for name, item in data.items() if (kind := _type(name, item)).gpus != 0)
    if not kinds:
        # Types that have no capacity are listed all the same: a list without any is broken, and no stock-out.
        raise ProviderDown("lambda: reading instance types: it has no type with a GPU")
    return kinds


def offers(kinds: Iterable[InstanceType], regions: Iterable[str]) -> Iterator[tuple[Offer, InstanceType]]:
    """Every type in every region: the API has one price for all of them."""
    places = tuple(regions)
    for kind in kinds:
        for region in places:
            yield offer_of("lambda", region, region, kind, Market.ON_DEMAND), kind


def sku_of(gpu_description: str, name: str) -> str:
    """The one SKU that fits the description, or the description itself when none does or several do.

    SXM or PCIe is told in the description, or else by the type's name (``gpu_1x_h100_pcie``). Where the two
    disagree, neither is believed.
    """
    found = _GPU.fullmatch(gpu_description.strip())
    if found is None:
        return gpu_description
    family, gigabytes = found[1].upper(), int(found[2])
    forms = {form for word, form in _FORMS.items() if word in (found[3] or "").lower()}
    forms |= {form for word, form in _FORMS.items() if word in name.lower().split("_", 2)[-1]}
    fitting = [
        model.sku
        for model in GPUS.values()
        if (model.family, model.memory_gib) == (family, gigabytes) and forms <= {model.form}
    ]
    return fitting[0] if len(fitting) == 1 else gpu_description


def _type(name: str, item: Any) -> InstanceType:
    kind = _member(item, "instance_type", dict, name)
    specs = _member(kind, "specs", dict, name)
    regions = [
        _name(_member(region, "name", str, name), name)
        for region in _member(item, "regions_with_capacity_available", list, name)
    ]
    return InstanceType(
        name=_name(_member(kind, "name", str, name), name),
        gpu=sku_of(_member(kind, "gpu_description", str, name), name),
        gpus=_member(specs, "gpus", int, name),
        vcpus=_member(specs, "vcpus", int, name),
        memory_gib=_member(specs, "memory_gib", int, name),
        price_cents_h=_member(kind, "price_cents_per_hour", int, name),
        listed=frozenset(regions),
    )


def _member(document: Any, key: str, kind: type, where: str) -> Any:
    value = document.get(key) if isinstance(document, Mapping) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _unreadable(where, f"{key} is {value!r:.40}")
    return value


def _name(text: str, where: str) -> str:
    """A part of an offer's key."""
    if not _NAME.fullmatch(text):
        raise _unreadable(where, f"{text!r:.40} is no name")
    return text


def _unreadable(where: str, what: str) -> ProviderDown:
    return ProviderDown(
        f"lambda: reading instance types: {where[:40]}: {what}, which the API's document does not allow"
    )
