"""The price list of AmazonEC2 as one file for all regions, which anybody may read: the products of ``GetProducts`` as CSV.

Before the columns come five rows about the file. A field that is empty has no quotes, every other has; dates have no
time. The columns are those of the file of September 2025, which had several gigabytes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from lab.faces import Reply
from lab.faces.aws_pricing import Pricing

PATH = "/offers/v1.0/aws/AmazonEC2/current/index.csv"
OPERATION = "PriceListFile"  # its name among the faults; it is no call of an API

# Column -> the same among the attributes of a product; None where this lab has nothing to say.
_ATTRIBUTES: Mapping[str, str | None] = {
    "Location": "location",
    "Location Type": "locationType",
    "Instance Type": "instanceType",
    "Current Generation": "currentGeneration",
    "Instance Family": "instanceFamily",
    "vCPU": "vcpu",
    "Physical Processor": None,
    "Clock Speed": None,
    "Memory": "memory",
    "Storage": None,
    "Network Performance": None,
    "Processor Architecture": None,
    "Storage Media": None,
    "Volume Type": None,
    "Max Volume Size": None,
    "Max IOPS/volume": None,
    "Max IOPS Burst Performance": None,
    "Max throughput/volume": None,
    "Provisioned": None,
    "Tenancy": "tenancy",
    "EBS Optimized": None,
    "Operating System": "operatingSystem",
    "License Model": "licenseModel",
    "Group": None,
    "Group Description": None,
    "Transfer Type": None,
    "From Location": None,
    "From Location Type": None,
    "To Location": None,
    "To Location Type": None,
    "usageType": "usagetype",
    "operation": "operation",
    "AvailabilityZone": None,
    "CapacityStatus": "capacitystatus",
    "ClassicNetworkingSupport": None,
    "Dedicated EBS Throughput": None,
    "ECU": None,
    "Elastic Graphics Type": None,
    "Enhanced Networking Supported": None,
    "From Region Code": None,
    "GPU": "gpu",
    "GPU Memory": "gpuMemory",
    "Instance": None,
    **{
        f"Instance Capacity - {size}": None
        for size in (
            *("10xlarge", "12xlarge", "16xlarge", "18xlarge", "24xlarge", "2xlarge", "32xlarge"),
            *("4xlarge", "8xlarge", "9xlarge", "large", "medium", "metal", "xlarge"),
        )
    },
    "instanceSKU": None,
    "Intel AVX2 Available": None,
    "Intel AVX Available": None,
    "Intel Turbo Available": None,
    "MarketOption": "marketoption",
    "Normalization Size Factor": None,
    "Physical Cores": None,
    "Pre Installed S/W": "preInstalledSw",
    "Processor Features": None,
    "Product Type": None,
    "Region Code": "regionCode",
    "Resource Type": None,
    "serviceName": None,
    "SnapshotArchiveFeeType": None,
    "To Region Code": None,
    "Volume API Name": None,
    "VPCNetworkingSupport": None,
}
_TERM = (
    *("SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate", "StartingRange"),
    *(
        "EndingRange",
        "Unit",
        "PricePerUnit",
        "Currency",
        "RelatedTo",
        "LeaseContractLength",
        "PurchaseOption",
    ),
    *("OfferingClass", "Product Family", "serviceCode"),
)
_ABOUT = (
    ("FormatVersion", "v1.0"),
    ("Disclaimer", "Prices of a lab. Nobody is billed by them."),
    ("Publication Date", "2026-11-30T00:00:00Z"),
    ("Version", "20261130000000"),
    ("OfferCode", "AmazonEC2"),
)


def answer(pricing: Pricing) -> Reply:
    """The file, made while it is read."""
    headers = {"Content-Type": "text/csv"}
    return Reply(200, headers=headers, parts=(f"{line}\n".encode() for line in _lines(pricing)))


def _lines(pricing: Pricing) -> Iterator[str]:
    columns = (*_TERM, *_ATTRIBUTES)
    for about in (*_ABOUT, columns):
        yield _line(about)
    for product in pricing.products():
        attributes = product["product"]["attributes"]
        told = {column: attributes.get(name, "") for column, name in _ATTRIBUTES.items() if name}
        for term in _terms(product):
            yield _line(tuple({**told, **term}.get(column, "") for column in columns))


def _terms(product: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """A row for each price of each term."""
    for kind, terms in product["terms"].items():
        for term in terms.values():
            for dimension in term["priceDimensions"].values():
                for currency, price in dimension["pricePerUnit"].items():
                    yield {
                        "SKU": term["sku"],
                        "OfferTermCode": term["offerTermCode"],
                        "RateCode": dimension["rateCode"],
                        "TermType": kind,
                        "PriceDescription": dimension["description"],
                        "EffectiveDate": term["effectiveDate"][:10],
                        "StartingRange": dimension["beginRange"],
                        "EndingRange": dimension["endRange"],
                        "Unit": dimension["unit"],
                        "PricePerUnit": price,
                        "Currency": currency,
                        "Product Family": product["product"]["productFamily"],
                        "serviceCode": product["serviceCode"],
                        **term["termAttributes"],
                    }


def _line(fields: tuple[str, ...]) -> str:
    return ",".join('"' + field.replace('"', '""') + '"' if field else "" for field in fields)
