"""Two readings of one market, ours and gpuhunt's: what agrees, and what differs for a reason that somebody has given.

A reason is a rule that must fit exactly: which offers, at which price. What no rule fits, or more than one, is unexplained.
"""

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from broker.core.gpu import GPUS
from broker.core.offer import Offer, RawQuote

# Fields of `Facts`, as they are called in a difference.
FACTS = ("gpu", "gpus", "gpu_gib", "vcpus", "memory_gib")


@dataclass(frozen=True, order=True)
class Price:
    """A price in gpuhunt's terms.

    Attributes:
        place: A region; for Google a zone.
        market: ``spot`` or ``on_demand``.
    """

    place: str
    instance_type: str
    market: str
    micro_usd_h: Decimal


@dataclass(frozen=True)
class Facts:
    """What both say of a machine. `gpu` is gpuhunt's name: the family, and ``H100NVL``."""

    gpu: str
    gpus: int
    gpu_gib: float
    vcpus: int
    memory_gib: float


@dataclass(frozen=True)
class Item:
    """A row of gpuhunt's. `arch`: ``x86`` or ``arm``."""

    price: Price
    facts: Facts
    arch: str


Rule = Callable[[Price], bool]
FactRule = Callable[[Offer, Facts], bool]
"""Whether it predicts exactly what gpuhunt says of an offer of ours."""


@dataclass
class Comparison:
    """What came of it.

    Attributes:
        agreed: Prices that both have.
        ours: By reason: what we alone have.
        theirs: By reason: what gpuhunt alone has.
        facts: By reason: agreed prices of whose machine gpuhunt says something else.
        unexplained: Everything else, in words.
    """

    agreed: set[Price]
    ours: dict[str, set[Price]] = field(default_factory=dict)
    theirs: dict[str, set[Price]] = field(default_factory=dict)
    facts: dict[str, set[Price]] = field(default_factory=dict)
    unexplained: list[str] = field(default_factory=list)


def ours(quotes: Iterable[RawQuote]) -> dict[Price, list[Offer]]:
    """Our offers by their price in gpuhunt's terms, where zones of one price are one."""
    found: dict[Price, list[Offer]] = {}
    for quote in quotes:
        offer = quote.offer
        assert quote.currency == "USD", quote
        place = offer.zone if offer.cloud == "gcp" else offer.region
        micro_usd_h = Decimal(quote.price_text) * 10**6
        price = Price(place, offer.instance_type, str(offer.market), micro_usd_h)
        found.setdefault(price, []).append(offer)
    return found


def theirs(path: Path) -> list[Item]:
    """Rows of a catalogue that gpuhunt wrote."""
    with path.open(newline="") as lines:
        return [_item(row) for row in csv.DictReader(lines)]


def facts(offer: Offer) -> Facts:
    """Ours."""
    model = GPUS[offer.gpu]
    return Facts(name_of(offer), offer.gpus, float(model.memory_gib), offer.vcpus, float(offer.memory_gib))


def name_of(offer: Offer) -> str:
    """What gpuhunt calls its GPU."""
    model = GPUS[offer.gpu]
    return f"{model.family}{'NVL' if model.form == 'NVL' else ''}"


def compare(
    mine: Mapping[Price, list[Offer]],
    other: Iterable[Item],
    *,
    ours_only: Mapping[str, Rule],
    theirs_only: Mapping[str, Rule],
    fact_rules: Mapping[str, tuple[str, FactRule]],
) -> Comparison:
    """Every price and every fact is the same, or has one reason."""
    items = {item.price: item for item in other}
    done = Comparison(mine.keys() & items.keys())
    done.ours = _reasons(mine.keys() - items.keys(), ours_only, "only here", done.unexplained)
    done.theirs = _reasons(items.keys() - mine.keys(), theirs_only, "only there", done.unexplained)
    done.facts = {name: set() for name in fact_rules}
    for price in sorted(done.agreed):
        for offer in mine[price]:
            for name in FACTS:
                _compare_fact(name, offer, items[price], fact_rules, done)
    return done


def _reasons(
    prices: Iterable[Price], rules: Mapping[str, Rule], side: str, unexplained: list[str]
) -> dict[str, set[Price]]:
    found: dict[str, set[Price]] = {name: set() for name in rules}
    for price in sorted(prices):
        fitting = [name for name, rule in rules.items() if rule(price)]
        if len(fitting) == 1:
            found[fitting[0]].add(price)
        else:
            unexplained.append(f"{side}: {price}; reasons: {fitting}")
    return found


def _compare_fact(
    name: str, offer: Offer, item: Item, rules: Mapping[str, tuple[str, FactRule]], done: Comparison
) -> None:
    here, there = getattr(facts(offer), name), getattr(item.facts, name)
    if here == there:
        return
    fitting = [reason for reason, (of, rule) in rules.items() if of == name and rule(offer, item.facts)]
    if len(fitting) == 1:
        done.facts[fitting[0]].add(item.price)
    else:
        done.unexplained.append(f"{name} of {offer.key}: {here} here, {there} there; reasons: {fitting}")


def _item(row: Mapping[str, str]) -> Item:
    market = {"True": "spot", "False": "on_demand"}[row["spot"]]
    price = Price(row["location"], row["instance_name"], market, Decimal(row["price"]) * 10**6)
    told = Facts(
        gpu=row["gpu_name"],
        gpus=int(row["gpu_count"]),
        gpu_gib=float(row["gpu_memory"]),
        vcpus=int(row["cpu"]),
        memory_gib=float(row["memory"]),
    )
    return Item(price, told, row["cpu_arch"])
