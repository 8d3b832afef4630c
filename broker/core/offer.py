"""What can be rented and what it costs: offer, quote, market snapshot."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from broker.core.availability import Availability, Signal
from broker.core.gpu import GPUS, GpuModel
from broker.core.time import MINUTE_S, age_s


class Market(StrEnum):
    """How capacity is sold."""

    OWNED = "owned"
    SPOT = "spot"
    ON_DEMAND = "on_demand"
    RESERVED = "reserved"


@dataclass(frozen=True)
class Offer:
    """One thing that can be rented. Two offers are the same offer when their keys are equal.

    Attributes:
        cloud: ``aws``, ``gcp``, ``azure``, ``lambda``, ``coreweave`` or ``local``.
        region: The cloud's own region name.
        zone: Zone; on AWS the zone *id* (``use1-az6``), since zone names differ between accounts.
        instance_type: The cloud's own name.
        market: How it is sold.
        gpu: Exact SKU, a key of `broker.core.gpu.GPUS`.
        gpus: GPUs per instance.
        vcpus: Per instance.
        memory_gib: Host memory per instance.
        interconnect: Between the GPUs of one instance: ``nvlink``, ``pcie`` or ``none``.
        fabric: Between instances: ``efa``, ``infiniband``, ``gpudirect`` or ``ethernet``.
    """

    cloud: str
    region: str
    zone: str
    instance_type: str
    market: Market
    gpu: str
    gpus: int
    vcpus: int = 0
    memory_gib: int = 0
    interconnect: str = "pcie"
    fabric: str = "ethernet"

    @cached_property
    def key(self) -> str:
        """``aws/use1-az6/p5.48xlarge/spot``: the name of an offer in files, rows and messages."""
        return f"{self.cloud}/{self.zone}/{self.instance_type}/{self.market}"

    @property
    def pool(self) -> str:
        """What runs empty together: the key without its cloud's own price."""
        return self.key

    @property
    def model(self) -> GpuModel:
        """The GPU's facts. An offer in a snapshot always has a known GPU; the market sees to it."""
        return GPUS[self.gpu]


@dataclass(frozen=True)
class Quote:
    """An offer's price.

    Attributes:
        offer: What it is for.
        price_micro_usd_h: Whole instance, list or bid as the market has it. Positive.
        effective_at_ms: When this price took effect, by the cloud's word.
        observed_at_ms: When we last saw it. A cloud that fails keeps its quotes with their age.
        source: Which call said so: ``aws:spot_history``, ``gcp:skus`` ...
    """

    offer: Offer
    price_micro_usd_h: int
    effective_at_ms: int
    observed_at_ms: int
    source: str

    def age_s(self, now_ms: int) -> float:
        """Seconds since we last saw it."""
        return age_s(self.observed_at_ms, now_ms)


@dataclass(frozen=True)
class RawQuote:
    """A price as a provider read it, before the market has judged it. Nothing about it is believed yet.

    Attributes:
        offer: May name a GPU that we do not know (then ``gpu`` is the cloud's own text).
        price_text: As the vendor wrote it, in dollars an hour for the whole instance.
        currency: ISO code as the vendor wrote it.
        effective_at_ms: By the cloud's word, or None when it does not say (then: when first seen).
        source: Which call said so.
    """

    offer: Offer
    price_text: str
    currency: str
    effective_at_ms: int | None
    source: str


SPOT_PRIOR_LIFE_S = 6.0 * 3600
"""Expected spot life where we have no history: inside the mean spells of 0.8 to 8.7 h of the public V100 traces
(github.com/skypilot-org/spot-traces) and of 5.4 h for H100 on GCP (github.com/andylizf/skynomad-artifact)."""


LISTED_FOR_S = 15 * MINUTE_S
"""How long a list of capacity is believed: a few polls."""


@dataclass(frozen=True)
class MarketSnapshot:
    """All accepted quotes as of one moment. Immutable; decisions are made on one of these.

    Attributes:
        at_ms: The moment.
        quotes: By offer key; accepted ones only, whatever their age.
        empty_until_ms: Pools that refused a launch, by offer key: until when they are taken for empty.
        quarantined: Offer keys whose newest reading is in quarantine, with the reason.
        spot_launch_failures_1h: Share of spot launches that failed in the last hour, 0..1.
        spot_life_s: Expected seconds to interruption by ``cloud/zone/instance_type``, where known.
        hints: What the clouds say about obtaining an offer, by offer key.
        prices_only: Clouds whose prices are read and where nothing can be rented by this release or configuration.
        list_micro_usd_h: What the cloud says, by offer key, where the operator's overlay has made another price of it.
        held_micro_usd_h: What a node counts that runs there already, by offer key, where it is another price than that of
            one more node: a commitment has room for some.
    """

    at_ms: int
    quotes: Mapping[str, Quote]
    empty_until_ms: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, str] = field(default_factory=dict)
    spot_launch_failures_1h: float = 0.0
    spot_life_s: Mapping[str, float] = field(default_factory=dict)
    hints: Mapping[str, tuple[Availability, ...]] = field(default_factory=dict)
    prices_only: frozenset[str] = frozenset()
    list_micro_usd_h: Mapping[str, int] = field(default_factory=dict)
    held_micro_usd_h: Mapping[str, int] = field(default_factory=dict)

    def held(self, offer: Offer) -> Quote | None:
        """The quote for who runs there already; None when nobody quotes a price there."""
        quote = self.quotes.get(offer.key)
        price_micro_usd_h = self.held_micro_usd_h.get(offer.key)
        if quote is None or price_micro_usd_h is None:
            return quote
        return replace(quote, price_micro_usd_h=price_micro_usd_h)

    def is_unlisted(self, offer: Offer) -> bool:
        """Whether its cloud lists no capacity there, and has said so a short while ago."""
        return any(
            hint.signal is Signal.LISTED
            and hint.high == 0
            and age_s(hint.observed_at_ms, self.at_ms) <= LISTED_FOR_S
            for hint in self.hints.get(offer.key, ())
        )

    def is_empty(self, offer: Offer) -> bool:
        """Whether a launch there failed for want of capacity a short while ago."""
        return self.empty_until_ms.get(offer.key, 0) > self.at_ms
