"""Rows of EC2's price list and spot history that are not what they seem."""

import json
import weakref
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from broker.core.time import from_iso
from providers.aws.catalogue import Catalogue
from providers.aws.placement import groups
from providers.aws.price_list import ListPrice, listed
from providers.aws.spot import quotes_of
from providers.aws.types import TypeFacts

NOW_MS = from_iso("2026-11-30T10:00:00Z")
OLD, NEW = "2026-01-01T00:00:00Z", "2026-06-01T00:00:00Z"
H100 = TypeFacts("p5.48xlarge", "H100-SXM5-80GB", 8, 192, 2048, "nvlink", "efa")
CATALOGUE = Catalogue(
    "us-east-1",
    NOW_MS,
    types={"p5.48xlarge": H100},
    zones={"p5.48xlarge": ["use1-az6"]},
    zone_ids={"us-east-1a": "use1-az6"},
)


def row(price: str, **changes: Any) -> dict[str, Any]:
    """One change of spot price, as boto3 reads it."""
    usual = {
        "InstanceType": "p5.48xlarge",
        "AvailabilityZone": "us-east-1a",
        "AvailabilityZoneId": "use1-az6",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": price,
        "Timestamp": datetime(2026, 11, 30, 9, 0, tzinfo=UTC),
    }
    return usual | changes


def told(*rows: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(quote.offer.key, quote.price_text) for quote in quotes_of(rows, CATALOGUE)]


KEY = "aws/use1-az6/p5.48xlarge/spot"


def test_two_names_of_linux_are_one_price() -> None:
    vpc = row("27.4", ProductDescription="Linux/UNIX (Amazon VPC)")
    assert told(row("27.4"), vpc) == [(KEY, "27.4")]
    assert told(vpc) == [(KEY, "27.4")]


def test_two_different_prices_at_once_are_both_told_for_the_market_to_doubt() -> None:
    assert told(row("27.4"), row("3.1", ProductDescription="Linux/UNIX (Amazon VPC)")) == [
        (KEY, "27.4"),
        (KEY, "3.1"),
    ]


def test_other_systems_and_types_that_were_not_asked_for_are_left_out() -> None:
    assert told(row("40", ProductDescription="Windows"), row("1", InstanceType="g6f.xlarge")) == []


def test_a_zone_is_its_id_and_never_its_name() -> None:
    without = row("27.4")
    del without["AvailabilityZoneId"]
    assert told(without) == [(KEY, "27.4")]
    without["AvailabilityZone"] = "us-east-1z"  # a name that this account does not have
    assert told(without) == []


def product(*terms: tuple[str, str], unit: str = "Hrs", **differs: str) -> str:
    """A price list entry with on-demand terms (date, dollars): JSON in a text, as the service sends it."""
    attributes = {
        "instanceType": "p5.48xlarge",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }

    def term(number: int, since: str, usd: str) -> dict[str, Any]:
        rate = {"unit": unit, "pricePerUnit": {"USD": usd}}
        return {"effectiveDate": since, "priceDimensions": {f"r{number}": rate}}

    on_demand = {f"t{number}": term(number, since, usd) for number, (since, usd) in enumerate(terms)}
    reserved = {"t9": term(9, NEW, "20.0000000000")}
    return json.dumps(
        {
            "product": {"attributes": attributes | differs},
            "terms": {"OnDemand": on_demand, "Reserved": reserved},
        }
    )


def prices(*products: str) -> dict[str, list[str]]:
    found = listed([{"PriceList": [text]} for text in products], NOW_MS)
    return {name: [price.text for price in of] for name, of in found.items()}


RIGHT = product((OLD, "55.0400000000"))


def test_entries_are_texts_of_json_and_the_price_keeps_its_own_date() -> None:
    (only,) = listed([{"PriceList": [RIGHT]}], NOW_MS)["p5.48xlarge"]
    assert only == ListPrice("55.0400000000", "USD", from_iso(OLD))


