"""EC2's instances: run, describe, tag, terminate, and the spot requests behind them."""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from lab.catalog import TYPES, ZONES
from lab.faces.aws_errors import AwsError, Call, dry_run, matches, page
from lab.faults import FaultKind
from lab.listing import Zone
from lab.machines import (
    CreateRequest,
    EndedBy,
    Machine,
    MachineState,
    OutOfStock,
    PriceTooLow,
    TokenMismatch,
    UnknownPool,
)
from lab.world import World

ACCOUNT = "123456789012"
VISIBLE_S = 3600  # a terminated instance is listed for about an hour
USER_DATA_LIMIT = 16 * 1024

_STATE = {
    MachineState.PENDING: (0, "pending"),
    MachineState.RUNNING: (16, "running"),
    MachineState.STOPPING: (32, "shutting-down"),
    MachineState.TERMINATED: (48, "terminated"),
}
_REASON = {
    EndedBy.USER: ("Client.UserInitiatedShutdown", "User initiated shutdown"),
    EndedBy.NODE: ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown"),
    EndedBy.CLOUD: ("Server.SpotInstanceTermination", "Spot instance termination"),
    EndedBy.LIFETIME: ("Server.ScheduledStop", "Scheduled stop"),
}


class Instances:
    """Instances over a world.

    Attributes:
        operations: By API name.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.operations: Mapping[str, Callable[[Call], dict[str, Any]]] = {
            "RunInstances": self.run_instances,
            "DescribeInstances": self.describe_instances,
            "DescribeSpotInstanceRequests": self.describe_spot_instance_requests,
            "TerminateInstances": self.terminate_instances,
            "CreateTags": self.create_tags,
        }

    def run_instances(self, call: Call) -> dict[str, Any]:
        """One instance; the same one again for the same client token and parameters."""
        given = call.given
        request = _create_request(call, self._zone(call))
        if given.get("DryRun"):
            raise dry_run()
        zone = ZONES[request.offer_key.split("/")[1]]
        try:
            if call.fault is FaultKind.CAPACITY:
                raise OutOfStock("by fault")
            if call.fault is FaultKind.QUOTA:
                raise _quota(request)
            machine = self._world.create(request)
        except OutOfStock:
            raise AwsError(
                "InsufficientInstanceCapacity",
                f"We currently do not have sufficient {given['InstanceType']} capacity in the Availability Zone you "
                f"requested ({zone.name}). Our system will be working on provisioning additional capacity.",
                500,  # really: which is why clients that retry 5xx repeat it
            ) from None
        except PriceTooLow as error:
            raise AwsError("SpotMaxPriceTooLow", f"Your Spot request price is too low: {error}.") from None
        except TokenMismatch:
            text = "Arguments on this idempotent request are inconsistent with arguments used in previous request(s)."
            raise AwsError("IdempotentParameterMismatch", text) from None
        except UnknownPool:
            text = f"Your requested instance type ({given['InstanceType']}) is not supported in your requested Availability Zone ({zone.name})."
            raise AwsError("Unsupported", text) from None
        return _reservation(machine)

    def _zone(self, call: Call) -> Zone:
        given, known = call.given, [z for z in ZONES.values() if z.cloud == "aws" and z.region == call.region]
        placement = given.get("Placement") or {}
        interfaces = given.get("NetworkInterfaces") or [{}]
        subnet = given.get("SubnetId") or interfaces[0].get("SubnetId")
        if placement.get("AvailabilityZone") and placement.get("AvailabilityZoneId"):
            raise AwsError(
                "InvalidParameterCombination", "Specify either AvailabilityZone or AvailabilityZoneId."
            )
        for zone in known:
            if subnet is not None and subnet == f"subnet-{zone.id.replace('-', '')}":
                return zone
            if subnet is None and placement.get("AvailabilityZoneId") == zone.id:
                return zone
            if subnet is None and placement.get("AvailabilityZone") == zone.name:
                return zone
        if subnet is not None:
            raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{subnet}' does not exist")
        if placement.get("AvailabilityZone") or placement.get("AvailabilityZoneId") or not known:
            raise AwsError("InvalidParameterValue", "Invalid availability zone")
        return known[0]

    def describe_instances(self, call: Call) -> dict[str, Any]:
        """Reservations of one instance each; what has ended is listed for an hour."""
        wanted = call.given.get("InstanceIds") or []
        if wanted and call.given.get("MaxResults"):
            text = "The parameter instancesSet cannot be used with the parameter maxResults"
            raise AwsError("InvalidParameterCombination", text)
        found = {machine.id: machine for machine in self._visible(call)}
        _all_known(wanted, found)
        filters = call.filters()
        rows = [
            _reservation(machine)
            for machine in found.values()
            if (not wanted or machine.id in wanted) and _passes(machine, filters)
        ]
        part, token = page(rows, call)
        return {"Reservations": part} | ({"NextToken": token} if token else {})

    def describe_spot_instance_requests(self, call: Call) -> dict[str, Any]:
        """One request a spot instance; its status tells when and why it ended."""
        wanted, filters = call.given.get("SpotInstanceRequestIds") or [], call.filters()
        rows = []
        for machine in self._visible(call):
            if (
                machine.market == "spot"
                and (not wanted or _spot_id(machine) in wanted)
                and _passes(machine, filters)
            ):
                rows.append(_spot_request(machine))
        part, token = page(rows, call)
        return {"SpotInstanceRequests": part} | ({"NextToken": token} if token else {})

    def terminate_instances(self, call: Call) -> dict[str, Any]:
        """Idempotent; ends the meter at once."""
        before = {machine.id: machine for machine in self._visible(call)}
        wanted = call.given.get("InstanceIds") or []
        _all_known(wanted, before)
        changes = []
        for machine_id in wanted:
            after = self._world.terminate(machine_id, EndedBy.USER)
            changes.append(
                {
                    "InstanceId": machine_id,
                    "PreviousState": _state(before[machine_id]),
                    "CurrentState": _state(after),
                }
            )
        return {"TerminatingInstances": changes}

    def create_tags(self, call: Call) -> dict[str, Any]:
        """Tags of instances; other resources have none here."""
        tags = {tag["Key"]: tag.get("Value", "") for tag in call.given.get("Tags") or []}
        found = {machine.id: machine for machine in self._visible(call)}
        wanted = call.given.get("Resources") or []
        _all_known(wanted, found)
        for machine_id in wanted:
            self._world.set_labels(machine_id, tags)
        return {}

    def _visible(self, call: Call) -> list[Machine]:
        now_s = self._world.now_s()
        return [
            machine
            for machine in self._world.machines("aws", call.region)
            if machine.ended_s is None or now_s - machine.ended_s < VISIBLE_S
        ]


def _create_request(call: Call, zone: Zone) -> CreateRequest:
    given = call.given
    if given["InstanceType"] not in TYPES:
        raise AwsError("InvalidParameterValue", f"Invalid value '{given['InstanceType']}' for InstanceType.")
    if (given.get("MinCount"), given.get("MaxCount")) != (1, 1):
        raise AwsError(
            "InvalidParameterValue", "The lab runs one instance a call: MinCount and MaxCount must be 1."
        )
    if not re.match(r"ami-[0-9a-f]+$|resolve:ssm:", given.get("ImageId") or ""):
        raise AwsError("InvalidAMIID.Malformed", f'Invalid id: "{given.get("ImageId")}"')
    token = given.get("ClientToken")
    if token and len(token) > 64:
        raise AwsError("InvalidParameterValue", "ClientToken may have at most 64 characters")
    options = given.get("InstanceMarketOptions") or {}
    tags = {
        tag["Key"]: tag.get("Value", "")
        for spec in given.get("TagSpecifications") or []
        if spec.get("ResourceType") == "instance"
        for tag in spec.get("Tags", [])
    }
    market = "spot" if options.get("MarketType") == "spot" else "on_demand"
    return CreateRequest(
        offer_key=f"aws/{zone.id}/{given['InstanceType']}/{market}",
        token=token,
        labels=tags,
        user_data=_user_data(given.get("UserData") or ""),
        fingerprint=hashlib.sha256(json.dumps(given, sort_keys=True, default=str).encode()).hexdigest(),
        max_price_micro_usd_h=_bid(options.get("SpotOptions") or {}) if market == "spot" else None,
        never_boots=call.fault is FaultKind.NEVER_BOOTS,
    )


def _user_data(encoded: str) -> str:
    try:
        raw = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise AwsError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from None
    if len(raw) > USER_DATA_LIMIT:
        raise AwsError("InvalidParameterValue", "User data is limited to 16384 bytes")
    return raw.decode()


def _bid(options: Mapping[str, Any]) -> int | None:
    if options.get("SpotInstanceType", "one-time") != "one-time":
        raise AwsError("InvalidParameterValue", "The lab sells one-time Spot requests only.")
    text = options.get("MaxPrice")
    if not text:
        return None
    try:
        price = Decimal(text)
    except InvalidOperation:
        price = Decimal(0)
    if price <= Decimal("0.001"):
        raise AwsError("InvalidParameterValue", f"Invalid value '{text}' for MaxPrice.")
    return int(price * 1_000_000)


def _quota(request: CreateRequest) -> AwsError:
    if request.offer_key.endswith("/spot"):
        return AwsError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    return AwsError(
        "VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit allows."
    )


def _all_known(wanted: list[str], found: Mapping[str, Machine]) -> None:
    if malformed := [i for i in wanted if not re.fullmatch(r"i-[0-9a-f]{8,17}", i)]:
        raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{malformed[0]}"')
    if missing := [i for i in wanted if i not in found]:
        noun = "IDs" if len(missing) > 1 else "ID"
        verb = "do" if len(missing) > 1 else "does"
        raise AwsError(
            "InvalidInstanceID.NotFound", f"The instance {noun} '{', '.join(missing)}' {verb} not exist"
        )


def _passes(machine: Machine, filters: Mapping[str, list[str]]) -> bool:
    zone = ZONES[machine.zone]
    fields: dict[str, str | None] = {
        "client-token": machine.token,
        "instance-id": machine.id,
        "instance-type": machine.instance_type,
        "instance-state-name": _STATE[machine.state][1],
        "instance-state-code": str(_STATE[machine.state][0]),
        "instance-lifecycle": "spot" if machine.market == "spot" else None,
        "availability-zone": zone.name,
        "availability-zone-id": zone.id,
        "launched-availability-zone": zone.name,
        "spot-instance-request-id": _spot_id(machine),
        "private-ip-address": machine.address,
    }
    for name, values in filters.items():
        if name.startswith("tag:"):
            accepted = matches(values, machine.labels.get(name.removeprefix("tag:")))
        elif name == "tag-key":
            accepted = any(matches(values, key) for key in machine.labels)
        elif name in fields:
            accepted = matches(values, fields[name])
        else:
            raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")
        if not accepted:
            return False
    return True


def _reservation(machine: Machine) -> dict[str, Any]:
    return {
        "ReservationId": f"r-{machine.id.removeprefix('i-')}",
        "OwnerId": ACCOUNT,
        "Instances": [_instance(machine)],
    }


def _instance(machine: Machine) -> dict[str, Any]:
    zone = ZONES[machine.zone]
    row: dict[str, Any] = {
        "InstanceId": machine.id,
        "ImageId": "ami-0ab0ab0ab0ab0ab0a",
        "InstanceType": machine.instance_type,
        "State": _state(machine),
        "LaunchTime": datetime.fromtimestamp(machine.created_s, UTC),
        "Placement": {"AvailabilityZone": zone.name, "AvailabilityZoneId": zone.id, "Tenancy": "default"},
        "AmiLaunchIndex": 0,
        "Architecture": "x86_64",
        "PlatformDetails": "Linux/UNIX",
        "PrivateDnsName": "",
        "PublicDnsName": "",
        "StateTransitionReason": "",
        "SubnetId": f"subnet-{zone.id.replace('-', '')}",
        "VpcId": "vpc-1ab0ab1ab0ab1ab0a",
        "Tags": [{"Key": key, "Value": value} for key, value in sorted(machine.labels.items())],
        "ClientToken": machine.token or "",
    }
    if machine.market == "spot":
        row |= {"InstanceLifecycle": "spot", "SpotInstanceRequestId": _spot_id(machine)}
    if machine.state is not MachineState.TERMINATED:
        row["PrivateIpAddress"] = machine.address
    if machine.ended_by is not None and machine.stopping_s is not None:
        code, message = _REASON[machine.ended_by]
        if machine.ended_by is EndedBy.CLOUD and machine.market != "spot":
            code, message = "Server.InternalError", "Internal error"
        row["StateReason"] = {"Code": code, "Message": f"{code}: {message}"}
        if machine.ended_by is EndedBy.USER:
            at = datetime.fromtimestamp(machine.stopping_s, UTC)
            row["StateTransitionReason"] = f"User initiated ({at:%Y-%m-%d %H:%M:%S} GMT)"
        elif machine.ended_by is EndedBy.CLOUD:
            row["StateTransitionReason"] = code
    return row


def _state(machine: Machine) -> dict[str, Any]:
    code, name = _STATE[machine.state]
    return {"Code": code, "Name": name}


def _spot_id(machine: Machine) -> str | None:
    return f"sir-{machine.id[2:10]}" if machine.market == "spot" else None


def _spot_request(machine: Machine) -> dict[str, Any]:
    at_s, code = machine.created_s, "fulfilled"
    if machine.interruption is not None:
        at_s, code = machine.interruption.noticed_s, "marked-for-termination"
    if machine.stopping_s is not None:
        at_s = machine.stopping_s
        ended = machine.ended_by is EndedBy.CLOUD
        code = "instance-terminated-no-capacity" if ended else "instance-terminated-by-user"
    return {
        "SpotInstanceRequestId": _spot_id(machine),
        "InstanceId": machine.id,
        "State": "active" if machine.stopping_s is None else "closed",
        "Type": "one-time",
        "InstanceInterruptionBehavior": "terminate",
        "ProductDescription": "Linux/UNIX",
        "LaunchedAvailabilityZone": ZONES[machine.zone].name,
        "CreateTime": datetime.fromtimestamp(machine.created_s, UTC),
        "Status": {"Code": code, "Message": code, "UpdateTime": datetime.fromtimestamp(at_s, UTC)},
    }
