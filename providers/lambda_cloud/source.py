"""Lambda's public cloud as a `PriceSource`. One call serves prices and what is obtainable."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.core.availability import Availability, Signal
from broker.core.errors import ProviderError, Throttled
from broker.core.gpu import GPUS
from broker.core.offer import Market, Offer, RawQuote
from broker.core.ports import Check, Clock
from broker.core.tariff import BillingRule
from broker.core.time import MS, format_duration
from providers.lambda_cloud.client import GAP_S, Client, Pace
from providers.lambda_cloud.prices import InstanceType, offers, read_types
from providers.lambda_cloud.regions import Regions
from providers.lambda_cloud.settings import LambdaOptions, parse

SOURCE = "lambda:instance_types"
_SHOWN = 40  # characters of a name


@dataclass(frozen=True)
class Reading:
    """One reply."""

    at_ms: int
    kinds: tuple[InstanceType, ...]


def open_provider(options: Mapping[str, Any], clock: Clock, installation_id: str) -> "LambdaPrices":
    """The prices; nothing is called yet.

    Raises:
        SettingsError: an option is wrong; the text names the key.
    """
    return LambdaPrices(parse(options), clock)


class LambdaPrices:
    """Prices and listed capacity of the regions that are configured, or of all that are known."""

    cloud = "lambda"

    def __init__(self, options: LambdaOptions, clock: Clock, pace: Pace | None = None) -> None:
        self._options = options
        self._clock = clock
        self._client = Client(options, pace or Pace(GAP_S))
        self._named = Regions()
        self._last: Reading | None = None

    def quotes(self) -> Sequence[RawQuote]:
        """Every type in every region, capacity or not; on demand only, for nothing else is sold.

        Raises:
            ProviderError: the call failed, or a part of the reply cannot be read.
        """
        return [
            RawQuote(offer, kind.price_text, "USD", None, SOURCE)
            for offer, kind in offers(self._read().kinds, self._regions())
        ]

    def price_history(self, from_ms: int) -> Sequence[RawQuote]:
        """Nothing: the API keeps none."""
        return ()

    def availability(self) -> Sequence[Availability]:
        """1 where the last reply lists capacity for a type, 0 where it does not; with the date of that reply."""
        last = self._last or self._read()
        return [
            Availability(
                offer.key, Signal.LISTED, *(2 * (float(offer.region in kind.listed),)), last.at_ms, SOURCE
            )
            for offer, kind in offers(last.kinds, self._regions())
        ]

    def egress_micro_usd_per_gib(self, from_offer: Offer, to_offer: Offer | None) -> int:
        """Traffic is not charged."""
        return 0

    def billing_rule(self, market: Market) -> BillingRule:
        """By the minute. Nothing is rented here, so no bill has been compared with this."""
        return BillingRule(
            unit_s=60,
            minimum_s=60,
            meter="from active to terminated",
            unconfirmed="whether a started minute is billed whole, and whether there is a minimum",
            source="lambda.ai/instances, as quoted by others, 2026-09",
        )

    def disk_micro_usd_per_gib_month(self, region: str) -> int:
        """The local disk is part of the machine's price."""
        return 0

    def check(self) -> Sequence[Check]:
        """Whether a key is set, whether it is accepted, what is listed, and which regions nobody knows."""
        found = [_checked("lambda: key", self._key)]
        if found[0].ok:
            found.append(self._types())
        if found[-1].ok and (strange := self._strange()):
            found.append(Check("lambda: regions", None, strange))
        return found

    def _strange(self) -> str:
        known = self._named.known()
        told = []
        if unnamed := [region for region in self._regions() if region not in known]:
            told.append(
                f"{', '.join(unnamed)}: not named by the API so far; prices are shown, capacity never"
            )
        if refused := self._named.refused:
            shown = ", ".join(name[:_SHOWN] for name in refused[:3])
            told.append(
                f"the API names {len(refused)} that look like none, or are too many, and are left out: {shown}"
            )
        return "; ".join(told)

    def _key(self) -> str:
        self._client.key()
        return f"{self._options.api_key_env} is set"

    def _types(self) -> Check:
        name = "lambda: instance types"
        before = self._last
        try:
            kinds = self._read().kinds
        except Throttled as error:
            # One request a second for the whole account: somebody else may use it up. That is no fault of the key.
            since = "never" if before is None else _ago(self._clock.now_ms() - before.at_ms)
            return Check(name, None, f"{error}; last read {since}")
        except ProviderError as error:
            return Check(name, False, str(error))
        listed = sum(bool(kind.listed) for kind in kinds)
        unknown = sorted({kind.gpu for kind in kinds if kind.gpu not in GPUS})
        beside = f"; GPUs that are not known here: {', '.join(unknown)}" if unknown else ""
        return Check(
            name, True, f"the key is accepted; {len(kinds)} types, {listed} with capacity now{beside}"
        )

    def _regions(self) -> Sequence[str]:
        return tuple(dict.fromkeys(self._options.regions or sorted(self._named.known())))

    def _read(self) -> Reading:
        kinds = read_types(self._client.get("/instance-types", "reading instance types"))
        reading = self._last = Reading(self._clock.now_ms(), kinds)
        self._named.take((region for kind in kinds for region in kind.listed), reading.at_ms)
        return reading


def _ago(ms: int) -> str:
    return f"{format_duration(max(0, ms) / MS)} ago"


def _checked(name: str, ask: Callable[[], str]) -> Check:
    try:
        return Check(name, True, ask())
    except ProviderError as error:
        return Check(name, False, str(error))
