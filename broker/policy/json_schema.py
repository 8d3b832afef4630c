"""`broker policy schema`: what a policy file may hold, as JSON Schema for editors.

It is made from the tables that the reader goes by, so it accepts every file that the daemon takes. What it cannot say
is left to `broker policy check`: conditions, duplicates, contradictions, files that are extended.
"""

from typing import Any, Final

from broker.policy.section import Key, Table
from broker.policy.sections import KEYS

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def policy_schema(*, is_defaults: bool = False) -> dict[str, Any]:
    """The schema of a policy file, or of a ``*.defaults.yaml``, which has no name."""
    table = {name: key for name, key in KEYS.items() if not (is_defaults and name == "policy")}
    schema = {"$schema": DRAFT, "title": "defaults of policies" if is_defaults else "policy"} | _mapping(
        table
    )
    return schema if is_defaults else schema | {"required": ["policy"]}


def _mapping(table: Table) -> dict[str, Any]:
    properties = {name: {"description": key.meaning} | _value(key) for name, key in table.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _value(key: Key) -> dict[str, Any]:
    if not key.inside:
        assert key.kind is not None
        return dict(key.kind.schema)
    if key.kind is None:
        return _mapping(key.inside)
    return {"anyOf": [dict(key.kind.schema), _mapping(key.inside)]}
