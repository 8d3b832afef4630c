"""One node at Compute Engine: the instance that we ask for, and what Compute Engine says of it, in our words. Pure.

A deleted instance is forgotten at once; its operations are kept for about two weeks and tell when and by whom it
ended.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from google.cloud import compute_v1

from broker.core.model import EndedBy
from broker.core.offer import Market
from broker.core.ports import CloudNode, CloudState, LaunchRequest
from broker.core.time import from_iso
from providers.gcp.settings import GcpOptions

LABEL_INSTALLATION = "broker-installation"
LABEL_EVENT_SEQ = "broker-event-seq"
LABEL_REQUEST = "broker-request"

_STATES = {
    "PENDING": CloudState.PENDING,
    "PROVISIONING": CloudState.PENDING,
    "STAGING": CloudState.PENDING,
    "RUNNING": CloudState.RUNNING,
    "REPAIRING": CloudState.RUNNING,
    "PENDING_STOP": CloudState.RUNNING,
    # A stopped instance keeps its disk, which is billed: it is not over until it is deleted.
    "STOPPING": CloudState.STOPPING,
    "STOPPED": CloudState.STOPPING,
    "TERMINATED": CloudState.STOPPING,
    "SUSPENDING": CloudState.STOPPING,
    "SUSPENDED": CloudState.STOPPING,
    "DEPROVISIONING": CloudState.STOPPING,
}

# Operations that end an instance, and who is behind them. A preemption is followed by the system's own delete, so
# the order matters: the first that is found decides.
_ENDS = (
    ("compute.instances.preempted", EndedBy.CLOUD),
    ("compute.instances.hostError", EndedBy.CLOUD),
    ("compute.instances.guestTerminate", EndedBy.NODE),
    ("stop", EndedBy.US),
    ("delete", EndedBy.US),
)

_HYPERDISK_ONLY = ("a3-ultragpu", "a4-")


def request_label(request: LaunchRequest) -> str:
    """What tells two requests of one token apart, as a label value."""
    text = json.dumps(asdict(request), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def instance_of(request: LaunchRequest, options: GcpOptions) -> Any:
    """The `compute_v1.Instance` to insert; the same for the same request."""
    offer = request.offer
    items = [compute_v1.Items(key="startup-script", value=request.user_data)]
    instance = compute_v1.Instance(
        name=request.token,
        machine_type=f"zones/{offer.zone}/machineTypes/{offer.instance_type}",
        labels=_labels(request),
        metadata=compute_v1.Metadata(items=items),
        scheduling=_scheduling(request),
        disks=[_disk(request, options)],
        network_interfaces=[_interface(request, options)],
    )
    if options.network_tags:
        instance.tags = compute_v1.Tags(items=list(options.network_tags))
    if options.service_account:
        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        instance.service_accounts = [compute_v1.ServiceAccount(email=options.service_account, scopes=scopes)]
    return instance


def node_of(instance: Any, region: str, zone: str) -> CloudNode:
    """An instance in our words. The meter starts at its last start and ends at its last stop."""
    state = _STATES.get(instance.status, CloudState.PENDING)
    stopped = state is CloudState.STOPPING and bool(instance.last_stop_timestamp)
    seq = instance.labels.get(LABEL_EVENT_SEQ, "")
    return CloudNode(
        token=instance.name,
        provider_id=str(instance.id),
        cloud="gcp",
        region=region,
        zone=zone,
        state=state,
        installation_id=instance.labels.get(LABEL_INSTALLATION, ""),
        event_seq=int(seq) if seq.isdecimal() else 0,
        address=_address(instance),
        created_at_ms=from_iso(instance.creation_timestamp) if instance.creation_timestamp else 0,
        billed_from_ms=from_iso(instance.last_start_timestamp) if instance.last_start_timestamp else None,
        ended_at_ms=from_iso(instance.last_stop_timestamp) if stopped else None,
        ended_by=EndedBy.NODE if stopped else None,
    )


def node_from_operations(operations: Iterable[Any], token: str, region: str, zone: str) -> CloudNode | None:
    """What the operations on an instance tell of it when there is none: its end, or that it is still being made.

    The meter's end is the end of a preemption or a stop, but the *start* of a delete: that one first stops the
    machine and then spends a while on its disks.
    """
    found = list(operations)
    inserts = [op for op in found if op.operation_type == "insert"]
    if not inserts:
        return None
    insert = max(inserts, key=lambda op: op.insert_time)
    if _status(insert) != "DONE":
        return _past(insert, token, region, zone, CloudState.PENDING)
    if insert.error.errors:
        return None  # it was refused: there never was a machine
    for kind, by in _ENDS:
        for op in found:
            if op.operation_type == kind and op.insert_time >= insert.insert_time:
                ended = op.start_time if kind == "delete" else op.end_time
                ended_ms = from_iso(ended or op.insert_time)
                return _past(insert, token, region, zone, CloudState.TERMINATED, ended_ms, by)
    return None


def _past(
    insert: Any,
    token: str,
    region: str,
    zone: str,
    state: CloudState,
    ended_at_ms: int | None = None,
    ended_by: EndedBy | None = None,
) -> CloudNode:
    started = insert.end_time if state is CloudState.TERMINATED else ""
    return CloudNode(
        token=token,
        provider_id=str(insert.target_id),
        cloud="gcp",
        region=region,
        zone=zone,
        state=state,
        created_at_ms=from_iso(insert.insert_time),
        billed_from_ms=from_iso(started) if started else None,
        ended_at_ms=ended_at_ms,
        ended_by=ended_by,
    )


def _status(operation: Any) -> str:
    """``DONE`` etc.; the library gives an enum."""
    return str(getattr(operation.status, "name", operation.status))


def _labels(request: LaunchRequest) -> dict[str, str]:
    return {f"broker-{key}": value for key, value in request.labels.items()} | {
        LABEL_INSTALLATION: request.installation_id,
        LABEL_EVENT_SEQ: str(request.event_seq),
        LABEL_REQUEST: request_label(request),
    }


def _scheduling(request: LaunchRequest) -> Any:
    """GPUs cannot be moved live, and a machine of ours is never restarted behind our back."""
    scheduling = compute_v1.Scheduling(on_host_maintenance="TERMINATE", automatic_restart=False)
    spot = request.offer.market is Market.SPOT
    scheduling.provisioning_model = "SPOT" if spot else "STANDARD"
    if spot or request.max_life_s is not None:
        scheduling.instance_termination_action = "DELETE"
    if spot and request.notice_s is not None:
        scheduling.preemption_notice_duration = compute_v1.Duration(seconds=request.notice_s)
    if request.max_life_s is not None:
        scheduling.max_run_duration = compute_v1.Duration(seconds=request.max_life_s)
    return scheduling


def _disk(request: LaunchRequest, options: GcpOptions) -> Any:
    offer = request.offer
    default = "hyperdisk-balanced" if offer.instance_type.startswith(_HYPERDISK_ONLY) else "pd-balanced"
    kind = options.disk_type or default
    return compute_v1.AttachedDisk(
        boot=True,
        auto_delete=True,
        initialize_params=compute_v1.AttachedDiskInitializeParams(
            source_image=options.image,
            disk_size_gb=request.disk_gib,
            disk_type=f"zones/{offer.zone}/diskTypes/{kind}",
            labels={LABEL_INSTALLATION: request.installation_id},
        ),
    )


def _interface(request: LaunchRequest, options: GcpOptions) -> Any:
    interface = compute_v1.NetworkInterface()
    subnetwork = options.subnetworks.get(request.offer.region)
    if subnetwork:
        interface.subnetwork = subnetwork
    else:
        interface.network = options.network
    if options.external_ip:
        interface.access_configs = [compute_v1.AccessConfig(name="External NAT", type_="ONE_TO_ONE_NAT")]
    return interface


def _address(instance: Any) -> str | None:
    for interface in instance.network_interfaces:
        public = next((config.nat_i_p for config in interface.access_configs if config.nat_i_p), None)
        return public or interface.network_i_p or None
    return None
