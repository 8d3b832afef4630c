"""Options of `[clouds.aws]`."""

import os
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from providers.options import ExistingFile, Options, Outline, parse_options, refuse_half, unset

# Families with whole NVIDIA GPUs; fractional ones among them are dropped by their GPU count.
DEFAULT_TYPES = ("p3*", "p4*", "p5*", "p6*", "g4dn*", "g5.*", "g6.*", "g6e.*")


# Of use for launches alone.
_LAUNCHES = ("subnet_ids", "security_group_ids", "root_device", "iam_instance_profile", "key_name")

ImageMap = Annotated[Mapping[str, str], Field(min_length=1)]


class AwsOptions(Options):
    """Everything of an account that prices need, and with an image what a launch needs.

    Credentials come from boto3's own chain (environment, profile, instance role); none are written here.
    """

    regions: tuple[str, ...] = Field(min_length=1, description='regions to price and rent in: ["us-east-1"]')
    instance_types: tuple[str, ...] = Field(
        default=DEFAULT_TYPES, min_length=1, description='instance types, with *: ["p5*", "g6.xlarge"]'
    )
    image_id: ImageMap | str | None = Field(
        default=None,
        description='AMI by region, {us-east-1 = "ami-..."}; also "resolve:ssm:/path/of/parameter", good for all',
    )
    subnet_ids: Mapping[str, str] = Field(
        default_factory=dict, description='subnet by zone id: {use1-az6 = "subnet-..."}'
    )
    security_group_ids: Mapping[str, tuple[str, ...]] = Field(
        default_factory=dict, description='security groups by region: {us-east-1 = ["sg-..."]}'
    )
    root_device: str = Field(
        default="/dev/sda1", description="the image's root device; Amazon Linux: /dev/xvda"
    )
    iam_instance_profile: str | None = Field(default=None, description="name of an instance profile")
    key_name: str | None = Field(default=None, description="key pair, for debugging")
    profile: str | None = Field(default=None, description="profile of the AWS configuration files")
    ca_file: ExistingFile | None = Field(default=None, description="CA bundle for the endpoints")
    endpoint_ec2: str | None = Field(default=None, description="URL instead of the vendor's EC2")
    endpoint_pricing: str | None = Field(default=None, description="URL instead of the vendor's price list")
    endpoint_sts: str | None = Field(default=None, description="URL instead of the vendor's STS")
    endpoint_service_quotas: str | None = Field(
        default=None, description="URL instead of the vendor's Service Quotas"
    )
    connect_timeout_s: float = Field(default=5.0, gt=0, le=60)
    read_timeout_s: float = Field(default=30.0, gt=0, le=300)
    placement_scores: bool = Field(
        default=True, description="whether EC2 is asked how likely spot requests are to succeed"
    )
    disk_usd_gib_month: Decimal = Field(
        default=Decimal("0.08"), ge=0, description="boot disk, per GiB and month"
    )
    egress_internet_usd_gib: Decimal = Field(default=Decimal("0.09"), ge=0, description="to the internet")
    egress_region_usd_gib: Decimal = Field(
        default=Decimal("0.02"), ge=0, description="to another region of the continent"
    )
    egress_area_usd_gib: Decimal = Field(
        default=Decimal("0.02"), ge=0, description="to a region of another continent"
    )
    egress_zone_usd_gib: Decimal = Field(
        default=Decimal("0.02"), ge=0, description="between zones, both ways"
    )

    def image_in(self, region: str) -> str | None:
        """The image for a region, None when there is none for it."""
        if self.image_id is None or isinstance(self.image_id, str):
            return self.image_id
        return self.image_id.get(region)


def parse(options: Mapping[str, Any]) -> AwsOptions:
    """Strictly.

    Raises:
        SettingsError: an option is wrong; the text names the key.
    """
    parsed = parse_options(AwsOptions, "aws", options)
    refuse_half(parsed, "aws", "image_id", _LAUNCHES)
    return parsed


def outline(options: Mapping[str, Any]) -> Outline:
    """Launches with an image. Where boto3 finds credentials only a call tells; half a pair finds none."""
    pair = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    half = any(map(os.environ.get, pair)) and not parse(options).profile
    return Outline(parse(options).image_id is not None, unset(*pair) if half else ())


def vendor_endpoints(options: Mapping[str, Any]) -> list[str]:
    """The endpoints that are Amazon's own: those not overridden, and overrides that point to Amazon."""
    parsed = parse(options)
    pricing = pricing_region(parsed.regions[0])
    urls = (
        [parsed.endpoint_ec2]
        if parsed.endpoint_ec2
        else [f"https://ec2.{r}.amazonaws.com" for r in parsed.regions]
    )
    urls.append(parsed.endpoint_pricing or f"https://api.pricing.{pricing}.amazonaws.com")
    urls.append(parsed.endpoint_sts or f"https://sts.{parsed.regions[0]}.amazonaws.com")
    # A lab without quotas is not asked for them, nor is anybody of whom only prices are read.
    if parsed.image_id is not None and (parsed.endpoint_service_quotas or not parsed.endpoint_ec2):
        quotas = [f"https://servicequotas.{region}.amazonaws.com" for region in parsed.regions]
        urls += [parsed.endpoint_service_quotas] if parsed.endpoint_service_quotas else quotas
    return [url for url in urls if _is_amazon(url)]


def pricing_region(region: str) -> str:
    """The price list answers in three regions only; one near `region`."""
    near = {"eu": "eu-central-1", "ap": "ap-south-1"}
    return near.get(region.split("-")[0], "us-east-1")


def _is_amazon(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".aws", ".api.aws"))
