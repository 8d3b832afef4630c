"""Which offers a job and its policy allow at all: filters narrow. Every refusal keeps its words.

Tests run from the coarse to the fine, so that the stage of a refusal says how near a miss it was; the nearest
misses are what ``jobs check`` shows.
"""

from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase

from broker.core.offer import Market, Offer, Quote
from broker.core.spec import GpuRequest, JobSpec
from broker.core.time import format_duration
from broker.policy.schema import Policy

# A poll that began a moment ago on a clock that is being slewed is no sign of anything.
_CLOCK_SLACK_MS = 5_000


class Stage(IntEnum):
    """How far an offer came before it was refused."""

    GPU = 0
    PLACE = 1
    MARKET = 2
    QUOTE = 3
    POOL = 4
    LINES = 5
    OBJECTIVE = 6
    CAPS = 7


@dataclass(frozen=True)
class Refusal:
    """Why an offer is out."""

    stage: Stage
    why: str


def gpu_request(offer: Offer, requests: tuple[GpuRequest, ...]) -> GpuRequest | None:
    """The alternative of the job file that the offer satisfies; of several, the one with the most GPUs.

    An instance with more GPUs than asked for satisfies it too, at the price of the whole instance.
    """
    matching = [
        request
        for request in requests
        if request.type in (offer.gpu, offer.model.family)
        and offer.gpus >= request.count
        and offer.model.memory_gib >= request.memory_gib_min
        and request.form in (None, offer.model.form)
    ]
    return max(matching, key=lambda request: request.count, default=None)


def speed_tflops(offer: Offer, spec: JobSpec) -> float:
    """Rank speed of a placement there: the GPUs that the job asks for, over its whole gang.

    GPUs beyond the ones asked for are paid but not counted: nothing says that the job would use them.
    """
    request = gpu_request(offer, spec.resources.gpus)
    return offer.model.speed * (request.count if request else offer.gpus) * spec.resources.nodes


def refuse_gpu(offer: Offer, spec: JobSpec) -> Refusal:
    """The words for an offer that no alternative of the job file is satisfied by."""
    wanted = " or ".join(_words(request) for request in spec.resources.gpus)
    return Refusal(Stage.GPU, f"has {offer.gpus} x {offer.gpu}; the job wants {wanted}")


def refuse_offer(offer: Offer, spec: JobSpec, policy: Policy) -> Refusal | None:
    """The tests that need no price and no clock: place and market."""
    why = _refuse_place(offer, spec, policy)
    if why:
        return Refusal(Stage.PLACE, why)
    why = _refuse_market(offer.market, spec, policy)
    return Refusal(Stage.MARKET, why) if why else None


def refuse_quote(quote: Quote, quarantined: str | None, now_ms: int, max_age_s: int) -> str:
    """Why a price justifies nothing voluntary, or empty."""
    if quarantined is not None:
        return f"its newest price is in quarantine: {quarantined}"
    if quote.observed_at_ms > now_ms + _CLOCK_SLACK_MS:
        return "its price was seen at a time that is still to come: a clock has been set back"
    age_s = quote.age_s(now_ms)
    if age_s > max_age_s:
        return (
            f"its price was last seen {format_duration(age_s)} ago; the limit is {format_duration(max_age_s)}"
        )
    return ""


def _refuse_place(offer: Offer, spec: JobSpec, policy: Policy) -> str:
    resources, candidates = spec.resources, policy.candidates
    if resources.allow and not any(_covers(pattern, offer) for pattern in resources.allow):
        return f"the job allows only {', '.join(resources.allow)}"
    for pattern in resources.deny:
        if _covers(pattern, offer):
            return f"the job denies {pattern}"
    if candidates.clouds and offer.cloud not in candidates.clouds:
        return f"policy {policy.name} takes only the clouds {', '.join(candidates.clouds)}"
    if candidates.regions_allow and not _any_matches(candidates.regions_allow, offer.region):
        return f"policy {policy.name} allows only the regions {', '.join(candidates.regions_allow)}"
    if _any_matches(candidates.regions_deny, offer.region):
        return f"policy {policy.name} denies the region {offer.region}"
    return ""


def _refuse_market(market: Market, spec: JobSpec, policy: Policy) -> str:
    if market not in spec.resources.markets:
        return f"the job does not accept the market {market}"
    if market not in policy.place.order:
        return f"policy {policy.name} does not place on {market}"
    return ""


def _covers(pattern: str, offer: Offer) -> bool:
    """``cloud[/region[/zone]]``: what a pattern leaves out, it allows."""
    parts = pattern.split("/")
    return all(
        fnmatchcase(name, part)
        for part, name in zip(parts, (offer.cloud, offer.region, offer.zone), strict=False)
    )


def _any_matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _words(request: GpuRequest) -> str:
    extra = [request.form] if request.form else []
    if request.memory_gib_min:
        extra.append(f"from {request.memory_gib_min} GiB")
    return f"{request.count} x {request.type}" + (f" ({', '.join(extra)})" if extra else "")
