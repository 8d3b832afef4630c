"""Clients of a subscription (the SDKs, imported at first use), and whom the price list's reader trusts.

None retries, and every call has time-outs: a poll that failed is asked again by the poller.
"""

import os
import ssl
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from broker.core.errors import Denied, Invalid
from providers.azure.errors import translated
from providers.azure.settings import LOGIN, AzureOptions

# The audience is the vendor's also where the resource manager is reached under another address.
SCOPE = "https://management.azure.com/.default"


class Clients:
    """Clients by name, made at first use."""

    def __init__(self, options: AzureOptions) -> None:
        self._options = options
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}

    @property
    def trusted(self) -> ssl.SSLContext:
        """Whom the price list must be, for its reader."""
        context: ssl.SSLContext = self._client("trusted", self._make_trusted)
        return context

    @property
    def compute(self) -> Any:
        """``Microsoft.Compute``: sizes and quotas."""
        return self._client("compute", self._make_compute)

    @property
    def graph(self) -> Any:
        """``Microsoft.ResourceGraph``."""
        return self._client("graph", self._make_graph)

    @property
    def recommender(self) -> Any:
        """Spot placement scores."""
        return self._client("recommender", self._make_recommender)

    @property
    def arm_host(self) -> str:
        """Who is asked about the subscription."""
        return urlsplit(self._options.endpoint_arm).netloc

    @property
    def retail_host(self) -> str:
        """Who is asked about prices."""
        return urlsplit(self._options.endpoint_retail).netloc

    def token(self) -> str:
        """Fetch an access token, or find one that is still good; returns whose credentials these are."""
        with translated("fetching an access token", urlsplit(self._options.endpoint_login).netloc):
            self._credential().get_token(SCOPE)
        options = self._options
        return f"application {options.client_id}" if options.client_id else "azure-identity's own chain"

    def _client(self, name: str, make: Callable[[], Any]) -> Any:
        with self._lock:
            if name not in self._made:
                self._made[name] = make()
            return self._made[name]

    def _make_trusted(self) -> ssl.SSLContext:
        ca_file = self._options.ca_file
        try:
            return ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
        except ssl.SSLError as error:
            raise Invalid(f"azure: ca_file holds no usable certificate: {error}") from error

    def _make_compute(self) -> Any:
        from azure.mgmt.compute import ComputeManagementClient

        return ComputeManagementClient(
            self._credential(),
            self._options.subscription_id,
            base_url=self._options.endpoint_arm,
            **self._usual(),
        )

    def _make_graph(self) -> Any:
        from azure.mgmt.resourcegraph import ResourceGraphClient

        return ResourceGraphClient(self._credential(), base_url=self._options.endpoint_arm, **self._usual())

    def _make_recommender(self) -> Any:
        from azure.mgmt.computerecommender import RecommenderMgmtClient

        return RecommenderMgmtClient(
            self._credential(),
            self._options.subscription_id,
            base_url=self._options.endpoint_arm,
            **self._usual(),
        )

    def _credential(self) -> Any:
        return self._client("credential", self._make_credential)

    def _make_credential(self) -> Any:
        from azure import identity

        options = self._options
        usual = self._transport()
        # Instance discovery asks the vendor about the authority, whatever address that has.
        elsewhere = options.endpoint_login != LOGIN
        if options.client_id is None:
            return identity.DefaultAzureCredential(
                authority=urlsplit(options.endpoint_login).netloc,
                disable_instance_discovery=elsewhere,
                exclude_interactive_browser_credential=True,
                **usual,
            )
        secret = os.environ.get(options.client_secret_env)
        if not secret:
            raise Denied(
                f"azure: {options.client_secret_env} is not set; it must hold the secret of the application"
            )
        return identity.ClientSecretCredential(
            options.tenant_id,
            options.client_id,
            secret,
            authority=options.endpoint_login,
            disable_instance_discovery=elsewhere,
            **usual,
        )

    def _usual(self) -> dict[str, Any]:
        return {"credential_scopes": [SCOPE], **self._transport()}

    def _transport(self) -> dict[str, Any]:
        options = self._options
        return {
            "retry_total": 0,
            "connection_timeout": options.connect_timeout_s,
            "read_timeout": options.read_timeout_s,
            "connection_verify": str(options.ca_file) if options.ca_file else True,
        }
