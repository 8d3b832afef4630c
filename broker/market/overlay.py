"""What you pay, where that is not what a cloud's list says: the operator's own file, as values. Pure.

    price of an offer = its own price, or that of owned capacity       `prices`, `owned`
                        else the commitment's, while one has room      `committed`
                        else the list's less a discount                `discounts`
    what a decision reckons with = that x the worth of a credit dollar, while a credit lasts      `credits`

Of several entries of a kind that match an offer at a moment, the first in the file counts. An entry outside its dates is
none: nobody has to take it out. The history keeps what the clouds said; the overlay is laid over it anew each time.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from fractions import Fraction
from functools import cached_property
from heapq import merge
from operator import itemgetter
from typing import Final, Generic, TypeVar

from broker.core.offer import Market, Offer, Quote

_WILD: Final = re.compile(r"[*?[]")


@dataclass(frozen=True, kw_only=True)
class Dated:
    """What has dates.

    Attributes:
        from_ms: None: always.
        until_ms: Exclusive. None: for ever.
        place: ``file:line:column``, for messages.
    """

    from_ms: int | None = None
    until_ms: int | None = None
    place: str = field(default="", compare=False)

    def holds(self, at_ms: int) -> bool:
        """Whether it is in force at a moment."""
        return (self.from_ms is None or self.from_ms <= at_ms) and (
            self.until_ms is None or at_ms < self.until_ms
        )


@dataclass(frozen=True, kw_only=True)
class Entry(Dated):
    """What speaks of offers.

    Attributes:
        offers: Pattern of offer keys; a ``*`` matches anything, slashes too.
    """

    offers: str

    def matches(self, offer: Offer) -> bool:
        """Whether it speaks of an offer, whenever."""
        if self.names_one:
            return offer.key == self.offers
        return self._pattern.match(offer.key) is not None

    @cached_property
    def names_one(self) -> bool:
        """Whether it is the key of one offer, and no pattern."""
        return not _WILD.search(self.offers)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(translate(self.offers))


@dataclass(frozen=True, kw_only=True)
class Discount(Entry):
    """Less than the list.

    Attributes:
        share: Of the list price that is taken off, 0 to 1.
    """

    share: Fraction


@dataclass(frozen=True, kw_only=True)
class Rate(Entry):
    """A price of its own.

    Attributes:
        micro_usd_h: Of a node, or of one GPU.
        per_gpu: Which of them.
    """

    micro_usd_h: int
    per_gpu: bool = False

    def price_micro_usd_h(self, offer: Offer) -> int:
        """Of a node."""
        return self.micro_usd_h * (offer.gpus if self.per_gpu else 1)


@dataclass(frozen=True, kw_only=True)
class Owned(Rate):
    """The rate of capacity that is yours: of offers on the market `owned` only."""

    def matches(self, offer: Offer) -> bool:
        """As ever, and it is owned."""
        return offer.market is Market.OWNED and super().matches(offer)


@dataclass(frozen=True, kw_only=True)
class Commitment(Rate):
    """A price for the first so many nodes.

    Attributes:
        count: Nodes, over all offers that match.
    """

    count: int


@dataclass(frozen=True, kw_only=True)
class Credit(Dated):
    """Money that a cloud has given, to be used up by a day. Spending is counted from `from_ms` on.

    Attributes:
        cloud: Whose.
        micro_usd: What was left at `from_ms`.
        worth: What a credit dollar counts in decisions, 0 to 1.
    """

    cloud: str
    micro_usd: int
    worth: Fraction


@dataclass(frozen=True)
class Standing:
    """What changes the prices of an overlay beside the lists.

    Attributes:
        epoch: How many dates of entries have passed.
        in_use: Nodes on each commitment, in the order of the file.
        left: Whether something is left of each credit, in the order of the file.
    """

    epoch: int
    in_use: tuple[int, ...]
    left: tuple[bool, ...]


E = TypeVar("E", bound=Entry)


class _Entries(Generic[E]):
    """Entries in the order of the file. One that names an offer is looked up: a contract may have thousands of them."""

    def __init__(self, entries: Sequence[E]) -> None:
        self._naming: dict[str, list[tuple[int, E]]] = {}
        self._patterns: list[tuple[int, E]] = []
        for at, entry in enumerate(entries):
            alike = self._naming.setdefault(entry.offers, []) if entry.names_one else self._patterns
            alike.append((at, entry))

    def of(self, offer: Offer) -> Iterator[E]:
        """Those that match, whenever they hold."""
        named = self._naming.get(offer.key, [])
        both = merge(named, self._patterns, key=itemgetter(0)) if named else self._patterns
        return (entry for _, entry in both if entry.matches(offer))


@dataclass(frozen=True)
class Overlay:
    """All entries of a file, in its order."""

    discounts: tuple[Discount, ...] = ()
    committed: tuple[Commitment, ...] = ()
    credits: tuple[Credit, ...] = ()
    owned: tuple[Owned, ...] = ()
    prices: tuple[Rate, ...] = ()

    def speaks_of(self, offer: Offer) -> bool:
        """Whether any entry matches, whenever it holds; credits aside."""
        return any(True for kind in (self._own, self._commitments, self._off) for _ in kind.of(offer))

    @cached_property
    def _own(self) -> "_Entries[Rate]":
        return _Entries((*self.prices, *self.owned))

    @cached_property
    def _commitments(self) -> "_Entries[Commitment]":
        return _Entries(self.committed)

    @cached_property
    def _off(self) -> "_Entries[Discount]":
        return _Entries(self.discounts)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """All that speak of offers."""
        return (*self.prices, *self.owned, *self.committed, *self.discounts)

    @property
    def dated(self) -> tuple[Dated, ...]:
        """All there is."""
        return (*self.entries, *self.credits)

    @cached_property
    def dates_ms(self) -> tuple[int, ...]:
        """When something begins or ends to hold, in order."""
        ends = [end for entry in self.dated for end in (entry.from_ms, entry.until_ms)]
        return tuple(sorted({end for end in ends if end is not None}))

    def standing(
        self, now_ms: int, nodes: Mapping[str, tuple[Offer, int]], spent_micro_usd: Mapping[str, int]
    ) -> Standing:
        """As of now.

        Args:
            nodes: By offer key: the offer, and how many nodes of it run.
            spent_micro_usd: By cloud, since its credit began.
        """
        in_use = dict.fromkeys(self.committed, 0)
        for offer, count in nodes.values():
            entry = self.commitment(offer, now_ms)
            if entry is not None:
                in_use[entry] += count
        return Standing(
            epoch=sum(date <= now_ms for date in self.dates_ms),
            in_use=tuple(in_use[entry] for entry in self.committed),
            left=tuple(spent_micro_usd.get(credit.cloud, 0) < credit.micro_usd for credit in self.credits),
        )

    def commitment(self, offer: Offer, at_ms: int) -> Commitment | None:
        """The one that an offer's nodes count towards."""
        return self._first(self._commitments, offer, at_ms)

    def credit(self, cloud: str, at_ms: int) -> Credit | None:
        """The one of a cloud at a moment; a file has one at most."""
        return next((c for c in self.credits if c.cloud == cloud and c.holds(at_ms)), None)

    def bill(self, quote: Quote, at_ms: int, covered: bool = False) -> Quote:
        """What a node of that offer is charged, before credits.

        Args:
            quote: What the cloud says.
            covered: It is one of the nodes that its commitment has room for.
        """
        offer = quote.offer
        own = self._first(self._own, offer, at_ms)
        if own is not None:
            return _at(
                quote, own.price_micro_usd_h(offer), "owned" if isinstance(own, Owned) else "own-price"
            )
        commitment = self.commitment(offer, at_ms) if covered else None
        if commitment is not None:
            return _at(quote, commitment.price_micro_usd_h(offer), "committed")
        discount = self._first(self._off, offer, at_ms)
        if discount is not None:
            return _at(quote, round(quote.price_micro_usd_h * (1 - discount.share)), "discount")
        return quote

    def apply(self, quote: Quote, now_ms: int, standing: Standing | None = None) -> Quote:
        """What a decision reckons with for one more node; `quote` itself where nothing is said of its offer."""
        standing = standing or self.standing(now_ms, {}, {})
        room = self._room(quote.offer, now_ms, standing)
        return self._credited(self.bill(quote, now_ms, covered=room > 0), now_ms, standing)

    def held(self, quote: Quote, now_ms: int, standing: Standing) -> Quote | None:
        """The same for a node that runs there already, on the average; None where that is no other price."""
        commitment = self.commitment(quote.offer, now_ms)
        used = standing.in_use[self.committed.index(commitment)] if commitment else 0
        if commitment is None or not used:
            return None
        inside = min(used, commitment.count)
        covered, uncovered = self.bill(quote, now_ms, covered=True), self.bill(quote, now_ms)
        total = inside * covered.price_micro_usd_h + (used - inside) * uncovered.price_micro_usd_h
        return self._credited(
            replace(covered, price_micro_usd_h=max(1, round(total / used))), now_ms, standing
        )

    def over(
        self, points: Sequence[Quote], until_ms: int, covered: Iterable[tuple[int, int]] = ()
    ) -> list[Quote]:
        """Changes of an offer's list price as changes of what is charged, before credits.

        Args:
            points: As `HistoryStore.points` has them.
            until_ms: What begins later does not matter.
            covered: Half-open stretches in which a commitment has room for the node.
        """
        if not points or not self.speaks_of(points[0].offer):
            return list(points)
        stretches = list(covered)
        cuts = sorted({*self.dates_ms, *(end for stretch in stretches for end in stretch)})
        charged: list[Quote] = []
        for point, then in zip(points, (*points[1:], None), strict=True):
            end_ms = until_ms if then is None else then.effective_at_ms
            starts = [point.effective_at_ms, *(c for c in cuts if point.effective_at_ms < c < end_ms)]
            for at_ms in starts:
                inside = any(a <= at_ms < b for a, b in stretches)
                quote = self.bill(replace(point, effective_at_ms=at_ms), at_ms, inside)
                # A date that changes nothing is no change.
                if at_ms == starts[0] or quote.price_micro_usd_h != charged[-1].price_micro_usd_h:
                    charged.append(quote)
        return charged

    def _room(self, offer: Offer, now_ms: int, standing: Standing) -> int:
        commitment = self.commitment(offer, now_ms)
        return commitment.count - standing.in_use[self.committed.index(commitment)] if commitment else 0

    def _credited(self, quote: Quote, now_ms: int, standing: Standing) -> Quote:
        credit = self.credit(quote.offer.cloud, now_ms)
        if credit is None or not standing.left[self.credits.index(credit)]:
            return quote
        return _at(quote, round(quote.price_micro_usd_h * credit.worth), "credit")

    @staticmethod
    def _first(entries: "_Entries[E]", offer: Offer, at_ms: int) -> E | None:
        return next((entry for entry in entries.of(offer) if entry.holds(at_ms)), None)


def _at(quote: Quote, price_micro_usd_h: int, why: str) -> Quote:
    # A price is positive: what is free would make every place that is far away as good as none.
    return replace(quote, price_micro_usd_h=max(1, price_micro_usd_h), source=f"{quote.source}+{why}")
