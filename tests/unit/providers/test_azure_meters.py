"""Which row of Azure's price list is the price: each row that traps, by its name."""

from typing import Any

import pytest

from broker.core.offer import Market, Offer, RawQuote
from broker.core.time import from_iso
from broker.market.quarantine import sift
from providers.azure.meters import Chosen, chosen

NOW = from_iso("2026-06-15T12:00:00Z")
SIZE = "Standard_NC40ads_H100_v5"


def row(**changes: Any) -> dict[str, Any]:
    """The row that counts, numbers as their text, changed."""
    usual = {
        "currencyCode": "USD",
        "tierMinimumUnits": "0.0",
        "retailPrice": "6.98",
        "unitPrice": "6.98",
        "armRegionName": "eastus",
        "effectiveStartDate": "2026-05-01T00:00:00Z",
        "meterId": "m1",
        "meterName": "NC40adsH100v5",
        "productName": "Virtual Machines NCadsH100v5 Series",
        "skuName": "NC40adsH100v5",
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": SIZE,
    }
    return usual | changes


def spot(**changes: Any) -> dict[str, Any]:
    names = {"meterName": "NC40adsH100v5 Spot", "skuName": "NC40adsH100v5 Spot", "meterId": "m2"}
    return row(**({"retailPrice": "2.192418"} | names | changes))


def choose(*rows: dict[str, Any], now_ms: int = NOW) -> Chosen:
    return chosen(rows, lambda size: size.startswith("Standard_N"), now_ms)


def prices(*rows: dict[str, Any], now_ms: int = NOW) -> list[tuple[str, str]]:
    return [(str(meter.market), meter.text) for meter in choose(*rows, now_ms=now_ms).meters]


def test_on_demand_and_spot_are_told_apart() -> None:
    assert prices(row(), spot()) == [("on_demand", "6.98"), ("spot", "2.192418")]


def test_windows_meters_are_not_ours() -> None:
    windows = "Virtual Machines NCadsH100v5 Series Windows"
    assert prices(row(productName=windows, retailPrice="8.82"), row()) == [("on_demand", "6.98")]
    assert prices(spot(productName=windows, retailPrice="2.77"), spot()) == [("spot", "2.192418")]


def test_low_priority_is_not_spot() -> None:
    low = {"meterName": "NC40adsH100v5 Low Priority", "skuName": "NC40adsH100v5 Low Priority"}
    assert prices(row(**low, retailPrice="1.40")) == []
    assert prices(row(), row(meterName=low["meterName"], retailPrice="1.40", meterId="m3")) == [
        ("on_demand", "6.98")
    ]


@pytest.mark.parametrize("words", ["Cloud Services", "CloudServices"])
def test_cloud_services_duplicates_are_not_machines(words: str) -> None:
    assert prices(row(productName=f"NCadsH100v5 Series {words}", retailPrice="7.68"), row()) == [
        ("on_demand", "6.98")
    ]


@pytest.mark.parametrize("words", ["Dedicated Host", "DedicatedHost"])
def test_dedicated_hosts_are_not_machines(words: str) -> None:
    assert prices(row(productName=f"NCadsH100v5 Series {words}")) == []


def test_prices_of_test_subscriptions_are_not_ours() -> None:
    assert prices(row(type="DevTestConsumption", retailPrice="3.00")) == []


def test_a_reservation_is_the_price_of_a_term_whatever_its_unit_says() -> None:
    assert prices(row(type="Reservation", reservationTerm="1 Year", retailPrice="39160.0")) == []
    assert prices(row(reservationTerm="1 Year", retailPrice="39160.0")) == []


@pytest.mark.parametrize("primary", [False, None, "true"])
def test_non_primary_meter_regions_are_used_for_no_bill(primary: object) -> None:
    elsewhere = row(isPrimaryMeterRegion=primary, retailPrice="1.75", meterId="m9")
    assert prices(elsewhere, row()) == [("on_demand", "6.98")]
    assert choose(elsewhere, row()).elsewhere == frozenset()


def test_a_size_with_meters_of_other_regions_alone_is_named() -> None:
    found = choose(row(isPrimaryMeterRegion=False))
    assert found.meters == ()
    assert found.elsewhere == {SIZE}


def test_spot_must_stand_in_both_names() -> None:
    assert prices(spot(meterName="NC40adsH100v5")) == []
    assert prices(spot(skuName="NC40adsH100v5")) == []
    assert prices(row(productName="Virtual Machines NCadsH100v5 Series Spot")) == [("on_demand", "6.98")]


