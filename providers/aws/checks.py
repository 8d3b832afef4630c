"""`broker doctor` for EC2: each right on a line of its own, then what each region lets us launch.

EC2 answers a dry run with `DryRunOperation` where the call would have been let through and with `UnauthorizedOperation`
where not, and does nothing; so rights are asked for that way wherever there is one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from broker.core.errors import Denied, Invalid, OutOfCapacity, OutOfQuota, ProviderError
from broker.core.offer import Market
from broker.core.ports import Check, LaunchRequest
from providers.aws.catalogue import Catalogue, Catalogues
from providers.aws.clients import Clients
from providers.aws.errors import translated
from providers.aws.nodes import launch_parameters
from providers.aws.settings import AwsOptions
from providers.parallel import in_parallel

_AT_ONCE = 16

# EC2's reading calls, as boto3 names them, with what a dry run needs beside.
_READS: dict[str, dict[str, Any]] = {
    "describe_instance_types": {},
    "describe_instance_type_offerings": {},
    "describe_availability_zones": {},
    "describe_spot_price_history": {},
}
_OF_NODES: dict[str, dict[str, Any]] = {"describe_instances": {}, "describe_spot_instance_requests": {}}
_SCORES = {"get_spot_placement_scores": {"InstanceTypes": ["p5.48xlarge"], "TargetCapacity": 1}}

# Quotas of running vCPUs by the letter that types begin with. The codes are background knowledge, seen in public code
# and never confirmed with an account; the name of a quota comes from the service, and is shown. P5 had one of its own.
QUOTAS: dict[str, tuple[str, ...]] = {
    "p": ("L-417A185B", "L-7212CCBC", "L-C4BD4855"),
    "g": ("L-DB2E81BA", "L-3819A6DF"),
}


class Checks:
    """Asks for one account. Nothing that it calls changes anything."""

    def __init__(
        self, options: AwsOptions, clients: Clients, catalogues: Catalogues, installation_id: str
    ) -> None:
        self._options = options
        self._clients = clients
        self._catalogues = catalogues
        self._installation_id = installation_id

    def all(self) -> list[Check]:
        """Who we are, rights, and where something is launched, for each region image, launch and quotas. Never raises."""
        renting = self._options.image_id is not None
        reads = _READS | (_OF_NODES if renting else {}) | (_SCORES if self._options.placement_scores else {})
        asked: list[Callable[[], list[Check]]] = [
            partial(_one, "aws: credentials", self._identity),
            partial(_one, "aws: pricing:GetProducts", self._price_list),
            *(
                partial(_one, _right(call), partial(self._may, call, needed))
                for call, needed in reads.items()
            ),
            *(partial(self._region, region) for region in self._options.regions if renting),
        ]
        found = [check for checks in in_parallel(asked, _AT_ONCE) for check in checks]
        return found if renting else [*found, Check("aws: launches", None, "prices only: no image_id is set")]

    def _identity(self) -> str:
        with translated("asking who we are"):
            return str(self._clients.sts().get_caller_identity()["Arn"])

    def _price_list(self) -> str:
        with translated("reading the price list"):
            self._clients.pricing().get_products(ServiceCode="AmazonEC2", MaxResults=1)
        return "allowed"

    def _may(self, call: str, needed: dict[str, Any]) -> str:
        """In every region, until one refuses."""
        for region in self._options.regions:
            with translated(f"a dry run in {region}"):
                _dry_run(getattr(self._clients.ec2(region), call), needed)
        return f"allowed in {', '.join(self._options.regions)}"

    def _region(self, region: str) -> list[Check]:
        try:
            return self._lines_of(region)
        except Exception as error:  # noqa: BLE001 - a check never raises
            return [Check(f"aws: {region}", False, f"could not be checked: {error!r}")]

    def _lines_of(self, region: str) -> list[Check]:
        image = self._options.image_in(region)
        detail = f"{image}, not looked up" if image else f"none; add {region} to clouds.aws.image_id"
        lines = [Check(f"aws: {region}: image", None if image else False, detail)]
        name = f"aws: {region}: ec2:RunInstances"
        try:
            catalogue = self._catalogues.of(region)
        except ProviderError as error:
            return [*lines, Check(name, False, str(error))]
        if image:
            lines += _one(name, partial(self._launch, catalogue))
        return lines + self._quotas(catalogue)

    def _launch(self, catalogue: Catalogue) -> str:
        """A dry run of the smallest launch."""
        sold = sorted(
            (kind.vcpus, name) for name, kind in catalogue.types.items() if catalogue.zones.get(name)
        )
        if not sold:
            raise Invalid("aws: nothing of clouds.aws.instance_types is sold here")
        name = sold[0][1]
        offer = catalogue.offer(name, catalogue.zones[name][0], Market.ON_DEMAND)
        request = LaunchRequest("bk-check", offer, "#!/bin/sh\n", self._installation_id, event_seq=0)
        parameters = launch_parameters(request, self._options)
        try:
            with translated(f"trying to rent {name} in {offer.zone}"):
                _dry_run(self._clients.ec2(catalogue.region).run_instances, parameters)
        except (OutOfCapacity, OutOfQuota) as error:
            return f"allowed, though not now: {error}"
        return f"allowed: a dry run of {name} in {offer.zone}"

    def _quotas(self, catalogue: Catalogue) -> list[Check]:
        """One line for each letter that is configured; it fails where no letter has any quota."""
        letters = sorted({name[0] for name in catalogue.types} & QUOTAS.keys())
        if not letters:
            return []
        if self._options.endpoint_ec2 and not self._options.endpoint_service_quotas:
            detail = "not asked: clouds.aws.endpoint_service_quotas is not set, and endpoint_ec2 is"
            return [Check(f"aws: {catalogue.region}: quotas", None, detail)]
        unread: list[str] = []
        found = {letter: self._quota(catalogue, letter, unread) for letter in letters}
        # Without any quota nothing can be rented here; without one of several, some of what is configured.
        none = False if all(limit == 0 for limit, _ in found.values()) else None
        lines = [
            Check(f"aws: {catalogue.region}: quota of {letter} types", True if limit else none, detail)
            for letter, (limit, detail) in found.items()
        ]
        if unread:
            lines.append(
                Check(f"aws: {catalogue.region}: quotas that were not read", None, "; ".join(unread))
            )
        return lines

    def _quota(self, catalogue: Catalogue, letter: str, unread: list[str]) -> tuple[float | None, str]:
        """The largest of a letter's quotas in vCPUs, None when none could be read; and the text.

        Codes that could not be read go to `unread`.
        """
        told: list[str] = []
        limits: list[float] = []
        for code in QUOTAS[letter]:
            try:
                with translated(f"reading quota {code} in {catalogue.region}"):
                    client = self._clients.service_quotas(catalogue.region)
                    quota = client.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
            except Denied:
                return None, "not allowed to look: servicequotas:GetServiceQuota"
            except Invalid:
                unread.append(
                    f"{code} of {letter} types: no such quota code known to the account: unconfirmed"
                )
            except ProviderError as error:
                unread.append(f"{code} of {letter} types: {error}")
            else:
                limits.append(quota["Value"])
                told.append(f"{quota['QuotaName']}: {quota['Value']:g}")
        text = f"{'; '.join(told) or 'none found'} (vCPUs; quota codes unconfirmed)"
        if limits and not any(limits):
            text += "; ask for more in Service Quotas, or leave these types out of clouds.aws.instance_types"
        return (max(limits) if limits else None), text


def _dry_run(call: Callable[..., Any], parameters: dict[str, Any]) -> None:
    try:
        call(**parameters, DryRun=True)
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") != "DryRunOperation":
            raise


def _right(call: str) -> str:
    """``aws: ec2:DescribeInstances`` of ``describe_instances``."""
    return f"aws: ec2:{''.join(part.capitalize() for part in call.split('_'))}"


def _one(name: str, ask: Callable[[], str]) -> list[Check]:
    try:
        return [Check(name, True, ask())]
    except ProviderError as error:
        return [Check(name, False, str(error))]
    except Exception as error:  # noqa: BLE001 - a check never raises
        return [Check(name, False, f"could not be checked: {error!r}")]
