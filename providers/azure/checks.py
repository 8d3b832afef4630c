"""Lines of `broker doctor` about Azure, each on its own: one that fails stops no other."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from broker.core.errors import ProviderError
from broker.core.offer import Market
from broker.core.ports import Check
from broker.core.time import DAY_S, MS, format_duration
from providers.azure import signals, skus
from providers.azure.clients import Clients
from providers.azure.meters import Chosen
from providers.azure.settings import AzureOptions
from providers.azure.sizes import SIZES, Told, size_of

# Spot prices are republished every month; a list whose newest is older than this has probably stopped.
_STOPPED_S = 45 * DAY_S

Listed = Callable[[str, Mapping[str, Told]], Chosen]


def checks(options: AzureOptions, clients: Clients, listed: Listed, now_ms: int) -> list[Check]:
    """Never raises.

    Args:
        listed: Reads the price list of a region.
    """
    found = [
        _checked(f"azure: prices of {region}", partial(_prices, listed, region, now_ms))
        for region in options.regions
    ]
    if options.subscription_id is None:
        text = "no subscription_id: prices only, from the public list and our own table of sizes"
        return [*found, Check("azure: account", None, text)]
    found.append(_checked("azure: token", lambda: (True, clients.token())))
    for region in options.regions:
        found += _subscription(clients, region)
    found.append(
        _checked("azure: Resource Graph", partial(_evictions, options, clients, options.subscription_id))
    )
    return found


def _prices(listed: Listed, region: str, now_ms: int) -> tuple[bool, str]:
    answer = listed(region, {})
    spot = [meter for meter in answer.meters if meter.market is Market.SPOT]
    text = f"{len(answer.meters)} prices of GPU sizes, {len(spot)} of them spot"
    if answer.elsewhere:
        text += f"; no price for {_names(answer.elsewhere)}, whose meters belong to other regions"
    if not answer.meters:
        return False, f"{text}: this region sells none, or its list is not whole"
    if spot:
        age_s = (now_ms - max(meter.effective_at_ms for meter in spot)) / MS
        text += f"; the newest took effect {format_duration(age_s)} ago"
        if age_s > _STOPPED_S:
            return False, f"{text}: the list seems to have stopped; compare it with the portal"
    if answer.ended:
        text += f"; the last day has passed of {_names(answer.ended)}"
        if not spot:
            return False, f"{text}: the list seems to have stopped; compare it with the portal"
    return True, text


def _names(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _subscription(clients: Clients, region: str) -> Iterator[Check]:
    """Sizes and quotas of a region."""
    told: dict[str, Told] = {}

    def read() -> tuple[bool, str]:
        told.update(skus.sizes(clients, region))
        gpus = {name: one for name, one in told.items() if size_of(name, one) is not None}
        closed = sorted(f"{name} ({one.restricted})" for name, one in gpus.items() if one.restricted)
        text = f"{len(gpus)} GPU sizes"
        return True, f"{text}; not for this subscription: {', '.join(closed)}" if closed else text

    yield _checked(f"azure: sizes of {region}", read)
    try:
        quotas = skus.quotas(clients, region, told)
    except ProviderError as error:
        yield Check(f"azure: quotas of {region}", False, str(error))
        return
    for quota in quotas:
        text = f"{quota.used} of {quota.limit} vCPUs used"
        yield Check(f"azure: quota {quota.name} in {region}", True, text)


def _evictions(options: AzureOptions, clients: Clients, subscription: str) -> tuple[bool, str]:
    rates = signals.evictions(clients, subscription, sorted(SIZES), options.regions)
    return True, f"{len(rates)} eviction rates"


def _checked(name: str, ask: Callable[[], tuple[bool, str]]) -> Check:
    try:
        return Check(name, *ask())
    except ProviderError as error:
        return Check(name, False, str(error))
