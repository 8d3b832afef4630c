"""The shapes that the Lambda face answers with: a JSON Schema of our own, trimmed to the used parts.

Written after Lambda's OpenAPI document 1.8.3 (``GET https://cloud.lambda.ai/api/v1/openapi.json``, read 2026-11):
names, types, required members and enumerations of the schemas named here, none of its texts. A test compares them with
that document where there is a copy.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}


def _object(required: Sequence[str], **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _of(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _enum(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def _error(code: str) -> Schema:
    return _object(
        ["code", "message", "suggestion"],
        code={"type": "string", "const": code},
        message=_TEXT,
        suggestion=_TEXT,
    )


SCHEMAS: Mapping[str, Schema] = {
    "InstanceTypes": {"type": "object", "additionalProperties": _of("InstanceTypesItem")},
    "InstanceTypesItem": _object(
        ["instance_type", "regions_with_capacity_available"],
        instance_type=_of("InstanceType"),
        regions_with_capacity_available=_list(_of("Region")),
    ),
    "InstanceType": _object(
        ["name", "description", "gpu_description", "price_cents_per_hour", "specs"],
        name=_TEXT,
        description=_TEXT,
        gpu_description=_TEXT,
        price_cents_per_hour=_WHOLE,
        specs=_of("InstanceTypeSpecs"),
    ),
    "InstanceTypeSpecs": _object(
        ["vcpus", "memory_gib", "storage_gib", "gpus"],
        vcpus=_WHOLE,
        memory_gib=_WHOLE,
        storage_gib=_WHOLE,
        gpus=_WHOLE,
    ),
    "Region": _object(["name", "description"], name=_of("PublicRegionCode"), description=_TEXT),
    "PublicRegionCode": _enum(
        "europe-central-1",
        "asia-south-1",
        "australia-east-1",
        "me-west-1",
        "asia-northeast-1",
        "asia-northeast-2",
        "us-east-1",
        "us-west-2",
        "us-west-1",
        "us-south-1",
        "us-west-3",
        "us-midwest-1",
        "us-east-2",
        "us-south-2",
        "us-south-3",
        "us-east-3",
        "us-midwest-2",
    ),
    "Image": _object(
        [
            "id",
            "created_time",
            "updated_time",
            "name",
            "description",
            "family",
            "version",
            "architecture",
            "region",
        ],
        id=_TEXT,
        created_time={"type": "string", "format": "date-time"},
        updated_time={"type": "string", "format": "date-time"},
        name=_TEXT,
        description=_TEXT,
        family=_TEXT,
        version=_TEXT,
        architecture=_of("ImageArchitecture"),
        region=_of("Region"),
    ),
    "ImageArchitecture": _enum("x86_64", "arm64"),
    "ApiErrorUnauthorized": _error("global/invalid-api-key"),
    "ApiErrorAccountInactive": _error("global/account-inactive"),
    "ApiErrorInternal": _error("global/internal-error"),
}

# Path -> (operation, the schema of what lies under `data`). No instance ever exists, so that list has no rows to describe.
OPERATIONS: Mapping[str, tuple[str, Schema]] = {
    "/api/v1/instance-types": ("listInstanceTypes", _of("InstanceTypes")),
    "/api/v1/instances": ("listInstances", {"type": "array", "maxItems": 0}),
    "/api/v1/images": ("listImages", _list(_of("Image"))),
}


# Status -> what lies under `error`. For 500 the document has a schema, and names it for no reading call.
_ERRORS = {401: "ApiErrorUnauthorized", 403: "ApiErrorAccountInactive", 500: "ApiErrorInternal"}


def reply_schema(path: str, status: int) -> Schema:
    """The whole body of a reply, with what it refers to.

    Raises:
        KeyError: no such path, or the document has no schema for that status.
    """
    member, schema = ("data", OPERATIONS[path][1]) if status == 200 else ("error", _of(_ERRORS[status]))
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [member],
        "properties": {member: schema},
        "components": {"schemas": SCHEMAS},
    }
