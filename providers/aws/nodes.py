"""One node at EC2: the request that makes it, and what EC2 says of it, in our words. Pure."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from broker.core.errors import Invalid
from broker.core.model import EndedBy
from broker.core.money import usd
from broker.core.offer import Market
from broker.core.ports import CloudNode, CloudState, LaunchRequest
from broker.core.time import from_datetime
from providers.aws.settings import AwsOptions

TAG_INSTALLATION = "broker:installation"
TAG_TOKEN = "broker:token"
TAG_EVENT_SEQ = "broker:event-seq"

_USER_DATA_LIMIT = 16 * 1024  # bytes before base64; EC2 user guide, "instance user data"

_STATES = {
    "pending": CloudState.PENDING,
    "running": CloudState.RUNNING,
    "shutting-down": CloudState.STOPPING,
    "stopping": CloudState.STOPPING,
    "stopped": CloudState.STOPPING,  # its disks still cost money: not over until it is deleted
    "terminated": CloudState.TERMINATED,
}

# States in which something may still be billed.
BILLED_STATES = ("pending", "running", "shutting-down", "stopping", "stopped")

# Reasons of an instance that ended without having run: it was never billed.
_NEVER_RAN = {
    "Server.InsufficientInstanceCapacity",
    "Server.InternalError",
    "Client.InternalError",
    "Client.InvalidSnapshot.NotFound",
    "Client.VolumeLimitExceeded",
}

# "User initiated (2026-11-30 10:15:00 GMT)"
_TRANSITION = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def launch_parameters(request: LaunchRequest, options: AwsOptions) -> dict[str, Any]:
    """Arguments of `run_instances`; the same for the same request, so that a resent one is one node.

    Raises:
        Invalid: no image for the region, or user data too long.
    """
    offer = request.offer
    image = options.image_in(offer.region)
    if image is None:
        raise Invalid(f"aws: no image for {offer.region}; add it to clouds.aws.image_id")
    if len(request.user_data.encode()) > _USER_DATA_LIMIT:
        raise Invalid(f"aws: user data has more than {_USER_DATA_LIMIT} bytes")
    parameters: dict[str, Any] = {
        "ImageId": image,
        "InstanceType": offer.instance_type,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": request.token,
        "UserData": request.user_data,
        "Placement": {"AvailabilityZoneId": offer.zone},
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpTokens": "required",
            "HttpEndpoint": "enabled",
            "HttpPutResponseHopLimit": 2,
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": options.root_device,
                "Ebs": {"VolumeSize": request.disk_gib, "VolumeType": "gp3", "DeleteOnTermination": True},
            }
        ],
    }
    kinds = ["instance", "volume", "network-interface"]
    if offer.market is Market.SPOT:
        kinds.append("spot-instances-request")
        parameters["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": _spot_options(request)}
    tags = _tags(request)
    parameters["TagSpecifications"] = [{"ResourceType": kind, "Tags": tags} for kind in kinds]
    if offer.zone in options.subnet_ids:
        # Zone and subnet together: EC2 refuses a subnet of another zone instead of launching there.
        parameters["SubnetId"] = options.subnet_ids[offer.zone]
    if groups := options.security_group_ids.get(offer.region):
        parameters["SecurityGroupIds"] = list(groups)
    if options.iam_instance_profile:
        parameters["IamInstanceProfile"] = {"Name": options.iam_instance_profile}
    if options.key_name:
        parameters["KeyName"] = options.key_name
    return parameters


def wants_end_time(instance: Mapping[str, Any]) -> bool:
    """Whether a Spot instance has ended and does not say when: its Spot request does."""
    ended = _state(instance) in (CloudState.STOPPING, CloudState.TERMINATED)
    return ended and "SpotInstanceRequestId" in instance and _transition_ms(instance) is None


def closing_times(requests: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """When each Spot request's instance was terminated, by request id."""
    closed = (request for request in requests if request["Status"]["Code"].startswith("instance-terminated"))
    return {
        request["SpotInstanceRequestId"]: from_datetime(request["Status"]["UpdateTime"]) for request in closed
    }


def node_of(instance: Mapping[str, Any], region: str, closed_ms: Mapping[str, int]) -> CloudNode:
    """EC2's instance in our words.

    The meter starts at ``LaunchTime``, some seconds early: EC2 tells no later moment. Its end is the time in
    ``StateTransitionReason``, or when the Spot request was closed.

    Args:
        closed_ms: When Spot requests were closed, by request id.
    """
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
    placement = instance.get("Placement", {})
    state = _state(instance)
    launched_ms = from_datetime(instance["LaunchTime"])
    ended = state in (CloudState.STOPPING, CloudState.TERMINATED)
    ended_at_ms = _transition_ms(instance) or closed_ms.get(instance.get("SpotInstanceRequestId", ""))
    seq = tags.get(TAG_EVENT_SEQ, "")
    return CloudNode(
        token=tags.get(TAG_TOKEN) or instance.get("ClientToken", ""),
        provider_id=instance["InstanceId"],
        cloud="aws",
        region=region,
        zone=placement.get("AvailabilityZoneId", ""),
        state=state,
        installation_id=tags.get(TAG_INSTALLATION, ""),
        event_seq=int(seq) if seq.isdecimal() else 0,
        address=instance.get("PublicIpAddress") or instance.get("PrivateIpAddress"),
        created_at_ms=launched_ms,
        billed_from_ms=None
        if state is CloudState.PENDING or _reason(instance) in _NEVER_RAN
        else launched_ms,
        ended_at_ms=ended_at_ms if ended else None,
        ended_by=_ended_by(instance) if ended else None,
    )


def _tags(request: LaunchRequest) -> list[dict[str, str]]:
    tags = {f"broker:{key}": value for key, value in request.labels.items()} | {
        "Name": request.token,
        TAG_INSTALLATION: request.installation_id,
        TAG_TOKEN: request.token,
        TAG_EVENT_SEQ: str(request.event_seq),
    }
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def _spot_options(request: LaunchRequest) -> dict[str, str]:
    options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    if request.max_price_micro_usd_h is not None:
        options["MaxPrice"] = f"{usd(request.max_price_micro_usd_h):f}"
    return options


def _state(instance: Mapping[str, Any]) -> CloudState:
    return _STATES.get(instance.get("State", {}).get("Name", ""), CloudState.PENDING)


def _transition_ms(instance: Mapping[str, Any]) -> int | None:
    found = _TRANSITION.search(instance.get("StateTransitionReason", ""))
    if found is None:
        return None
    return from_datetime(datetime.strptime(found.group(1), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC))


def _ended_by(instance: Mapping[str, Any]) -> EndedBy:
    code = _reason(instance)
    if code == "Client.InstanceInitiatedShutdown":
        return EndedBy.NODE
    return EndedBy.CLOUD if code.startswith("Server.") else EndedBy.US


def _reason(instance: Mapping[str, Any]) -> str:
    return str(instance.get("StateReason", {}).get("Code", ""))
