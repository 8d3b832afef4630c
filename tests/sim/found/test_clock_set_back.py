"""Seed 32: a clock that was 20 minutes fast was set right, and prices seen before stayed fresh for 20 minutes."""

from broker.core.offer import Market, Offer, Quote
from broker.decision.fit import refuse_quote

AWS = Offer("aws", "us-east-1", "use1-az6", "p5.4xlarge", Market.SPOT, "H100-SXM5-80GB", 1)
NOW_MS = 1_800_000_000_000


def refused(observed_at_ms: int) -> str:
    return refuse_quote(Quote(AWS, 3_000_000, NOW_MS - 10**7, observed_at_ms, "world"), None, NOW_MS, 600)


def test_a_price_from_the_future_is_not_fresh():
    assert "set back" in refused(NOW_MS + 1_200_000)


def test_a_slewed_clock_is_no_sign():
    assert refused(NOW_MS + 800) == ""


def test_an_ordinary_price_is_fresh():
    assert refused(NOW_MS - 60_000) == ""
