"""Which clouds there are, and how to open one. A vendor's SDK is imported when its cloud is opened, not before."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeGuard

from broker.core.errors import SettingsError
from broker.core.ports import Clock, PriceSource, Provider
from providers.options import Outline


@dataclass(frozen=True)
class Cloud:
    """Where a cloud's code is.

    Attributes:
        provider: Module with ``open_provider(options, clock, installation_id)``.
        settings: Module with ``vendor_endpoints(options)`` and ``outline(options)``; imports no SDK.
    """

    provider: str
    settings: str


CLOUDS: Mapping[str, Cloud] = {
    "aws": Cloud("providers.aws.provider", "providers.aws.settings"),
    "azure": Cloud("providers.azure.source", "providers.azure.settings"),
    "gcp": Cloud("providers.gcp.provider", "providers.gcp.settings"),
    "coreweave": Cloud("providers.coreweave.source", "providers.coreweave.settings"),
    "lambda": Cloud("providers.lambda_cloud.source", "providers.lambda_cloud.settings"),
    "local": Cloud("providers.local.provider", "providers.local.settings"),
}


def open_source(cloud: str, options: Mapping[str, Any], clock: Clock, installation_id: str) -> PriceSource:
    """The prices of `cloud`. Nothing is called yet: bad credentials show at the first call, or in `check`.

    Raises:
        SettingsError: no such cloud, or an option is wrong; the text names the key.
    """
    module = import_module(_cloud(cloud).provider)
    opened: Callable[[Mapping[str, Any], Clock, str], PriceSource] = module.open_provider
    return opened(options, clock, installation_id)


def open_provider(cloud: str, options: Mapping[str, Any], clock: Clock, installation_id: str) -> Provider:
    """The same for a cloud that we can rent from.

    Raises:
        SettingsError: see `open_source`; or only the prices of this cloud are read.
    """
    source = open_source(cloud, options, clock, installation_id)
    if not rents(source):
        raise SettingsError(f"clouds.{cloud}: only the prices of this cloud are read")
    return source


def rents(source: PriceSource) -> TypeGuard[Provider]:
    """Whether nodes can be rented there: of some clouds, and of those with no settings for launches, only prices are read."""
    return isinstance(source, Provider)


def vendor_endpoints(cloud: str, options: Mapping[str, Any]) -> list[str]:
    """The endpoints in use that are the vendor's own. While there is one, our clock must be the world's.

    Raises:
        SettingsError: no such cloud, or an option is wrong.
    """
    module = import_module(_cloud(cloud).settings)
    found: Callable[[Mapping[str, Any]], list[str]] = module.vendor_endpoints
    return found(options)


def outline(cloud: str, options: Mapping[str, Any]) -> Outline:
    """What is known of a cloud before anybody is called.

    Raises:
        SettingsError: no such cloud, or an option is wrong.
    """
    module = import_module(_cloud(cloud).settings)
    found: Callable[[Mapping[str, Any]], Outline] = module.outline
    return found(options)


def _cloud(name: str) -> Cloud:
    if name not in CLOUDS:
        raise SettingsError(
            f"clouds.{name}: no provider for this cloud", hint=f"there are {', '.join(CLOUDS)}"
        )
    return CLOUDS[name]
