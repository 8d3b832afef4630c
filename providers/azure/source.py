"""`PriceSource` over Azure. Prices come from the public list; a subscription adds counts, evictions, the past, quotas."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from broker.core.availability import Availability, Signal, Unanswered, answered
from broker.core.errors import ProviderDown, ProviderError
from broker.core.gpu import GPUS
from broker.core.money import micro_usd
from broker.core.offer import Market, Offer, RawQuote
from broker.core.ports import Check, Clock
from broker.core.tariff import BillingRule
from broker.core.time import DAY_S, HOUR_S, MINUTE_S, MS
from providers.azure import signals, skus
from providers.azure.checks import checks
from providers.azure.clients import Clients
from providers.azure.meters import Chosen, chosen
from providers.azure.retail import RetailPrices
from providers.azure.settings import AzureOptions, parse
from providers.azure.sizes import SIZES, Size, Told, size_of
from providers.azure.tariff import billing_rule, egress_rule
from providers.offers import offer_of

RETAIL_SOURCE = "azure:retail"
PAST_SOURCE = "azure:spot_history"
EVICTION_SOURCE = "azure:eviction_rate"
SCORE_SOURCE = "azure:placement_score"

# Sizes change by the month. Evictions are of 28 days; scores may be kept for a quarter to half an hour.
_SIZES_AGE_MS = DAY_S * MS
_EVICTIONS_AGE_MS = HOUR_S * MS
_SCORES_AGE_MS = 30 * MINUTE_S * MS
# An account that does not answer would cost each region of each poll its time-out.
_REST_MS = 10 * MINUTE_S * MS

T = TypeVar("T")


def open_provider(options: Mapping[str, Any], clock: Clock, installation_id: str) -> "AzurePrices":
    """From `[clouds.azure]`. Nothing is called yet.

    Raises:
        SettingsError: an option is wrong, or what an account needs is not installed.
    """
    parsed = parse(options)
    return AzurePrices(parsed, Clients(parsed), clock)


@dataclass(frozen=True)
class _Kept:
    """An answer, with the time it was given."""

    value: Any
    at_ms: int


class AzurePrices:
    """Prices of the configured regions. A price holds for a whole region, so zone and region of an offer are one."""

    cloud = "azure"

    def __init__(self, options: AzureOptions, clients: Clients, clock: Clock) -> None:
        self._options = options
        self._clients = clients
        self._clock = clock
        self._retail = RetailPrices(options, clients)
        self._egress = egress_rule(options)
        self._answers: dict[str, _Kept] = {}
        self._rests_until_ms = 0
        self._priced: set[str] = set()

    def quotes(self) -> list[RawQuote]:
        """Every price of a size with whole GPUs; all or nothing.

        They need no account. While a subscription's sizes cannot be read, the last ones or our own table serve, and
        what is wrong shows in `availability` and `check`.
        """
        found: list[RawQuote] = []
        bare: list[str] = []
        for region in self._options.regions:
            told, before = self._told(region), len(found)
            for meter in self.listed(region, told).meters:
                size = size_of(meter.size, told.get(meter.size))
                assert size is not None, "only wanted sizes are listed"
                found.append(
                    RawQuote(
                        offer(region, size, meter.market),
                        meter.text,
                        meter.currency,
                        meter.effective_at_ms,
                        RETAIL_SOURCE,
                    )
                )
            if len(found) == before:
                bare.append(region)
        # A region may sell no GPUs. A list that has lost them is as good as none.
        if lost := bare if not found else [region for region in bare if region in self._priced]:
            raise ProviderDown(f"azure: the price lists of {', '.join(lost)} have no machine with GPUs")
        self._priced.update(region for region in self._options.regions if region not in bare)
        return found

    def listed(self, region: str, told: Mapping[str, Told]) -> Chosen:
        """The prices in force in a region.

        Raises:
            ProviderError: the list could not be read whole.
        """

        def is_wanted(name: str) -> bool:
            return size_of(name, told.get(name)) is not None

        try:
            return chosen(self._retail.rows(region), is_wanted, self._clock.now_ms())
        except ValueError as error:
            raise ProviderDown(f"azure: reading the price list of {region}: {error}") from error

    def price_history(self, from_ms: int) -> Sequence[RawQuote]:
        """Spot prices of the last 90 days; nothing without a subscription."""
        if self._options.subscription_id is None:
            return ()
        regions = self._options.regions
        sizes = self._trained_on()
        past = signals.past_prices(
            self._clients, self._options.subscription_id, sorted(sizes), regions, from_ms
        )
        return [
            RawQuote(
                offer(price.region, sizes[price.size], Market.SPOT),
                price.text,
                "USD",
                price.effective_at_ms,
                PAST_SOURCE,
            )
            for price in past
            if price.size in sizes and price.region in regions
        ]

    def availability(self) -> Sequence[Availability | Unanswered]:
        """Eviction rates, and placement scores where they are asked for; nothing without a subscription.

        Raises:
            ProviderError: a call failed, and there is no hint.
        """
        if self._options.subscription_id is None:
            return ()
        asked = [("evictions", _EVICTIONS_AGE_MS, self._evictions)]
        if self._options.placement_scores:
            asked.append(("scores", _SCORES_AGE_MS, self._scores))
        hints: list[Availability] = []
        failures: list[ProviderError] = []
        for key, age_ms, ask in asked:
            try:
                hints += self._kept(key, age_ms, ask)
            except ProviderError as failure:
                failures.append(failure)
                hints += self._answers[key].value if key in self._answers else ()
        return answered(hints, failures)

    def egress_micro_usd_per_gib(self, from_offer: Offer, to_offer: Offer | None) -> int:
        """By place: same region free, same continent, another one, internet."""
        return self._egress.micro_usd_per_gib(from_offer, to_offer)

    def billing_rule(self, market: Market) -> BillingRule:
        """By the second; its minimum is disputed."""
        return billing_rule(self._options)

    def disk_micro_usd_per_gib_month(self, region: str) -> int:
        """Of a Standard SSD."""
        return micro_usd(self._options.disk_usd_gib_month)

    def check(self) -> Sequence[Check]:
        """The price list of each region; with a subscription its token, sizes, Resource Graph and quotas."""
        return checks(self._options, self._clients, self.listed, self._clock.now_ms())

    def _evictions(self, now_ms: int) -> list[Availability]:
        assert self._options.subscription_id is not None
        sizes = self._trained_on()
        told = signals.evictions(
            self._clients, self._options.subscription_id, sorted(sizes), self._options.regions
        )
        return [
            Availability(
                offer(rate.region, sizes[rate.size], Market.SPOT).key,
                Signal.EVICTION_RATE,
                rate.low,
                rate.high,
                now_ms,
                EVICTION_SOURCE,
            )
            for rate in told
            if rate.size in sizes and rate.region in self._options.regions
        ]

    def _scores(self, now_ms: int) -> list[Availability]:
        names = sorted(size.name for size in self._trained_on().values())
        return [
            Availability(
                offer(score.region, SIZES[score.size], Market.SPOT).key,
                Signal.PLACEMENT_RANK,
                score.rank,
                score.rank,
                now_ms,
                SCORE_SOURCE,
            )
            for score in signals.scores(self._clients, names, self._options.regions)
            if score.size in SIZES and score.region in self._options.regions
        ]

    def _trained_on(self) -> dict[str, Size]:
        """Sizes with GPUs that we know, by lower-case name, as Resource Graph has them."""
        return {name.lower(): size for name, size in SIZES.items() if size.gpu in GPUS}

    def _told(self, region: str) -> Mapping[str, Told]:
        """What the subscription says of the sizes of a region; empty when there is none, or it has never answered."""
        if self._options.subscription_id is None:
            return {}
        key = f"sizes/{region}"
        if self._clock.now_ms() >= self._rests_until_ms:
            try:
                return self._kept(key, _SIZES_AGE_MS, lambda _: skus.sizes(self._clients, region))
            except ProviderError:
                self._rests_until_ms = self._clock.now_ms() + _REST_MS
        kept = self._answers.get(key)
        return kept.value if kept else {}

    def _kept(self, key: str, age_ms: int, ask: Callable[[int], T]) -> T:
        """The last answer while it is young enough, else a new one."""
        kept, now_ms = self._answers.get(key), self._clock.now_ms()
        if kept is None or now_ms - kept.at_ms > age_ms:
            kept = self._answers[key] = _Kept(ask(now_ms), now_ms)
        answer: T = kept.value
        return answer


def offer(region: str, size: Size, market: Market) -> Offer:
    """What is sold."""
    return offer_of("azure", region, region, size, market)
