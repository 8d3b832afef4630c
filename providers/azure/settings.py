"""Options of `[clouds.azure]`."""

import re
from collections.abc import Mapping
from decimal import Decimal
from importlib.util import find_spec
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from broker.core.errors import SettingsError
from providers.options import ExistingFile, Options, Outline, SecretUrl, parse_options, unset

RETAIL = "https://prices.azure.com"
ARM = "https://management.azure.com"
LOGIN = "https://login.microsoftonline.com"

# Of the extra `azure`: what only an account needs.
_ACCOUNT_PACKAGES = {
    "azure.identity": "azure-identity",
    "azure.mgmt.resourcegraph": "azure-mgmt-resourcegraph",
    "azure.mgmt.computerecommender": "azure-mgmt-computerecommender",
}


def _endpoint(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{url} is no address; write https://host or https://host:port")
    return url.rstrip("/")


Endpoint = Annotated[str, AfterValidator(_endpoint)]


def _region(name: str) -> str:
    # As armRegionName has it: the list compares with case, and what it does not know has no rows.
    if not _REGION.fullmatch(name):
        meant = re.sub(r"[^a-z0-9]", "", name.lower())
        meant = meant if _REGION.fullmatch(meant) else "eastus"
        raise ValueError(f"{name[:60]!r} is no region of Azure; lower case, no dashes: {meant}")
    return name


_REGION = re.compile(r"[a-z][a-z0-9]{2,40}")
Region = Annotated[str, AfterValidator(_region)]


class AzureOptions(Options):
    """Prices need the regions alone. With a subscription there are eviction rates, past spot prices and quotas, too.

    Without `client_id`, credentials come from azure-identity's own chain (environment, managed identity, `az login`).
    """

    regions: tuple[Region, ...] = Field(min_length=1, description='regions to price: ["eastus", "westus3"]')
    subscription_id: str | None = Field(
        default=None, pattern=r"^[0-9a-fA-F-]{36}$", description="subscription with the Reader role on it"
    )
    tenant_id: str | None = Field(
        default=None, min_length=1, description="Entra tenant of the app registration"
    )
    client_id: str | None = Field(
        default=None, min_length=1, description="application id of the app registration"
    )
    client_secret_env: str = Field(
        default="AZURE_CLIENT_SECRET", min_length=1, description="variable that holds the client secret"
    )
    placement_scores: bool = Field(
        default=False, description="ask for spot placement scores; needs the Compute Recommendations Role"
    )
    billing_minimum: Literal[60, 300] = Field(
        default=300, description="shortest billed run in seconds; the sources disagree"
    )
    endpoint_retail: Endpoint = Field(default=RETAIL, description="URL instead of the vendor's price list")
    endpoint_arm: SecretUrl = Field(default=ARM, description="URL instead of the vendor's resource manager")
    endpoint_login: SecretUrl = Field(default=LOGIN, description="URL instead of the vendor's Entra ID")
    ca_file: ExistingFile | None = Field(default=None, description="CA bundle for the endpoints")
    connect_timeout_s: float = Field(default=5.0, gt=0, le=60, description="of one call, real time")
    read_timeout_s: float = Field(default=30.0, gt=0, le=300, description="of one call, real time")
    disk_usd_gib_month: Decimal = Field(
        default=Decimal("0.075"), ge=0, description="Standard SSD, per GiB and month (E10, 2026)"
    )
    egress_internet_usd_gib: Decimal = Field(default=Decimal("0.087"), ge=0, description="to the internet")
    egress_region_usd_gib: Decimal = Field(
        default=Decimal("0.02"), ge=0, description="to another region of North America, or of Europe"
    )
    egress_area_usd_gib: Decimal = Field(default=Decimal("0.05"), ge=0, description="to another continent")


def parse(options: Mapping[str, Any]) -> AzureOptions:
    """Strictly.

    Raises:
        SettingsError: an option is wrong, the text names the key; or a package that an account needs is missing.
    """
    parsed = parse_options(AzureOptions, "azure", options)
    if (parsed.client_id is None) != (parsed.tenant_id is None):
        given = "client_id" if parsed.client_id else "tenant_id"
        raise SettingsError(
            f"clouds.azure.{given}: tenant_id and client_id belong together", hint="give both or neither"
        )
    if parsed.subscription_id is None and (parsed.client_id or parsed.placement_scores):
        given = "client_id" if parsed.client_id else "placement_scores"
        raise SettingsError(f"clouds.azure.{given}: of no use without a subscription_id")
    wanted = _ACCOUNT_PACKAGES if parsed.subscription_id else {}
    missing = [package for module, package in wanted.items() if not _is_installed(module)]
    if missing:
        raise SettingsError(
            f"clouds.azure.subscription_id: an account needs {', '.join(missing)}",
            hint="install the extra `azure`: pip install --constraint requirements.lock '.[azure]'",
        )
    return parsed


def outline(options: Mapping[str, Any]) -> Outline:
    """Prices only; an application needs its secret."""
    parsed = parse(options)
    return Outline(launches=False, missing=unset(parsed.client_secret_env) if parsed.client_id else ())


def vendor_endpoints(options: Mapping[str, Any]) -> list[str]:
    """The endpoints in use that are Microsoft's own: those not overridden, and overrides that point to Microsoft."""
    parsed = parse(options)
    urls = [parsed.endpoint_retail]
    if parsed.subscription_id:
        urls += [parsed.endpoint_arm, parsed.endpoint_login]
    return [url for url in urls if _is_microsoft(url)]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent package
        return False


def _is_microsoft(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host.endswith(
        (".azure.com", ".microsoftonline.com", ".azure.us", ".azure.cn", ".microsoftonline.us")
    )
