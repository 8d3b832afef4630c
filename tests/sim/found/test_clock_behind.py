"""Seed 61: two prices that began in the future of a clock that was behind got one date, and the older one was believed."""

from broker.core.offer import Market, Offer, RawQuote
from broker.market.quarantine import sift

GCP = Offer("gcp", "us-central1", "us-central1-a", "a3-highgpu-1g", Market.SPOT, "H100-SXM5-80GB", 1)
NOW_MS = 1_800_000_000_000


def believed(*prices: tuple[str, int]) -> list[tuple[int, int]]:
    """Prices taken in, with their dates as seconds from now."""
    raws = [RawQuote(GCP, price, "USD", NOW_MS + 1000 * starts_s, "world") for price, starts_s in prices]
    return [
        (quote.price_micro_usd_h, (quote.effective_at_ms - NOW_MS) // 1000)
        for quote in sift(raws, NOW_MS, {}, {}).quotes
    ]


def test_of_two_prices_ahead_of_our_clock_the_newest_counts():
    assert believed(("0.707", 138), ("0.7777", 290)) == [(777_700, 0)]


def test_what_is_history_by_our_clock_stays_history():
    assert believed(("0.883", -900), ("0.707", 138), ("0.7777", 290)) == [(883_000, -900), (777_700, 0)]
    assert believed(("0.883", -900), ("0.707", -60)) == [(883_000, -900), (707_000, -60)]
