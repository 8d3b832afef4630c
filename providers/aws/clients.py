"""boto3 clients, made once each. Every one has time-outs; none retries."""

import threading
from typing import Any, cast

import boto3
from botocore.config import Config

from providers.aws.errors import translated
from providers.aws.settings import AwsOptions, pricing_region


class Clients:
    """Clients by service and region. Making one is not thread-safe in boto3, so a lock guards that; using one is.

    No client retries: the capacity error is an HTTP 500, which botocore would repeat as if it were an outage, and a
    poll that failed is asked again by the poller.
    """

    def __init__(self, options: AwsOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._made: dict[tuple[str, str], Any] = {}
        self._session: boto3.Session | None = None
        self._config = Config(
            connect_timeout=options.connect_timeout_s,
            read_timeout=options.read_timeout_s,
            retries={"total_max_attempts": 1},
            max_pool_connections=16,
        )

    def ec2(self, region: str) -> Any:
        """EC2 of one region."""
        return self._client("ec2", region, self._options.endpoint_ec2)

    def pricing(self) -> Any:
        """The price list; it answers for every region."""
        return self._client(
            "pricing", pricing_region(self._options.regions[0]), self._options.endpoint_pricing
        )

    def service_quotas(self, region: str) -> Any:
        """The account's quotas in one region."""
        return self._client("service-quotas", region, self._options.endpoint_service_quotas)

    def sts(self) -> Any:
        """Who we are."""
        return self._client("sts", self._options.regions[0], self._options.endpoint_sts)

    def _client(self, service: str, region: str, endpoint: str | None) -> Any:
        with self._lock, translated(f"opening {service} in {region}"):
            if self._session is None:
                self._session = boto3.Session(profile_name=self._options.profile)
            if (service, region) not in self._made:
                make = cast(Any, self._session.client)
                self._made[service, region] = make(
                    service,
                    region_name=region,
                    endpoint_url=endpoint,
                    verify=str(self._options.ca_file) if self._options.ca_file else None,
                    config=self._config,
                )
            return self._made[service, region]
