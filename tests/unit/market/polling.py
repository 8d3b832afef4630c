"""Small real providers for a poller, and the poller over them."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from readings import SPOT, raw

from broker.clock import SystemClock
from broker.core.availability import Availability, Signal, Unanswered
from broker.core.errors import Denied
from broker.core.offer import Market, Offer, RawQuote
from broker.core.ports import Check, CloudNode, LaunchRequest
from broker.core.tariff import BillingRule
from broker.market.poller import Poller
from broker.store.history import HistoryStore

GCP_SPOT = replace(
    SPOT, cloud="gcp", region="us-central1", zone="us-central1-a", instance_type="a3-highgpu-1g"
)


@dataclass
class Prices:
    """A cloud that only has prices."""

    cloud: str
    read: Callable[[], Iterable[RawQuote]]
    calls: list[float] = field(default_factory=list)
    hints: Callable[[], Iterable[Availability | Unanswered]] = tuple
    past: Callable[[int], Iterable[RawQuote]] = lambda from_ms: ()

    def quotes(self) -> Iterable[RawQuote]:
        self.calls.append(time.monotonic())
        return self.read()

    def price_history(self, from_ms: int) -> Iterable[RawQuote]:
        return self.past(from_ms)

    def availability(self) -> Iterable[Availability | Unanswered]:
        return self.hints()

    def disk_micro_usd_per_gib_month(self, region: str) -> int:
        return 0

    def create(self, request: LaunchRequest) -> CloudNode:
        raise Denied("sells nothing")

    def find(self, token: str, region: str, zone: str) -> CloudNode | None:
        return None

    def list_owned(self) -> Sequence[CloudNode]:
        return ()

    def list_tagged(self) -> Sequence[CloudNode]:
        return ()

    def delete(self, node: CloudNode) -> None:
        raise Denied("sells nothing")

    def egress_micro_usd_per_gib(self, from_offer: Offer, to_offer: Offer | None) -> int:
        return 0

    def billing_rule(self, market: Market) -> BillingRule:
        return BillingRule()

    def check(self) -> Sequence[Check]:
        return ()


def two(offer: Offer = SPOT, price: str = "2.5") -> Callable[[], list[RawQuote]]:
    other = replace(offer, market=Market.ON_DEMAND)
    return lambda: [raw(price, offer, None), raw("6.88", other, None)]


def hint(offer: Offer, score: float) -> Availability:
    return Availability(offer.key, Signal.PLACEMENT_SCORE, score, score, 1_000, "aws:placement_scores")


def poller(history: HistoryStore, *providers: Prices, **more: object) -> Poller:
    return Poller({p.cloud: p for p in providers}, history, SystemClock(), **more)  # type: ignore[arg-type]


async def run_for(one: Poller, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await one.run()
