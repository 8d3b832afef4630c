"""The index finds what a look at every quote finds, in the same order, whatever has changed before."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from readings import NOW, ON_DEMAND, SPOT, quote

from broker.core.offer import Market, Offer, Quote
from broker.market.index import MarketIndex, Order, Wanted, micro_usd_per_gpu_h, micro_usd_per_pflop_h

COST = {Order.GPU: micro_usd_per_gpu_h, Order.FLOP: micro_usd_per_pflop_h}
SKUS = ["H100-SXM5-80GB", "H100-NVL-94GB", "L4-24GB", "MI300X-192GB"]

offers = st.builds(
    lambda cloud, region, number, market, gpu, gpus: Offer(
        cloud, region, f"{region}-{number}", "a-type", market, gpu, gpus
    ),
    st.sampled_from(["aws", "gcp", "lambda"]),
    st.sampled_from(["us-east-1", "us-west-2", "europe-west4"]),
    st.integers(0, 3),
    st.sampled_from([Market.SPOT, Market.ON_DEMAND]),
    st.sampled_from(SKUS),
    st.sampled_from([1, 2, 8]),
)
quotes = st.builds(lambda offer, usd: quote(usd, offer), offers, st.sampled_from([0.5, 1, 2, 2, 3, 40]))
markets = st.lists(quotes, max_size=40).map(lambda found: {q.offer.key: q for q in found})
wishes = st.builds(
    Wanted,
    gpu=st.sampled_from([None, "h100", "L4", "h100-nvl-94gb", "A100"]),
    gpus_min=st.sampled_from([None, 1, 2]),
    gpus_max=st.sampled_from([None, 2, 8]),
    gpu_memory_gib_min=st.sampled_from([None, 80, 94]),
    vram_gib_min=st.sampled_from([None, 188, 640]),
    market=st.sampled_from([None, Market.SPOT, Market.OWNED]),
    cloud=st.sampled_from([None, "AWS", "lambda"]),
    region=st.sampled_from([None, "us-*", "*west*", "eu"]),
    price_micro_usd_h_max=st.sampled_from([None, 0, 1_000_000, 2_000_000, 10**9]),
)


def by_looking_at_each(market: dict[str, Quote], wanted: Wanted, limit: int, order: Order) -> list[Quote]:
    admitted = filter(wanted.admits, market.values())
    return sorted(admitted, key=lambda q: (COST[order](q), q.offer.key))[:limit]


@given(
    st.lists(
        st.tuples(markets, wishes, st.integers(1, 5), st.sampled_from(list(Order))), min_size=1, max_size=4
    )
)
def test_the_index_and_a_look_at_each_agree(asked):
    index = MarketIndex()
    for market, wanted, limit, order in asked:
        assert index.find(market, wanted, limit, order) == by_looking_at_each(market, wanted, limit, order)


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([1, 2, 3]), min_size=8, max_size=8),
            st.sets(st.integers(0, 7), max_size=2),
            st.integers(4, 8),
        ),
        min_size=2,
        max_size=4,
    ),
    st.integers(0, 9),
)
def test_after_each_poll_the_index_says_what_a_new_one_would_say(polls, limit):
    """Prices move, machines grow and offers come and go; many cost the same."""
    index = MarketIndex()
    for prices, grown, offered in polls:
        market = {
            offer.key: quote(usd, offer)
            for number, usd in enumerate(prices[:offered])
            for offer in [replace(SPOT, zone=f"z{7 - number}", gpus=8 if number in grown else 1)]
        }
        for wanted in (Wanted(), Wanted(gpus_max=1), Wanted(price_micro_usd_h_max=2_000_000)):
            admitted = by_looking_at_each(market, wanted, limit, Order.GPU)
            assert index.find(market, wanted, limit) == admitted
            assert sum(index.count(market, wanted).values()) == sum(map(wanted.admits, market.values()))


def test_many_offers_of_one_kind_are_cut_at_any_price_and_any_number():
    market = {
        offer.key: quote(1 + number % 700, offer)
        for number in range(3000)
        for offer in [replace(SPOT, zone=f"z{number}", gpus=(1, 8)[number % 2])]
    }
    index = MarketIndex()
    for most in (None, 0, 1, 100, 512, 700, 701):
        wanted = Wanted(price_micro_usd_h_max=most and most * 1_000_000, gpus_min=2)
        for limit in (1, 30, 5000):
            assert index.find(market, wanted, limit) == by_looking_at_each(market, wanted, limit, Order.GPU)


def test_an_offer_that_grows_is_found_by_what_it_is_now():
    index = MarketIndex()
    small, grown = quote(2.5), quote(2.5, replace(SPOT, gpus=8))
    assert index.find({SPOT.key: small}, Wanted(gpus_max=1), 9) == [small]
    assert index.find({SPOT.key: grown}, Wanted(gpus_max=1), 9) == []
    assert index.find({SPOT.key: grown}, Wanted(gpus_min=8), 9) == [grown]


def test_an_offer_that_changes_all_the_time_is_found_once_and_leaves_nothing_behind():
    index = MarketIndex()
    for round_ in range(50):
        changing = quote(2 + round_ % 3, replace(SPOT, vcpus=round_, gpus=1 + round_ % 2))
        market = {SPOT.key: changing, ON_DEMAND.key: quote(6, ON_DEMAND)}
        assert index.find(market, Wanted(), 9) == by_looking_at_each(market, Wanted(), 9, Order.GPU)
    assert index.find({ON_DEMAND.key: quote(6, ON_DEMAND)}, Wanted(), 9) == [quote(6, ON_DEMAND)]
    assert index.find({}, Wanted(), 9) == []


def test_a_quote_seen_again_is_shown_with_its_new_age():
    index = MarketIndex()
    index.find({SPOT.key: quote(2.5)}, Wanted(), 1)
    younger = replace(quote(2.5), observed_at_ms=NOW)
    assert index.find({SPOT.key: younger}, Wanted(), 1)[0].observed_at_ms == NOW
