"""Compute Engine's documents: zones, regions, machine types, instances and operations as JSON. Pure."""

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from lab.listing import InstanceType
from lab.machines import EndedBy, Machine, MachineState

WWW = "https://www.googleapis.com/compute/v1"  # what links name, whichever end point was called
_PACIFIC = timezone(timedelta(hours=-8))
_STATUS = {
    MachineState.PENDING: "STAGING",
    MachineState.RUNNING: "RUNNING",
    MachineState.STOPPING: "STOPPING",
    MachineState.TERMINATED: "TERMINATED",
}


def moment(at_s: int) -> str:
    """As Compute Engine writes times: Pacific, with milliseconds."""
    return datetime.fromtimestamp(at_s, _PACIFIC).isoformat(timespec="milliseconds")


def number(text: str) -> str:
    """A stable uint64 id."""
    return str(int(hashlib.sha256(text.encode()).hexdigest()[:15], 16) + 10**18)


def zone_link(project: str, zone: str) -> str:
    """URL of a zone."""
    return f"{WWW}/projects/{project}/zones/{zone}"


def zone(project: str, name: str) -> dict[str, Any]:
    """``compute#zone``"""
    link = zone_link(project, name)
    return {
        "kind": "compute#zone",
        "id": number(name),
        "name": name,
        "description": name,
        "status": "UP",
        "region": f"{WWW}/projects/{project}/regions/{name.rpartition('-')[0]}",
        "selfLink": link,
    }


def region(project: str, name: str, zones: list[str]) -> dict[str, Any]:
    """``compute#region`` with some of its quotas."""
    gpus = [f"{prefix}NVIDIA_{family}_GPUS" for family in ("L4", "A100") for prefix in ("", "PREEMPTIBLE_")]
    metrics = (*gpus, "PREEMPTIBLE_NVIDIA_H100_GPUS", "PREEMPTIBLE_CPUS", "CPUS")
    return {
        "kind": "compute#region",
        "id": number(name),
        "name": name,
        "description": name,
        "status": "UP",
        "zones": [zone_link(project, zone_name) for zone_name in zones],
        "quotas": [{"metric": metric, "limit": 1000.0, "usage": 0.0} for metric in metrics],
        "selfLink": f"{WWW}/projects/{project}/regions/{name}",
    }


def machine_type(project: str, zone_name: str, kind: InstanceType) -> dict[str, Any]:
    """``compute#machineType`` with its accelerators."""
    return {
        "kind": "compute#machineType",
        "id": number(kind.name),
        "name": kind.name,
        "description": f"{kind.vcpus} vCPUs, {kind.memory_gib} GB RAM, {kind.gpus} {kind.vendor_gpu}",
        "guestCpus": kind.vcpus,
        "memoryMb": kind.memory_gib * 1024,
        "isSharedCpu": False,
        "maximumPersistentDisks": 128,
        "maximumPersistentDisksSizeGb": "263168",
        "accelerators": [{"guestAcceleratorType": kind.vendor_gpu, "guestAcceleratorCount": kind.gpus}],
        "architecture": "X86_64",
        "zone": zone_name,
        "selfLink": f"{zone_link(project, zone_name)}/machineTypes/{kind.name}",
    }


def instance(project: str, machine: Machine, body: Mapping[str, Any]) -> dict[str, Any]:
    """``compute#instance``: what was asked for, and what became of it."""
    here = zone_link(project, machine.zone)
    row: dict[str, Any] = {
        "kind": "compute#instance",
        "id": machine.id,
        "name": machine.name,
        "status": _STATUS[machine.state],
        "zone": here,
        "selfLink": f"{here}/instances/{machine.name}",
        "machineType": f"{here}/machineTypes/{machine.instance_type}",
        "creationTimestamp": moment(machine.created_s),
        "labels": dict(machine.labels),
        "labelFingerprint": "42WmSpB8rSM=",
        "metadata": {"kind": "compute#metadata", "fingerprint": "42WmSpB8rSM=", **body.get("metadata", {})},
        "scheduling": {"automaticRestart": False, **body.get("scheduling", {})},
        "networkInterfaces": [_interface(project, machine, body)],
        "disks": [_disk(here, machine, body)],
        "cpuPlatform": "Intel Sapphire Rapids",
        "canIpForward": False,
        "deletionProtection": False,
        "startRestricted": False,
    }
    if machine.running_s is not None:
        row["lastStartTimestamp"] = moment(machine.running_s)
    if machine.state is MachineState.TERMINATED and machine.stopping_s is not None:
        row["lastStopTimestamp"] = moment(machine.stopping_s)
    return row


