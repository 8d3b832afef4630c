"""Options of `[clouds.coreweave]`."""

import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from broker.core.time import parse_duration
from providers.coreweave.price_list import read_list
from providers.options import ExistingFile, Options, Outline, SecretUrl, parse_options, unset

ZONE = r"^[A-Z0-9][A-Z0-9-]*$"

# https://ORG-HASH.k8s.ZONE.coreweave.com, docs.coreweave.com, managed auth
_MANAGED = re.compile(r"\.k8s\.([a-z0-9-]+)\.coreweave\.com")

Zone = Annotated[str, Field(pattern=ZONE)]


def _seconds(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError("expected a duration such as 90d")
    return parse_duration(value)


class CoreWeaveOptions(Options):
    """Where prices come from, and the cluster that is asked about capacity. No token is written here.

    Attributes:
        max_list_age: In seconds, once read.
    """

    zones: tuple[Zone, ...] | None = Field(
        default=None, min_length=1, description='zones to price: ["US-EAST-04A"]; default: all of the list'
    )
    price_file: ExistingFile | None = Field(
        default=None, description="a price list of your own instead of the one that comes with the broker"
    )
    max_list_age: Annotated[int, BeforeValidator(_seconds)] = Field(
        default=90 * 86_400, gt=0, description='an older list is not believed any more: "90d"'
    )
    kubeconfig: ExistingFile | None = Field(
        default=None, description="kubeconfig of a CKS cluster, to ask about capacity"
    )
    context: str | None = Field(default=None, min_length=1, description="of the kubeconfig; default: its own")
    api_server: SecretUrl | None = Field(
        default=None, description="URL of a CKS cluster's API, instead of a kubeconfig"
    )
    token_env: str = Field(
        default="COREWEAVE_API_TOKEN",
        min_length=1,
        description="environment variable with the token for api_server",
    )
    ca_file: ExistingFile | None = Field(default=None, description="CA bundle for api_server")
    cluster_zone: Zone | None = Field(
        default=None, description="zone of the cluster, where its address does not tell it"
    )
    timeout_s: float = Field(default=15.0, gt=0, le=300, description="of one call to the cluster, real time")

    @field_validator("context", "api_server", "ca_file")
    @classmethod
    def _one_way_in(cls, value: object, info: ValidationInfo) -> object:
        if value is None:
            return value
        kubeconfig, api_server = info.data.get("kubeconfig"), info.data.get("api_server")
        if info.field_name == "context" and kubeconfig is None:
            raise ValueError("names one of a kubeconfig; set kubeconfig")
        if info.field_name == "api_server" and kubeconfig is not None:
            raise ValueError("kubeconfig is another way to the same; leave one of them out")
        if info.field_name == "ca_file" and api_server is None:
            raise ValueError("is for api_server; a kubeconfig has its own")
        return value

    @property
    def has_cluster(self) -> bool:
        """Whether there is one to ask."""
        return bool(self.kubeconfig or self.api_server)


def parse(options: Mapping[str, Any]) -> CoreWeaveOptions:
    """Strictly, with the price list that they name.

    Raises:
        SettingsError: an option is wrong, and the text names the key; or the list is, with its place.
    """
    parsed = parse_options(CoreWeaveOptions, "coreweave", options)
    if parsed.price_file is not None:
        read_list(parsed.price_file)
    return parsed


def outline(options: Mapping[str, Any]) -> Outline:
    """Prices only; a cluster that is asked without a kubeconfig needs a token."""
    parsed = parse(options)
    return Outline(launches=False, missing=unset(parsed.token_env) if parsed.api_server else ())


def vendor_endpoints(options: Mapping[str, Any]) -> list[str]:
    """The cluster's address, when it is one of CoreWeave's. A kubeconfig counts as one: it is not opened here."""
    parsed = parse(options)
    if parsed.kubeconfig:
        return [f"kubeconfig {parsed.kubeconfig}"]
    host = urlsplit(parsed.api_server or "").hostname or ""
    return [parsed.api_server] if parsed.api_server and f".{host}".endswith(".coreweave.com") else []


def zone_of(api_server: str) -> str | None:
    """The zone that a managed cluster's address tells, or None."""
    found = _MANAGED.search(urlsplit(api_server).hostname or "")
    return found[1].upper() if found else None
