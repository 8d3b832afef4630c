"""Clients of Compute Engine and Cloud Billing, over REST. None retries; every call takes its time-out.

The long-running-operation objects of the library are not used: they poll at the vendor's own address whatever
`api_endpoint` says, and they do not survive a restart of the daemon. We poll by the operation's name instead.
"""

import threading
from collections.abc import Callable
from typing import Any

import google.auth
from google.cloud import billing_v1, compute_v1
from google.oauth2 import service_account
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from broker.core.errors import Denied
from providers.gcp.errors import translated
from providers.gcp.settings import GcpOptions

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


class _Trusting(HTTPAdapter):
    """Trusts one CA file. `Session.verify` would not do: requests lets ``REQUESTS_CA_BUNDLE`` override it."""

    def __init__(self, ca_file: str) -> None:
        super().__init__()
        self._ca_file = ca_file

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        """As the base class, with our CA."""
        return super().send(request, *args, **{**kwargs, "verify": self._ca_file})


class Clients:
    """Clients by name, made at first use."""

    def __init__(self, options: GcpOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._made: dict[str, Any] = {}
        self._credentials: Any = None

    @property
    def instances(self) -> Any:
        """``instances`` of compute v1."""
        return self._compute("instances", compute_v1.InstancesClient)

    @property
    def zone_operations(self) -> Any:
        """``zoneOperations``."""
        return self._compute("zone_operations", compute_v1.ZoneOperationsClient)

    @property
    def machine_types(self) -> Any:
        """``machineTypes``."""
        return self._compute("machine_types", compute_v1.MachineTypesClient)

    @property
    def regions(self) -> Any:
        """``regions``."""
        return self._compute("regions", compute_v1.RegionsClient)

    @property
    def advice(self) -> Any:
        """``advice``: the Capacity Advisor."""
        return self._compute("advice", compute_v1.AdviceClient)

    @property
    def catalogue(self) -> Any:
        """``services.skus`` of Cloud Billing."""

        def make(**arguments: Any) -> Any:
            return billing_v1.CloudCatalogClient(transport="rest", **arguments)

        return self._client("catalogue", make, self._options.endpoint_billing)

    @property
    def call(self) -> dict[str, Any]:
        """Keyword arguments of every call: our time-out, and no retry behind our back."""
        return {"retry": None, "timeout": self._options.timeout_s}

    def account(self) -> str:
        """Whose credentials these are, as far as they say."""
        with self._lock, translated("loading credentials"):
            found = self._load()
        return str(getattr(found, "service_account_email", None) or type(found).__name__)

    def _compute(self, name: str, kind: Callable[..., Any]) -> Any:
        return self._client(name, kind, self._options.endpoint_compute)

    def _client(self, name: str, make: Callable[..., Any], endpoint: str | None) -> Any:
        with self._lock, translated(f"opening {name}"):
            if name not in self._made:
                options = {"api_endpoint": endpoint} if endpoint else None
                client = make(credentials=self._load(), client_options=options)
                if self._options.ca_file:
                    # The generated transports take no CA; the requests session that they make is the only door.
                    client.transport._session.mount("https://", _Trusting(str(self._options.ca_file)))
                self._made[name] = client
            return self._made[name]

    def _load(self) -> Any:
        if self._credentials is None:
            if self._options.credentials_file:
                path = str(self._options.credentials_file)
                try:
                    self._credentials = service_account.Credentials.from_service_account_file(
                        path, scopes=_SCOPES
                    )
                except (OSError, ValueError) as error:
                    raise Denied(f"gcp: {path} is no service account key: {error}") from error
            else:
                self._credentials, _ = google.auth.default(scopes=_SCOPES)
        return self._credentials
