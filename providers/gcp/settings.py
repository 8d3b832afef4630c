"""Options of `[clouds.gcp]`."""

import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field

from providers.options import ExistingFile, Options, Outline, parse_options, refuse_half

COMPUTE = "https://compute.googleapis.com"
BILLING = "https://cloudbilling.googleapis.com"
KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"


# Of use for launches alone.
_LAUNCHES = (
    "disk_type",
    "network",
    "subnetworks",
    "external_ip",
    "network_tags",
    "service_account",
    "create_wait_s",
)


class GcpOptions(Options):
    """Everything of a project that prices need, and with an image what a launch needs.

    Without `credentials_file`, Application Default Credentials are used.
    """

    project: str = Field(min_length=1, description="project id")
    regions: tuple[str, ...] = Field(
        min_length=1, description='regions to price and rent in: ["us-central1"]'
    )
    machine_types: tuple[str, ...] = Field(
        default=("a2-*", "a3-*", "a4-*", "g2-*"), min_length=1, description="machine types, with *"
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        description="boot image: projects/P/global/images/NAME or .../images/family/NAME",
    )
    disk_type: str | None = Field(
        default=None,
        description="boot disk type; default hyperdisk-balanced where a type takes no other, else pd-balanced",
    )
    network: str = Field(default="global/networks/default", description="used where no subnetwork is given")
    subnetworks: Mapping[str, str] = Field(default_factory=dict, description="subnetwork by region")
    external_ip: bool = Field(default=True, description="false needs Cloud NAT, or nodes cannot dial out")
    network_tags: tuple[str, ...] = Field(default=(), description="for firewall rules")
    service_account: str | None = Field(default=None, description="e-mail of the nodes' own service account")
    credentials_file: ExistingFile | None = Field(
        default=None, description="service account key; default: ADC"
    )
    ca_file: ExistingFile | None = Field(default=None, description="CA bundle for the endpoints")
    endpoint_compute: str | None = Field(
        default=None, description="URL instead of the vendor's Compute Engine"
    )
    endpoint_billing: str | None = Field(
        default=None, description="URL instead of the vendor's Cloud Billing"
    )
    capacity_advice: bool = Field(
        default=True,
        description="whether the Capacity Advisor is asked for spot prices, preemption and obtainability",
    )
    timeout_s: float = Field(default=30.0, gt=0, le=300, description="of one call, real time")
    create_wait_s: float = Field(
        default=60.0, gt=0, le=600, description="for a create to be decided, real time"
    )
    disk_usd_gib_month: Decimal = Field(
        default=Decimal("0.10"), ge=0, description="boot disk, per GiB and month"
    )
    egress_internet_usd_gib: Decimal = Field(default=Decimal("0.12"), ge=0, description="to the internet")
    egress_region_usd_gib: Decimal = Field(
        default=Decimal("0.02"), ge=0, description="to another region of the continent"
    )
    egress_area_usd_gib: Decimal = Field(
        default=Decimal("0.08"), ge=0, description="to a region of another continent"
    )
    egress_zone_usd_gib: Decimal = Field(default=Decimal("0.01"), ge=0, description="between zones")


def parse(options: Mapping[str, Any]) -> GcpOptions:
    """Strictly.

    Raises:
        SettingsError: an option is wrong; the text names the key.
    """
    parsed = parse_options(GcpOptions, "gcp", options)
    refuse_half(parsed, "gcp", "image", _LAUNCHES)
    return parsed


def outline(options: Mapping[str, Any]) -> Outline:
    """Launches with an image. Credentials may come from the machine; a file that is named must be there."""
    parsed = parse(options)
    missing = missing_key_file() if parsed.credentials_file is None else None
    return Outline(parsed.image is not None, (missing,) if missing else ())


def missing_key_file() -> str | None:
    """What to say where the environment names a key file that is not there."""
    named = os.environ.get(KEY_FILE)
    if not named or Path(named).is_file():
        return None
    return f"{KEY_FILE} names {named}, and there is no such file"


def vendor_endpoints(options: Mapping[str, Any]) -> list[str]:
    """The endpoints that are Google's own: those not overridden, and overrides that point to Google."""
    parsed = parse(options)
    urls = [parsed.endpoint_compute or COMPUTE, parsed.endpoint_billing or BILLING]
    return [
        url for url in urls if (urlsplit(url).hostname or "").endswith((".googleapis.com", ".google.com"))
    ]
