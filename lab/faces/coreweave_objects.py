"""Objects of the lab's CKS cluster: what it is, its node pools and nodes, and Kubernetes' word for a refusal."""

import hashlib
from collections.abc import Mapping
from typing import Any

from broker.core.time import to_iso
from lab.pools import Pool

GROUP = "compute.coreweave.com"
KUBERNETES = "v1.37.0"

_KI_IN_GIB = 1 << 20

_GROUPS = [
    {
        "name": name,
        "versions": [{"groupVersion": f"{name}/{version}", "version": version}],
        "preferredVersion": {"groupVersion": f"{name}/{version}", "version": version},
    }
    for name, version in ((GROUP, "v1alpha1"), ("authorization.k8s.io", "v1"))
]


def _resources(group_version: str, *resources: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "APIResourceList",
        "groupVersion": group_version,
        "resources": [{"namespaced": False, **resource} for resource in resources],
    }


# What clients ask before they ask for anything.
DISCOVERY: Mapping[str, Mapping[str, Any]] = {
    "/version": {
        "major": "1",
        "minor": "37",
        "gitVersion": KUBERNETES,
        "gitCommit": "0" * 40,
        "gitTreeState": "clean",
        "buildDate": "2026-08-26T00:00:00Z",
        "goVersion": "go1.26",
        "compiler": "gc",
        "platform": "linux/amd64",
    },
    "/api": {
        "apiVersion": "v1",
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:443"}],
    },
    "/api/v1": _resources(
        "v1",
        {
            "name": "nodes",
            "singularName": "node",
            "kind": "Node",
            "verbs": ["get", "list"],
            "shortNames": ["no"],
        },
    ),
    "/apis": {"apiVersion": "v1", "kind": "APIGroupList", "groups": _GROUPS},
    f"/apis/{GROUP}": {"apiVersion": "v1", "kind": "APIGroup", **_GROUPS[0]},
    f"/apis/{GROUP}/v1alpha1": _resources(
        f"{GROUP}/v1alpha1",
        {"name": "nodepools", "singularName": "nodepool", "kind": "NodePool", "verbs": ["get", "list"]},
    ),
    "/apis/authorization.k8s.io": {"apiVersion": "v1", "kind": "APIGroup", **_GROUPS[1]},
    "/apis/authorization.k8s.io/v1": _resources(
        "authorization.k8s.io/v1",
        {
            "name": "selfsubjectaccessreviews",
            "singularName": "selfsubjectaccessreview",
            "kind": "SelfSubjectAccessReview",
            "verbs": ["create"],
        },
    ),
}


def status(code: int, reason: str, message: str, retry_after_s: int | None = None) -> dict[str, Any]:
    """The body of a refusal."""
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    if retry_after_s is not None:
        document["details"] = {"retryAfterSeconds": retry_after_s}
    return document


def node_pool(pool: Pool, has_node: bool, start_s: int, now_s: int) -> dict[str, Any]:
    """A pool that wants one node, and has it or waits for it."""
    kind, spot = pool.listing.type, pool.listing.market == "spot"
    since = to_iso(now_s * 1000)

    def condition(name: str, holds: bool, reason: str, message: str) -> dict[str, str]:
        return {
            "type": name,
            "status": str(holds),
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        }

    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "NodePool",
        "metadata": _metadata(pool_name(pool), start_s, now_s) | {"generation": 1},
        "spec": {
            "computeClass": "spot" if spot else "default",
            "instanceType": kind.name,
            "targetNodes": 1,
            "autoscaling": False,
            "lifecycle": {"scaleDownStrategy": "IdleOnly"},
        },
        "status": {
            "currentNodes": int(has_node),
            "queuedNodes": int(not has_node),
            "inProgress": 0,
            "conditions": [
                condition("Validated", True, "Valid", "The spec is valid"),
                condition(
                    "AtTarget",
                    has_node,
                    "AtTarget" if has_node else "UnderTarget",
                    "Compared with the target",
                ),
                condition(
                    "Capacity",
                    has_node,
                    "Sufficient" if has_node else "Insufficient",
                    "There is enough" if has_node else "No node of this type is left",
                ),
                condition("Quota", True, "Under", "Within the quota"),
            ],
        },
    }


def node(pool: Pool, zone: str, start_s: int, now_s: int) -> dict[str, Any]:
    """The one node of a pool that has got it."""
    kind = pool.listing.type
    spot = pool.listing.market == "spot"
    name = "g" + hashlib.sha256(pool.key.encode()).hexdigest()[:6]
    amounts = {
        "cpu": str(kind.vcpus),
        "memory": f"{kind.memory_gib * _KI_IN_GIB}Ki",
        "nvidia.com/gpu": str(kind.gpus),
        "pods": "110",
    }
    labels = {
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": kind.name,
        "topology.kubernetes.io/region": zone,
        "compute.coreweave.com/node-pool": pool_name(pool),
        "compute.coreweave.com/compute-class": "spot" if spot else "default",
        "gpu.nvidia.com/model": kind.vendor_gpu,
        "node.coreweave.cloud/state": "production",
    }
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": to_iso(now_s * 1000),
        "lastTransitionTime": to_iso(start_s * 1000),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(name, start_s, now_s) | {"labels": labels},
        "spec": {"providerID": f"coreweave://{name}"},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def pool_name(pool: Pool) -> str:
    """``gd-8xh100ib-i128-on-demand``"""
    return f"{pool.listing.type.name}-{pool.listing.market.replace('_', '-')}"


def _metadata(name: str, start_s: int, now_s: int) -> dict[str, Any]:
    digest = hashlib.sha256(name.encode()).hexdigest()
    uid = f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
    return {
        "name": name,
        "uid": uid,
        "resourceVersion": str(now_s - start_s + 1),
        "creationTimestamp": to_iso(start_s * 1000),
    }