@pytest.mark.parametrize(
    "trap",
    [
        product((NEW, "0.0000000000"), marketoption="CapacityBlock"),
        product((NEW, "31.4640000000"), marketoption="CapacityBlock"),
        product((NEW, "11.0000000000"), marketoption="SomethingNew"),
        product((NEW, "0.0000000000"), capacitystatus="AllocatedCapacityReservation"),
        product((NEW, "55.0400000000"), capacitystatus="UnusedCapacityReservation"),
        product((NEW, "77.0000000000"), operatingSystem="Windows"),
        product((NEW, "60.5440000000"), tenancy="Dedicated"),
        product((NEW, "80.0000000000"), preInstalledSw="SQL Std"),
        product((NEW, "0.0000000000")),
        product((NEW, "48000.0000000000"), unit="Quantity"),
    ],
)
def test_rows_under_other_terms_are_no_price_whatever_they_say(trap: str) -> None:
    assert prices(RIGHT, trap) == prices(trap, RIGHT) == {"p5.48xlarge": ["55.0400000000"]}
    assert prices(trap) == {}


def test_of_several_terms_the_newest_that_has_begun_counts() -> None:
    terms = ((NEW, "55.0400000000"), (OLD, "98.3200000000"), ("2027-01-01T00:00:00Z", "50.0000000000"))
    assert prices(product(*terms)) == prices(product(*reversed(terms))) == {"p5.48xlarge": ["55.0400000000"]}


def test_two_entries_of_the_same_moment_that_disagree_are_both_told() -> None:
    assert prices(RIGHT, RIGHT) == {"p5.48xlarge": ["55.0400000000"]}
    assert prices(RIGHT, product((OLD, "54.0000000000"))) == {
        "p5.48xlarge": ["55.0400000000", "54.0000000000"]
    }


class Page(dict[str, Any]):
    """A page that can be watched."""


def test_a_page_of_the_price_list_is_dropped_when_the_next_is_read() -> None:
    alive: weakref.WeakValueDictionary[int, Page] = weakref.WeakValueDictionary()
    most = 0

    def pages() -> Iterator[Page]:
        nonlocal most
        for number in range(30):
            page = Page(PriceList=[product((OLD, "1.0"), instanceType=f"p5.{number}xlarge")])
            alive[number] = page
            most = max(most, len(alive))
            yield page

    assert len(listed(pages(), NOW_MS)) == 30
    assert most <= 2


L4, L40S = ("L4-24GB", "g6"), ("L40S-48GB", "g6e")
P5, P5E, P6 = ("H100-SXM5-80GB", "p5"), ("H200-SXM-141GB", "p5e"), ("B200-SXM-180GB", "p6-b200")


def catalogue(*kinds: tuple[tuple[str, str], int]) -> Catalogue:
    """Of (GPU and family, number of sizes)."""
    types = {
        f"{family}.{number}xlarge": TypeFacts(f"{family}.{number}xlarge", gpu, 1, 4, 16, "none", "ethernet")
        for (gpu, family), sizes in kinds
        for number in range(sizes)
    }
    return Catalogue("us-east-1", NOW_MS, types, {}, {})


def test_types_are_scored_with_those_of_the_same_gpu_where_there_are_three() -> None:
    found = groups(catalogue((L4, 3), (L40S, 4)))
    assert found["g6.0xlarge"] == ("g6.0xlarge", "g6.1xlarge", "g6.2xlarge")
    assert set(found["g6e.0xlarge"]) == {f"g6e.{number}xlarge" for number in range(4)}


def test_types_are_scored_with_their_generation_where_their_gpu_has_fewer_than_three() -> None:
    found = groups(catalogue((P5, 2), (P5E, 1), (L4, 3), (L40S, 1)))
    assert found["p5.0xlarge"] == found["p5e.0xlarge"] == ("p5.0xlarge", "p5.1xlarge", "p5e.0xlarge")
    assert len(found["g6.0xlarge"]) == 3
    assert len(found["g6e.0xlarge"]) == 4


def test_nothing_is_asked_about_one_or_two_types_since_their_score_is_always_low() -> None:
    assert groups(catalogue((P6, 2), (P5, 2))) == {}