def _interface(project: str, machine: Machine, body: Mapping[str, Any]) -> dict[str, Any]:
    asked = (body.get("networkInterfaces") or [{}])[0]
    row: dict[str, Any] = {
        "kind": "compute#networkInterface",
        "name": "nic0",
        "network": f"{WWW}/projects/{project}/global/networks/default",
        "stackType": "IPV4_ONLY",
    }
    if machine.state in (MachineState.PENDING, MachineState.RUNNING):
        row["networkIP"] = machine.address
        if asked.get("accessConfigs"):
            access = {"kind": "compute#accessConfig", "type": "ONE_TO_ONE_NAT", "name": "External NAT"}
            row["accessConfigs"] = [access | {"natIP": machine.address, "networkTier": "PREMIUM"}]
    return row


def _disk(here: str, machine: Machine, body: Mapping[str, Any]) -> dict[str, Any]:
    asked = (body.get("disks") or [{}])[0]
    return {
        "kind": "compute#attachedDisk",
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        "boot": True,
        "autoDelete": bool(asked.get("autoDelete", False)),
        "index": 0,
        "deviceName": "persistent-disk-0",
        "diskSizeGb": str(asked.get("initializeParams", {}).get("diskSizeGb", "10")),
        "source": f"{here}/disks/{machine.name}",
    }


def operation(
    project: str,
    zone_name: str,
    kind: str,
    target: str,
    target_id: str,
    user: str,
    began_s: int,
    ended_s: int | None,
    **more: Any,
) -> dict[str, Any]:
    """``compute#operation``; RUNNING while `ended_s` is None."""
    here = zone_link(project, zone_name)
    # The same step of the same machine is the same operation, whenever it is looked at.
    digest = number(f"{kind}/{target_id}/{began_s}")
    name = f"operation-{began_s}-{digest[:8]}" if "." not in kind else f"systemevent-{began_s}-{digest[:8]}"
    row: dict[str, Any] = {
        "kind": "compute#operation",
        "id": digest,
        "name": name,
        "zone": here,
        "operationType": kind,
        "targetLink": f"{here}/instances/{target}",
        "targetId": target_id,
        "status": "RUNNING" if ended_s is None else "DONE",
        "progress": 0 if ended_s is None else 100,
        "user": user,
        "insertTime": moment(began_s),
        "startTime": moment(began_s),
        "selfLink": f"{here}/operations/{name}",
    }
    if ended_s is not None:
        row["endTime"] = moment(ended_s)
    return row | {key: value for key, value in more.items() if value is not None}


def ends(project: str, machine: Machine, user: str) -> list[dict[str, Any]]:
    """The operations that tell of a machine's end, as far as it has come."""
    if machine.stopping_s is None:
        return []

    def step(kind: str, who: str, ended_s: int | None, text: str | None = None) -> dict[str, Any]:
        return operation(
            project,
            machine.zone,
            kind,
            machine.name,
            machine.id,
            who,
            machine.stopping_s or 0,
            ended_s,
            statusMessage=text,
        )

    system = "system"
    if machine.ended_by is EndedBy.CLOUD:
        told = step("compute.instances.preempted", system, machine.stopping_s, "Instance was preempted.")
        return [told, step("delete", system, machine.ended_s)]
    if machine.ended_by is EndedBy.NODE:
        text = "Instance terminated by guest OS shutdown."
        return [step("compute.instances.guestTerminate", system, machine.stopping_s, text)]
    return [step("delete", system if machine.ended_by is EndedBy.LIFETIME else user, machine.ended_s)]
