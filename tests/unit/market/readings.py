"""Small real values of a market."""

from dataclasses import replace

from broker.core.offer import Market, Offer, Quote, RawQuote

NOW = 1_790_000_000_000
MINUTE = 60_000

SPOT = Offer("aws", "us-east-1", "use1-az6", "p5.4xlarge", Market.SPOT, "H100-SXM5-80GB", 1)
ON_DEMAND = replace(SPOT, market=Market.ON_DEMAND)


def raw(
    price: str, offer: Offer = SPOT, effective_at_ms: int | None = NOW - MINUTE, currency: str = "USD"
) -> RawQuote:
    return RawQuote(offer, price, currency, effective_at_ms, "test")


def quote(price_usd: float, offer: Offer = SPOT, at_ms: int = NOW - 5 * MINUTE) -> Quote:
    return Quote(offer, round(price_usd * 1e6), at_ms, at_ms, "test")
