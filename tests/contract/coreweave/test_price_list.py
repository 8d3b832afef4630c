"""Prices of CoreWeave: a list that people keep."""

from pathlib import Path

import pytest

from broker.core.errors import Invalid, SettingsError
from broker.core.money import micro_usd
from broker.core.offer import Market
from broker.core.time import DAY_S, to_iso
from broker.market.quarantine import sift
from lab.sold.coreweave import TYPES
from providers.registry import open_provider, vendor_endpoints
from tests.contract.conftest import INSTALLATION
from tests.contract.coreweave.conftest import H100_ON_DEMAND, CoreWeave

pytestmark = pytest.mark.process

# Prices


def test_prices_are_those_of_the_list_for_a_whole_node(cloud: CoreWeave) -> None:
    quoted = {quote.offer.key: micro_usd(quote.price_text) for quote in cloud.source.quotes()}
    truth = {key: cloud.world.price(key) for key in cloud.world.pools if key.startswith("coreweave/")}
    assert truth
    # A list has no stock: what has a price is priced in every zone that the row names.
    assert truth.items() <= quoted.items()
    assert quoted[H100_ON_DEMAND] == 49_240_000
    offers = {quote.offer.instance_type: quote.offer for quote in cloud.source.quotes()}
    for kind in TYPES:
        offer = offers[kind.name]
        assert (offer.gpu, offer.gpus, offer.vcpus, offer.memory_gib) == (
            kind.gpu,
            kind.gpus,
            kind.vcpus,
            kind.memory_gib,
        )
        assert (offer.interconnect, offer.fabric) == (kind.interconnect, kind.fabric)


def test_quotes_are_dated_by_the_list_and_seen_when_it_was_read(cloud: CoreWeave) -> None:
    quotes = cloud.source.quotes()
    date = to_iso(cloud.clock.now_ms())[:10]
    assert {quote.source for quote in quotes} == {f"coreweave:price_list:{date}"}
    (day_ms,) = {quote.effective_at_ms for quote in quotes}
    assert day_ms is not None
    assert to_iso(day_ms) == f"{date}T00:00:00Z"
    sifted = sift(quotes, cloud.clock.now_ms(), {}, {})
    assert sifted.doubts == {}
    assert {quote.age_s(cloud.clock.now_ms()) for quote in sifted.quotes} == {0.0}


def test_superchips_have_no_spot(cloud: CoreWeave) -> None:
    markets = {q.offer.market for q in cloud.source.quotes() if q.offer.instance_type == "gd-1xgh200"}
    assert markets == {Market.ON_DEMAND}


def test_an_edit_of_the_list_is_seen_at_the_next_poll(cloud: CoreWeave) -> None:
    file = Path(cloud.options["price_file"])
    file.write_text(file.read_text().replace("49.24", "39.99"))
    quoted = {quote.offer.key: quote.price_text for quote in cloud.source.quotes()}
    assert micro_usd(quoted[H100_ON_DEMAND]) == 39_990_000


def test_a_broken_edit_fails_the_poll_with_its_place(cloud: CoreWeave) -> None:
    file = Path(cloud.options["price_file"])
    file.write_text(file.read_text().replace("gpus: 8", "gpus: eight", 1))
    with pytest.raises(Invalid, match=rf"{file}:\d+:\d+: .*gpus: expected a whole number"):
        cloud.source.quotes()
    assert cloud.source.check()[0].ok is False


def test_a_list_that_is_too_old_is_not_read_any_more_and_doctor_says_so(cloud: CoreWeave) -> None:
    source = cloud.opened_with(max_list_age="2d", price_file=cloud.options["price_file"])
    assert source.quotes()
    file = Path(cloud.options["price_file"])
    date = to_iso(cloud.clock.now_ms() - 3 * DAY_S * 1000)[:10]
    file.write_text(file.read_text().replace(to_iso(cloud.clock.now_ms())[:10], date))
    with pytest.raises(Invalid, match=rf"price list of {date} is 3d[0-9hm]* old, more than 2d"):
        source.quotes()
    check = source.check()[0]
    assert (check.name, check.ok) == ("coreweave: price list", False)
    assert "not read any more" in check.detail


def test_only_the_configured_zones_are_priced(cloud: CoreWeave) -> None:
    source = cloud.opened_with(zones=["US-WEST-04A", "US-WEST-99Z"])
    assert {quote.offer.zone for quote in source.quotes()} == {"US-WEST-04A"}
    strange = next(check for check in source.check() if check.name == "coreweave: zones")
    assert (strange.ok, strange.detail.split(":")[0]) == (None, "US-WEST-99Z")


# What it costs beside the price


def test_egress_and_disk_are_free_and_what_is_unknown_of_the_meter_is_told(cloud: CoreWeave) -> None:
    offer = cloud.source.quotes()[0].offer
    rule = cloud.source.billing_rule(Market.ON_DEMAND)
    assert "granularity is not published" in rule.unconfirmed
    assert rule.source
    assert cloud.source.egress_micro_usd_per_gib(offer, None) == 0
    assert cloud.source.disk_micro_usd_per_gib_month(offer.region) == 0
    assert list(cloud.source.price_history(0)) == []


def test_nothing_is_rented_there(cloud: CoreWeave) -> None:
    with pytest.raises(SettingsError, match="only the prices"):
        open_provider("coreweave", cloud.options, cloud.clock, INSTALLATION)
    assert vendor_endpoints("coreweave", cloud.options) == []