def test_the_newest_row_that_has_begun_is_the_price() -> None:
    older = row(effectiveStartDate="2021-11-01T00:00:00Z", retailPrice="8.37")
    later = row(effectiveStartDate="2026-07-01T00:00:00Z", retailPrice="3.49")
    for order in ((older, row(), later), (later, row(), older), (row(), later, older)):
        assert prices(*order) == [("on_demand", "6.98")]
    assert prices(older, row(), later, now_ms=from_iso("2026-07-01T00:00:00Z")) == [("on_demand", "3.49")]
    assert prices(older, row(), later, now_ms=from_iso("2026-06-30T23:59:59Z")) == [("on_demand", "6.98")]


def test_a_price_to_come_is_no_price_yet() -> None:
    assert prices(row(effectiveStartDate="2026-07-01T00:00:00Z")) == []


def test_a_row_counts_through_its_last_day() -> None:
    ends = {"effectiveEndDate": "2026-06-30T00:00:00Z"}
    assert prices(spot(**ends), now_ms=from_iso("2026-06-30T23:59:59Z")) == [("spot", "2.192418")]
    over = choose(spot(**ends), row(), now_ms=from_iso("2026-07-01T00:00:00Z"))
    assert [meter.text for meter in over.meters] == ["6.98"]
    assert over.ended == {f"{SIZE} spot"}


def test_a_row_that_was_replaced_at_the_end_of_a_month_is_not_named() -> None:
    old = spot(effectiveEndDate="2026-05-31T00:00:00Z", effectiveStartDate="2026-05-01T00:00:00Z")
    new = spot(effectiveStartDate="2026-06-01T00:00:00Z", retailPrice="2.10")
    assert choose(old, new).ended == frozenset()
    assert prices(old, new) == [("spot", "2.10")]


@pytest.mark.parametrize(
    "changes",
    [
        {"unitOfMeasure": "1/Month"},
        {"unitOfMeasure": "100 Hours"},
        {"tierMinimumUnits": "744.0"},
        {"tierMinimumUnits": None},
        {"armSkuName": ""},
        {"armSkuName": None},
        {"armSkuName": "NDasrA100v4_Type1"},
    ],
)
def test_rows_of_other_units_tiers_and_things_are_no_price(changes: dict[str, Any]) -> None:
    assert prices(row(**changes)) == []


def test_the_first_tier_is_the_price_however_zero_is_written() -> None:
    for zero in ("0", "0.0", "0E+1"):
        assert prices(row(tierMinimumUnits=zero)) == [("on_demand", "6.98")]


def test_a_price_keeps_its_text_and_its_currency() -> None:
    (meter,) = choose(row(retailPrice="6.980000000000000426", currencyCode="EUR")).meters
    assert (meter.text, meter.currency, meter.effective_at_ms) == (
        "6.980000000000000426",
        "EUR",
        from_iso("2026-05-01T00:00:00Z"),
    )


def test_the_same_price_twice_is_one_price() -> None:
    twice = choose(row(), row(meterId="m7", retailPrice="6.980", effectiveStartDate="2026-06-01T00:00:00Z"))
    (meter,) = twice.meters
    assert meter.effective_at_ms == from_iso("2026-06-01T00:00:00Z")


@pytest.mark.parametrize("started", ["2026-05-01T00:00:00Z", "2026-02-01T00:00:00Z", "2026-06-14T00:00:00Z"])
@pytest.mark.parametrize("meter_id", ["m1", "m7"])
def test_two_prices_at_once_are_both_told_and_none_is_believed(started: str, meter_id: str) -> None:
    if meter_id == "m1" and started != "2026-05-01T00:00:00Z":
        return  # one meter over time is no contradiction
    found = choose(row(), row(meterId=meter_id, retailPrice="8.82", effectiveStartDate=started)).meters
    assert {meter.text for meter in found} == {"6.98", "8.82"}
    assert len({meter.effective_at_ms for meter in found}) == 1
    offer = Offer("azure", "eastus", "eastus", SIZE, Market.ON_DEMAND, "H100-NVL-94GB", 1)
    raws = [RawQuote(offer, meter.text, "USD", meter.effective_at_ms, "azure:retail") for meter in found]
    sifted = sift(raws, NOW, {}, {})
    assert sifted.quotes == ()
    assert sifted.doubts[offer.key].reason.startswith("two prices at once")


def test_a_price_that_is_none_is_passed_on_for_the_market_to_doubt() -> None:
    assert [text for _, text in prices(row(retailPrice="0.0"))] == ["0.0"]
    assert [text for _, text in prices(row(retailPrice="n/a"))] == ["n/a"]


def test_a_row_without_a_date_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a date"):
        choose(row(effectiveStartDate=None))


def test_of_a_size_that_is_not_wanted_nothing_is_read() -> None:
    plain = row(armSkuName="Standard_D4s_v5", effectiveStartDate="nonsense", retailPrice=None)
    assert choose(plain) == Chosen((), frozenset(), frozenset())
