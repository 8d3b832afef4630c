"""The NodePool object that the CoreWeave face answers with: a JSON Schema of our own, of the used parts.

Written after docs.coreweave.com/products/cks/reference/node-pool and .../nodes/nodepool-status, read 2026-11, and the
members that published clients of it read (``inProgress``, ``queuedNodes``). CoreWeave publishes no machine-readable
schema. Core objects are compared with Kubernetes' own schemas instead.
"""

from collections.abc import Mapping
from typing import Any

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}

NODE_POOL: Mapping[str, Any] = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec", "status"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "compute.coreweave.com/v1alpha1"},
        "kind": {"const": "NodePool"},
        "metadata": {
            "type": "object",
            "required": ["name", "uid", "resourceVersion", "creationTimestamp", "generation"],
        },
        "spec": {
            "type": "object",
            "required": ["instanceType"],
            "additionalProperties": False,
            "oneOf": [{"required": ["targetNodes"]}, {"required": ["targetRacks"]}],
            "properties": {
                "computeClass": {"enum": ["default", "spot", "Spot"]},
                "instanceType": _TEXT,
                "targetNodes": _COUNT,
                "targetRacks": _COUNT,
                "minNodes": _COUNT,
                "maxNodes": _COUNT,
                "autoscaling": {"type": "boolean"},
                "lifecycle": {
                    "type": "object",
                    "properties": {"scaleDownStrategy": {"enum": ["IdleOnly", "PreferIdle"]}},
                },
            },
        },
        "status": {
            "type": "object",
            "additionalProperties": False,
            "required": ["currentNodes", "conditions"],
            "properties": {
                "currentNodes": _COUNT,
                "queuedNodes": _COUNT,
                "inProgress": _COUNT,
                "conditions": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["type", "status", "reason", "message", "lastTransitionTime"],
                        "additionalProperties": False,
                        "properties": {
                            "type": _TEXT,
                            "status": {"enum": ["True", "False", "Unknown"]},
                            "reason": _TEXT,
                            "message": _TEXT,
                            "lastTransitionTime": {"type": "string", "format": "date-time"},
                        },
                    },
                },
            },
        },
    },
}

NODE_POOL_LIST: Mapping[str, Any] = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "items"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "compute.coreweave.com/v1alpha1"},
        "kind": {"const": "NodePoolList"},
        "metadata": {"type": "object", "required": ["resourceVersion"]},
        "items": {"type": "array", "items": NODE_POOL},
    },
}
