"""How many offers of a market each line of a policy takes out, without any job: `broker policy check --market`. Pure.

The order is that of a decision: clouds, regions, markets, age, conditions. A line that speaks of the job cannot be judged
without one, and takes nothing out here.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from broker.core.offer import Quote
from broker.core.time import format_duration
from broker.policy.facts import offer_facts
from broker.policy.schema import Condition, Policy


@dataclass(frozen=True)
class Step:
    """One line of the policy.

    Attributes:
        line: As the author wrote it.
        place: ``file:line`` of a condition, else empty.
        removed: Offers that it takes out of those that all lines before it have left.
        alone: Offers of the whole market that it takes out by itself.
        left: How many there are after it.
        judged: False where the line speaks of more than offers.
    """

    line: str
    place: str
    removed: int
    alone: int
    left: int
    judged: bool = True


@dataclass(frozen=True)
class Funnel:
    """What becomes of a market.

    Attributes:
        total: Offers in it.
        cheapest: Of those that are left, the cheapest by the GPU; None where there are none.
    """

    policy: str
    total: int
    steps: tuple[Step, ...]
    left: int
    cheapest: Quote | None

    @property
    def to_blame(self) -> Step | None:
        """The line that took the last offer out; None while there are some, or never were."""
        return next((step for step in self.steps if step.removed and not step.left), None)


def funnel(policy: Policy, quotes: Iterable[Quote], now_ms: int) -> Funnel:
    """Take a market through the lines of a policy."""
    everything = list(quotes)
    left, steps = everything, []
    for line, place, test in _tests(policy, now_ms):
        truths = [test(quote) for quote in everything]
        judged = not everything or any(truth is not None for truth in truths)
        kept = [quote for quote in left if test(quote) is not False]
        alone = sum(truth is False for truth in truths)
        steps.append(Step(line, place, len(left) - len(kept), alone, len(kept), judged))
        left = kept
    cheapest = min(left, key=lambda q: (q.price_micro_usd_h / q.offer.gpus, q.offer.key), default=None)
    return Funnel(policy.name, len(everything), tuple(steps), len(left), cheapest)


def _tests(policy: Policy, now_ms: int) -> Iterable[tuple[str, str, Callable[[Quote], bool | None]]]:
    candidates, order = policy.candidates, policy.place.order
    if candidates.clouds:
        clouds = candidates.clouds
        yield _words("candidates.clouds", clouds), "", lambda quote: quote.offer.cloud in clouds
    if candidates.regions_allow:
        allow = candidates.regions_allow
        yield _words("candidates.regions.allow", allow), "", lambda quote: _matches(allow, quote)
    if candidates.regions_deny:
        deny = candidates.regions_deny
        yield _words("candidates.regions.deny", deny), "", lambda quote: not _matches(deny, quote)
    yield _words("place.order", order), "", lambda quote: quote.offer.market in order
    age_s = candidates.max_quote_age_s
    yield (
        f"candidates.max_quote_age: {format_duration(age_s)}",
        "",
        lambda quote: quote.age_s(now_ms) <= age_s,
    )
    for condition in candidates.where:
        yield condition.text, condition.place, _by(condition, now_ms)


def _by(condition: Condition, now_ms: int) -> Callable[[Quote], bool | None]:
    return lambda quote: condition.evaluate(offer_facts(quote, now_ms))


def _matches(patterns: Sequence[str], quote: Quote) -> bool:
    return any(fnmatchcase(quote.offer.region, pattern) for pattern in patterns)


def _words(key: str, values: Iterable[str]) -> str:
    return f"{key}: [{', '.join(values)}]"
