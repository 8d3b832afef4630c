"""What an insert asks for: checked beyond its schema, and put to the world."""

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from typing import Any

from lab.faces.gcp_errors import GcpError
from lab.faults import FaultKind
from lab.machines import CreateRequest
from lab.sold.gcp import SPOT_ONLY
from lab.world import World

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[-_a-z0-9]{0,63}")


def is_request_id(text: str) -> bool:
    """Whether it is a UUID other than zero."""
    try:
        return uuid.UUID(text).int != 0
    except ValueError:
        return False


def check_body(body: Mapping[str, Any]) -> None:
    """What the schema cannot say of an instance to be made."""
    if not _NAME.fullmatch(body.get("name", "")):
        raise _invalid(
            "name", body.get("name", ""), "must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'"
        )
    for key, value in body.get("labels", {}).items():
        if not key or not _LABEL.fullmatch(key) or not _LABEL.fullmatch(value):
            raise _invalid("labels", f"{key}={value}", "is not a label")
    for needed in ("machineType", "disks", "networkInterfaces"):
        if not body.get(needed):
            raise _invalid(needed, "", "must be given")
    scheduling = body.get("scheduling", {})
    if scheduling.get("provisioningModel") == "SPOT" and scheduling.get("automaticRestart"):
        raise _invalid("scheduling", "", "automatic restart is not possible for Spot VMs")
    if scheduling.get("onHostMaintenance") != "TERMINATE":
        raise _invalid(
            "scheduling.onHostMaintenance", "MIGRATE", "instances with accelerators cannot be migrated"
        )
    if scheduling.get("preemptionNoticeDuration") and scheduling.get("provisioningModel") != "SPOT":
        raise _invalid("scheduling.preemptionNoticeDuration", "", "is for Spot VMs only")


def _invalid(field: str, value: str, text: str) -> GcpError:
    return GcpError(400, "invalid", f"Invalid value for field 'resource.{field}': '{value}'. {text}")


def _market(body: Mapping[str, Any]) -> str:
    return "spot" if body.get("scheduling", {}).get("provisioningModel") == "SPOT" else "on_demand"


def create_request(
    zone: str, body: Mapping[str, Any], fault: FaultKind | None, world: World
) -> CreateRequest:
    """What the world is asked for.

    Raises:
        GcpError: the machine type is not sold in that zone, or not on demand.
    """
    scheduling, kind = body.get("scheduling", {}), body["machineType"].rpartition("/")[2]
    key = f"gcp/{zone}/{kind}/{_market(body)}"
    if key not in world.pools:
        raise GcpError(400, "invalid", f"Machine type with name '{kind}' does not exist in zone '{zone}'.")
    if _market(body) == "on_demand" and kind in SPOT_ONLY:
        # Google says that it is refused; in which words is unconfirmed.
        raise _invalid(
            "scheduling.provisioningModel", "STANDARD", f"{kind} is for Spot and Flex-start VMs only"
        )
    items = {item["key"]: item.get("value", "") for item in body.get("metadata", {}).get("items", [])}
    return CreateRequest(
        offer_key=key,
        name=body["name"],
        labels=body.get("labels", {}),
        user_data=items.get("startup-script", ""),
        fingerprint=hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest(),
        max_life_s=_seconds(scheduling.get("maxRunDuration")),
        notice_s=_seconds(scheduling.get("preemptionNoticeDuration")),
        never_boots=fault is FaultKind.NEVER_BOOTS,
    )


def _seconds(duration: Mapping[str, Any] | None) -> int | None:
    return int(duration.get("seconds", 0)) if duration else None


def refused_by(fault: FaultKind | None, zone: str, body: Mapping[str, Any]) -> tuple[str, str] | None:
    """The operation error, code and text, that a fault asks for."""
    if fault is FaultKind.CAPACITY:
        return exhausted(zone)
    if fault is FaultKind.QUOTA:
        metric = "PREEMPTIBLE_NVIDIA_GPUS" if _market(body) == "spot" else "NVIDIA_GPUS"
        return (
            "QUOTA_EXCEEDED",
            f"Quota '{metric}' exceeded.  Limit: 0.0 in region {zone.rpartition('-')[0]}.",
        )
    return None


def exhausted(zone: str) -> tuple[str, str]:
    """The operation error of an empty pool."""
    text = f"The zone '{zone}' does not have enough resources available to fulfill the request."
    return "ZONE_RESOURCE_POOL_EXHAUSTED", f"{text}  Try a different zone, or try again later."
