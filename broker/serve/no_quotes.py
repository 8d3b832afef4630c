"""Why a filter lets no quote through: what there would be without one part of it. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from broker.core.money import format_usd
from broker.core.offer import Market, Quote
from broker.market.index import MarketIndex, Wanted

# Quotes looked at, and values named: what is sold with five numbers of GPUs is not explained better by twenty.
_LOOKED, _NAMED = 10_000, 8


def why_none(index: MarketIndex, quotes: Mapping[str, Quote], wanted: Wanted) -> list[str]:
    """A sentence for each part of the filter that alone is in the way; none when only several together are.

    A pattern of regions is not spoken of: `broker.serve.quotes.elsewhere` tells what it keeps out. Nor is a cloud that has
    no price at all.
    """
    return list(_reasons(index, quotes, wanted))


def _reasons(index: MarketIndex, quotes: Mapping[str, Quote], wanted: Wanted) -> Iterator[str]:
    def without(**parts: None) -> list[Quote]:
        return list(index.find(quotes, replace(wanted, **parts), _LOOKED))

    def known(alone: Wanted) -> bool:
        return bool(index.find(quotes, alone, 1))

    what = wanted.gpu or "what else is asked for"
    if wanted.gpu is not None and not known(Wanted(gpu=wanted.gpu)):
        yield f"no price of {wanted.gpu} is known"
    if wanted.market is not None and not known(Wanted(market=wanted.market)):
        is_owned = wanted.market is Market.OWNED
        yield "no machine of yours has a price" if is_owned else f"no cloud's {wanted.market} prices are read"
    elif wanted.market is not None and (found := without(market=None)):
        yield f"{what} is sold {_each(found, lambda quote: str(quote.offer.market))}, and not {wanted.market}"
    if (wanted.gpus_min, wanted.gpus_max) != (None, None) and (
        found := without(gpus_min=None, gpus_max=None)
    ):
        yield f"{what} is sold with {_each(found, lambda quote: quote.offer.gpus)}"
    if wanted.cloud is not None and known(Wanted(cloud=wanted.cloud)) and (found := without(cloud=None)):
        yield f"{what} is sold by {_each(found, lambda quote: quote.offer.cloud)}"
    if wanted.price_micro_usd_h_max is not None and (found := without(price_micro_usd_h_max=None)):
        yield f"the cheapest costs {format_usd(min(quote.price_micro_usd_h for quote in found))} an hour"
    if wanted.gpu_memory_gib_min is not None and (found := without(gpu_memory_gib_min=None)):
        yield f"one GPU has {max(quote.offer.model.memory_gib for quote in found)} GiB at most"
    if wanted.vram_gib_min is not None and (found := without(vram_gib_min=None)):
        most_gib = max(quote.offer.gpus * quote.offer.model.memory_gib for quote in found)
        yield f"all GPUs of an instance have {most_gib} GiB at most"


def _each(quotes: Iterable[Quote], value_of: Callable[[Quote], int | str]) -> str:
    """``1, 4 and 8``."""
    values = [str(value) for value in sorted({value_of(quote) for quote in quotes})]
    if len(values) > _NAMED:
        values = [*values[: _NAMED - 1], "others"]
    *first, last = values
    return f"{', '.join(first)} and {last}" if first else last
