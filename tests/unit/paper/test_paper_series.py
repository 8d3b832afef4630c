"""Series as people write them, every mistake at its column; and what polls see of them."""

import pytest
from paper_values import GCP, HOUR, MINUTE, NOW, SPOT

from broker.core.errors import PolicyError
from broker.core.yaml_text import Node, parse
from broker.paper.machines import known_offer, region_of
from broker.paper.market import OfferSeries, SeriesMarket
from broker.paper.series import Track, price_micro_usd_h, read_series, share, stock


def node(text: str) -> Node:
    return parse(f'prices:\n  here: "{text}"\n', "p.test.yaml", PolicyError)["prices"].as_mapped()["here"]


def prices(text: str) -> Track[int | None]:
    return read_series(node(text), price_micro_usd_h, NOW)


def market(text: str, left: str | None = None, poll_ms: int = 5 * MINUTE) -> SeriesMarket:
    nodes = None if left is None else read_series(node(left), stock, NOW)
    return SeriesMarket({SPOT.key: OfferSeries(SPOT, prices(text), nodes)}, NOW, poll_ms)


def test_values_hold_one_after_the_other_and_the_last_one_for_ever() -> None:
    track = prices("32.0x30m 61.0x2h 30")
    assert [track.at(NOW + m * MINUTE) for m in (0, 29, 30, 149, 150, 9999)] == [
        32_000_000,
        32_000_000,
        61_000_000,
        61_000_000,
        30_000_000,
        30_000_000,
    ]
    assert track.since(NOW + 40 * MINUTE) == NOW + 30 * MINUTE
    assert list(track.after(NOW + 40 * MINUTE)) == [(NOW + 150 * MINUTE, 30_000_000)]
    assert prices("32.0x30m 61.0x2h").at(NOW + 9 * HOUR) == 61_000_000
    assert prices("32.0x30m 61.0x2h").length_ms == 150 * MINUTE


def test_the_same_value_twice_is_no_change() -> None:
    assert prices("32x30m 32x30m 61").at_ms == (NOW, NOW + HOUR)


