"""AWS's price list as a file: the same prices as the API's, in the columns of the real one."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import pytest

from broker.core.time import to_iso
from lab.catalog import Scenario
from lab.faces import DropConnection, Handler, Request, aws
from lab.faces.aws_bulk import OPERATION, PATH
from lab.faces.aws_pricing import Pricing
from lab.faults import Fault, FaultKind
from lab.world import World
from tests.clocks import ManualClock

ABOUT = ("FormatVersion", "Disclaimer", "Publication Date", "Version", "OfferCode")
POOL = "aws/use1-az6/p5.48xlarge/on_demand"


@dataclass
class File:
    """The face, and what it answers to somebody without credentials."""

    world: World
    face: Handler

    def lines(self) -> Iterator[str]:
        reply = self.face(Request("GET", PATH, (), {}, b""))
        assert (reply.status, reply.body, reply.headers) == (200, b"", {"Content-Type": "text/csv"})
        assert reply.parts is not None
        yield from (part.decode() for part in reply.parts)

    def rows(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO("".join(list(self.lines())[len(ABOUT) :]))))


@pytest.fixture
def file() -> File:
    world = World(ManualClock(), Scenario.of({"prices": {POOL: "61.25"}}))
    return File(world, aws.create(world, aws.Keys("AKIALAB", "secret")))


def test_five_rows_come_before_the_columns_and_only_what_is_empty_has_no_quotes(file: File) -> None:
    lines = [line.rstrip("\n") for line in file.lines()]
    assert [next(csv.reader([line]))[0] for line in lines[:5]] == list(ABOUT)
    assert lines[5].startswith(
        '"SKU","OfferTermCode","RateCode","TermType","PriceDescription","EffectiveDate"'
    )
    columns = len(next(csv.reader([lines[5]])))
    for line in lines[6:]:
        assert len(next(csv.reader([line]))) == columns
        assert ',""' not in line, "an empty field has no quotes"


def test_it_has_the_prices_of_the_api_trap_for_trap(file: File) -> None:
    found = {
        (row["SKU"], row["OfferTermCode"], row["Currency"], Decimal(row["PricePerUnit"]))
        for row in file.rows()
    }
    expected = {
        (term["sku"], term["offerTermCode"], currency, Decimal(price))
        for product in Pricing(file.world).products()
        for terms in product["terms"].values()
        for term in terms.values()
        for dimension in term["priceDimensions"].values()
        for currency, price in dimension["pricePerUnit"].items()
    }
    assert found == expected
    assert {row["TermType"] for row in file.rows()} == {"OnDemand", "Reserved"}
    assert {row["MarketOption"] for row in file.rows()} == {"OnDemand", "CapacityBlock"}


def test_a_row_tells_what_one_needs_to_pick_it(file: File) -> None:
    usual = {
        "Region Code": "us-east-1",
        "Instance Type": "p5.48xlarge",
        "TermType": "OnDemand",
        "Tenancy": "Shared",
        "Operating System": "Linux",
        "CapacityStatus": "Used",
        "Pre Installed S/W": "NA",
        "MarketOption": "OnDemand",
    }
    (row,) = [row for row in file.rows() if usual.items() <= row.items()]
    assert (row["PricePerUnit"], row["Unit"], row["Currency"]) == ("61.2500000000", "Hrs", "USD")
    assert (row["GPU"], row["vCPU"], row["Memory"]) == ("8", "192", "2048 GiB")
    assert row["EffectiveDate"] == to_iso(file.world.pools[POOL].changes[0].at_s * 1000)[:10]
    (fraction,) = [
        row for row in file.rows() if {**usual, "Instance Type": "g6f.xlarge"}.items() <= row.items()
    ]
    assert fraction["GPU"] == "0.125"


def test_a_reservation_says_for_how_long_and_how_it_is_paid(file: File) -> None:
    reserved = [row for row in file.rows() if row["TermType"] == "Reserved"]
    assert reserved
    assert {
        (row["LeaseContractLength"], row["PurchaseOption"], row["OfferingClass"]) for row in reserved
    } == {("1yr", "No Upfront", "standard")}


def test_it_is_down_and_in_trouble_like_any_call(file: File) -> None:
    file.world.faults.add(Fault("aws", OPERATION, FaultKind.HTTP_500))
    reply = file.face(Request("GET", PATH, (), {}, b""))
    assert (reply.status, reply.parts) == (500, None)
    file.world.faults.add(Fault("aws", "*", FaultKind.DOWN))
    with pytest.raises(DropConnection):
        file.face(Request("GET", PATH, (), {}, b""))
    assert file.rows()
