"""What was paid: segments x the price that held x the cloud's billing rule. Pure, computed anew each time.

Nothing here is stored or edited: a price that arrives late changes the next answer, and two people who ask get the
same one. Arithmetic is exact; each bill is rounded half to even once, to a micro-dollar, and its lines are the
differences of the rounded running sum, so that they add up to it without an adjustment.

The estimate knows prices and rules, not discounts, credits or taxes: what a cloud invoices may differ.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from broker.core.model import EndedBy, Segment
from broker.core.money import MS_PER_HOUR
from broker.core.offer import Market, Quote
from broker.core.tariff import BillingRule, Sampling

RuleOf = Callable[[str, Market], BillingRule]


class Why(StrEnum):
    """Which part of the rule decided the billed time."""

    METERED = "metered"
    MINIMUM = "minimum"
    FREE = "free"  # the cloud ended it early enough


@dataclass(frozen=True)
class LedgerLine:
    """A stretch of a bill with one price.

    Attributes:
        from_ms, to_ms: Half open.
        price_micro_usd_h: Of one node.
        source: Which call said so.
        paid_micro_usd: Lines of a bill add up to the bill.
    """

    from_ms: int
    to_ms: int
    price_micro_usd_h: int
    source: str
    paid_micro_usd: int


@dataclass(frozen=True)
class Bill:
    """What one segment cost, or has cost so far.

    Attributes:
        segment: Of one node.
        billed_s: By the rule; 0 when it is free.
        why: The part of the rule that decided `billed_s`.
        lines: One for each price that held.
        paid_micro_usd: Sum of the lines.
        unpriced_s: Billed seconds from before the first price that we know; they are *not* in the sum.
    """

    segment: Segment
    billed_s: int
    why: Why
    lines: tuple[LedgerLine, ...]
    paid_micro_usd: int
    unpriced_s: float = 0.0


def ledger(
    segments: Iterable[Segment], points_by_offer: Mapping[str, Sequence[Quote]], rule_of: RuleOf, now_ms: int
) -> list[Bill]:
    """A bill for every segment, in their order.

    Args:
        points_by_offer: By offer key: price changes in the order of `HistoryStore.points`, from the last one before
            the offer's first segment.
        rule_of: How a cloud bills a market.
        now_ms: Until when a segment that is still open is counted.
    """
    return [
        bill(
            segment,
            points_by_offer.get(segment.offer.key, ()),
            rule_of(segment.offer.cloud, segment.offer.market),
            now_ms,
        )
        for segment in segments
    ]


def bill(segment: Segment, points: Sequence[Quote], rule: BillingRule, now_ms: int) -> Bill:
    """One segment's bill. See `ledger`."""
    billed_s, why = _billed(segment, rule, now_ms)
    end_ms = segment.started_at_ms + billed_s * 1000
    lines: list[LedgerLine] = []
    exact, paid, priced_ms = Fraction(0), 0, 0
    by_the_hour = rule.sampling is Sampling.INSTANCE_HOUR
    stretches = (_hours if by_the_hour else _stretches)(segment.started_at_ms, end_ms, points)
    for from_ms, to_ms, quote in stretches:
        exact += Fraction(quote.price_micro_usd_h * (to_ms - from_ms), MS_PER_HOUR)
        line_paid = round(exact) - paid
        lines.append(LedgerLine(from_ms, to_ms, quote.price_micro_usd_h, quote.source, line_paid))
        paid += line_paid
        priced_ms += to_ms - from_ms
    return Bill(segment, billed_s, why, tuple(lines), paid, billed_s - priced_ms / 1000)


def _billed(segment: Segment, rule: BillingRule, now_ms: int) -> tuple[int, Why]:
    """Billed seconds. The minimum is owed from the first second on, also while the segment is open."""
    end_ms = now_ms if segment.ended_at_ms is None else segment.ended_at_ms
    ran_ms = max(0, end_ms - segment.started_at_ms)
    if segment.ended_by == EndedBy.CLOUD and ran_ms < rule.free_if_interrupted_within_s * 1000:
        return 0, Why.FREE
    units = -(-ran_ms // (rule.unit_s * 1000))
    if units * rule.unit_s < rule.minimum_s:
        return rule.minimum_s, Why.MINIMUM
    return units * rule.unit_s, Why.METERED


def _stretches(start_ms: int, end_ms: int, points: Sequence[Quote]) -> Iterable[tuple[int, int, Quote]]:
    """The parts of ``[start, end)`` with the quote that held in each; nothing for a time before the first point.

    Of two points for one moment the later observed one holds: the other's stretch has no length.
    """
    for index, quote in enumerate(points):
        until_ms = points[index + 1].effective_at_ms if index + 1 < len(points) else end_ms
        from_ms, to_ms = max(start_ms, quote.effective_at_ms), min(end_ms, until_ms)
        if from_ms < to_ms:
            yield from_ms, to_ms, quote


def _hours(start_ms: int, end_ms: int, points: Sequence[Quote]) -> Iterable[tuple[int, int, Quote]]:
    """The same where each hour of the segment costs what the price was when that hour began."""
    times = [quote.effective_at_ms for quote in points]
    open_from_ms, held = start_ms, None
    for hour_ms in range(start_ms, end_ms, MS_PER_HOUR):
        index = bisect_right(times, hour_ms)
        quote = points[index - 1] if index else None
        if quote is not held:
            if held is not None:
                yield open_from_ms, hour_ms, held
            open_from_ms, held = hour_ms, quote
    if held is not None and open_from_ms < end_ms:
        yield open_from_ms, end_ms, held