def test_a_number_without_quotes_is_a_series_too() -> None:
    bare = parse("a: 32.0\nb: 4\n", "p.test.yaml", PolicyError)
    assert read_series(bare["a"], price_micro_usd_h, NOW).values == (32_000_000,)
    assert read_series(bare["b"], stock, NOW).values == (4,)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("32.0x30m 61.O", 19, "'61.O' is not a price such as 32.0, or _"),
        ("32.0 61.0x2h", 10, "only the last value may go on for ever: write 32.0x30m"),
        ("32.0x30 61", 10, "'32.0x30' has no unit of time; write 32.0x30m"),
        ("32.0x30m 0x2h", 19, "a price is more than 0"),
        ("32.0x0m 1", 10, "holds for no time at all"),
        ("32.0x30q 1", 10, "'30q' is not a duration"),
        ("32.0x300d 33x300d", 20, "at most 366d long"),
        ("-3", 10, "is not a price"),
        ("NaN", 10, "is not a price"),
        ("١٢", 10, "is not a price"),
        ("1e5", 10, "is not a price"),
        ("1000000", 10, "at most 100000 dollars"),
    ],
)
def test_a_mistake_is_told_at_its_word(text: str, column: int, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        prices(text)
    assert (error.value.place.line, error.value.place.column) == (2, column)
    assert message in error.value.message
    assert error.value.message.startswith("prices.here: ")


def test_a_series_without_a_value_and_one_without_end_are_refused() -> None:
    with pytest.raises(PolicyError, match="is empty"):
        prices("   ")
    with pytest.raises(PolicyError, match="2001 values; 2000 are allowed"):
        prices("1x1m 2x1m " * 1000 + "1")
    with pytest.raises(PolicyError, match="expected values with how long they hold"):
        read_series(parse("a: [1]\n", "f", PolicyError)["a"], stock, NOW)


@pytest.mark.parametrize("text", ["four", "-1", "1.5", "_", "²"])
def test_stock_is_a_number_of_nodes(text: str) -> None:
    with pytest.raises(PolicyError, match="is not a number of nodes"):
        read_series(node(text), stock, NOW)


def test_shares_have_a_percent_sign() -> None:
    assert read_series(node("0%x1h 40%"), share, NOW).at(NOW + HOUR) == 0.4
    with pytest.raises(PolicyError, match="write 30%"):
        read_series(node("0.3"), share, NOW)


def test_a_change_is_seen_by_the_next_poll_and_dated_by_when_it_came() -> None:
    seen = market("32.0x12m 61.0")
    before, after = seen.quotes(NOW + 14 * MINUTE)[SPOT.key], seen.quotes(NOW + 15 * MINUTE)[SPOT.key]
    assert (before.price_micro_usd_h, before.observed_at_ms) == (32_000_000, NOW + 10 * MINUTE)
    assert (after.price_micro_usd_h, after.observed_at_ms) == (61_000_000, NOW + 15 * MINUTE)
    assert after.effective_at_ms == NOW + 12 * MINUTE
    assert seen.next_poll_ms(NOW - 1) == NOW
    assert seen.next_poll_ms(NOW) == NOW + 5 * MINUTE


def test_a_price_out_of_sight_grows_old_from_the_last_poll_that_saw_it() -> None:
    silent = market("32.0x12m _x30m 61.0")
    assert silent.quotes(NOW + 40 * MINUTE)[SPOT.key].age_s(NOW + 40 * MINUTE) == 30 * 60
    assert silent.quotes(NOW + 45 * MINUTE)[SPOT.key].age_s(NOW + 45 * MINUTE) == 0
    assert market("_x12m 32.0").quotes(NOW + 10 * MINUTE) == {}
    # The 61 of two minutes was never seen: no poll fell into it.
    unseen = market("32.0x11m 61.0x2m _")
    assert unseen.quotes(NOW + HOUR)[SPOT.key].price_micro_usd_h == 32_000_000


def test_the_bill_knows_prices_that_no_poll_saw() -> None:
    points = market("32.0x11m 61.0x2m _x7m 30").points(SPOT)
    assert [p.price_micro_usd_h for p in points] == [32_000_000, 61_000_000, 30_000_000]


def test_shortages_are_foreseen_by_the_loop_alone() -> None:
    left = market("32", "4x1h 1x1h 8")
    assert left.stock(SPOT, NOW + 90 * MINUTE) == 1
    assert left.next_shortage_ms(SPOT, 1, NOW) is None
    assert left.next_shortage_ms(SPOT, 2, NOW) == NOW + HOUR
    assert left.next_shortage_ms(GCP, 2, NOW) is None
    assert left.stock(GCP, NOW) is None


@pytest.mark.parametrize(
    ("cloud", "zone", "region"),
    [
        ("aws", "use1-az6", "us-east-1"),
        ("aws", "aps1-az1", "ap-south-1"),
        ("aws", "apse2-az3", "ap-southeast-2"),
        ("aws", "euc1-az2", "eu-central-1"),
        ("aws", "cnnw1-az1", "cn-northwest-1"),
        ("aws", "us-east-1a", None),
        ("gcp", "us-central1-a", "us-central1"),
        ("gcp", "somewhere", None),
        ("azure", "westus3", "westus3"),
        ("lambda", "us-south-1", "us-south-1"),
        ("coreweave", "US-EAST-04A", "US-EAST"),
        ("local", "rack-1", None),
    ],
)
def test_what_region_a_zone_lies_in(cloud: str, zone: str, region: str | None) -> None:
    assert region_of(cloud, zone) == region


def test_a_known_machine_is_a_whole_offer() -> None:
    offer = known_offer("aws/use1-az6/p5.48xlarge/spot")
    assert (offer.region, offer.gpu, offer.gpus, offer.fabric) == ("us-east-1", "H100-SXM5-80GB", 8, "efa")
    assert offer.key == "aws/use1-az6/p5.48xlarge/spot"
    assert known_offer("aws/use1-az6/p99.large/spot") is None
    assert known_offer("aws/nowhere/p5.48xlarge/spot") is None
