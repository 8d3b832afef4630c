"""EC2: dollars an hour as published in 2026 (on-demand pages after the June 2025 P5 cut); spot of the size seen then."""

from collections.abc import Iterator

from lab.listing import InstanceType, Listing, Zone, micro_usd

TYPES = (
    InstanceType("aws", "p5.48xlarge", "H100-SXM5-80GB", "H100", 8, 81920, 192, 2048, "nvlink", "efa"),
    InstanceType("aws", "p5.4xlarge", "H100-SXM5-80GB", "H100", 1, 81920, 16, 256, "none", "efa"),
    InstanceType("aws", "p4d.24xlarge", "A100-SXM4-40GB", "A100", 8, 40960, 96, 1152, "nvlink", "efa"),
    InstanceType("aws", "g6.xlarge", "L4-24GB", "L4", 1, 22888, 4, 16, "none"),
    InstanceType("aws", "g6.2xlarge", "L4-24GB", "L4", 1, 22888, 8, 32, "none"),
    InstanceType("aws", "g6.4xlarge", "L4-24GB", "L4", 1, 22888, 16, 64, "none"),
    InstanceType("aws", "g5.xlarge", "A10G-24GB", "A10G", 1, 22888, 4, 16, "none"),
)

# Names are shuffled by account, as they really are.
ZONES = (
    Zone("aws", "us-east-1", "use1-az6", "us-east-1a"),
    Zone("aws", "us-east-1", "use1-az1", "us-east-1b"),
    Zone("aws", "us-east-1", "use1-az2", "us-east-1c"),
    Zone("aws", "us-west-2", "usw2-az2", "us-west-2a"),
    Zone("aws", "us-west-2", "usw2-az1", "us-west-2b"),
)

_ON_DEMAND = {
    "p5.48xlarge": "55.04",
    "p5.4xlarge": "6.88",
    "p4d.24xlarge": "21.957642",
    "g6.xlarge": "0.8048",
    "g6.2xlarge": "0.9776",
    "g6.4xlarge": "1.3232",
    "g5.xlarge": "1.006",
}

# Zone -> type -> dollars; a type that is missing is not sold in that zone.
_SPOT = {
    "use1-az6": {
        "p5.48xlarge": "27.4108",
        "p5.4xlarge": "3.1046",
        "p4d.24xlarge": "10.2137",
        "g6.xlarge": "0.3371",
        "g6.2xlarge": "0.4107",
        "g6.4xlarge": "0.5542",
        "g5.xlarge": "0.4523",
    },
    "use1-az1": {
        "p5.4xlarge": "3.4212",
        "p4d.24xlarge": "11.0469",
        "g6.xlarge": "0.3528",
        "g6.2xlarge": "0.4285",
        "g5.xlarge": "0.4711",
    },
    "use1-az2": {
        "p5.4xlarge": "3.2875",
        "p4d.24xlarge": "10.8854",
        "g6.xlarge": "0.3419",
        "g6.2xlarge": "0.4163",
        "g6.4xlarge": "0.5619",
        "g5.xlarge": "0.4602",
    },
    "usw2-az2": {
        "p5.48xlarge": "25.9033",
        "p5.4xlarge": "2.9814",
        "p4d.24xlarge": "9.8745",
        "g6.xlarge": "0.3115",
        "g5.xlarge": "0.4318",
    },
    "usw2-az1": {
        "p5.48xlarge": "26.7716",
        "p5.4xlarge": "3.0629",
        "g6.xlarge": "0.3240",
        "g5.xlarge": "0.4407",
    },
}

# An eighth of a GPU, in one region. Not a pool: nobody here rents it, and a broker that quoted it would be wrong.
FRACTION = InstanceType("aws", "g6f.xlarge", "L4-24GB", "L4", 0, 2861, 4, 16, "none")
_FRACTION_REGION, _FRACTION_USD = (
    "us-east-1",
    ("0.2414", "0.0982"),
)  # of the size of on demand and spot in 2026

_BY_NAME = {kind.name: kind for kind in TYPES}


def listings() -> Iterator[Listing]:
    """Every pool, in a fixed order."""
    for zone in ZONES:
        for name, spot in _SPOT[zone.id].items():
            yield Listing(zone, _BY_NAME[name], "spot", micro_usd(spot))
            yield Listing(zone, _BY_NAME[name], "on_demand", micro_usd(_ON_DEMAND[name]))


def beside() -> Iterator[Listing]:
    """What EC2 lists beside the pools."""
    on_demand, spot = _FRACTION_USD
    for zone in ZONES:
        if zone.region == _FRACTION_REGION:
            yield Listing(zone, FRACTION, "spot", micro_usd(spot))
            yield Listing(zone, FRACTION, "on_demand", micro_usd(on_demand))
