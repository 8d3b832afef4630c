"""Google's own description of an API: which call a request is, and whether a document has the right shape.

The discovery documents come with google-api-python-client. A request is found by its path in them, its query and its
body are checked against them before anything happens, and the tests check every reply.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import googleapiclient

_DOCUMENTS = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
_INTEGERS = {"int64": re.compile(r"-?\d{1,19}"), "uint64": re.compile(r"\d{1,20}")}


@dataclass(frozen=True)
class Method:
    """One call of an API.

    Attributes:
        id: Without the API's name: ``instances.insert``; of nested resources the last two parts.
        request, response: Names of their schemas; empty for none.
        parameters: Query and path parameters that it takes.
    """

    id: str
    http_method: str
    pattern: re.Pattern[str]
    request: str
    response: str
    parameters: Mapping[str, Any]


class Api:
    """One discovery document, e.g. ``compute.v1``."""

    def __init__(self, name: str) -> None:
        document = json.loads((_DOCUMENTS / f"{name}.json").read_text())
        self._schemas: Mapping[str, Any] = document["schemas"]
        self._everywhere = frozenset(document["parameters"]) | {"$alt"}
        self._methods = list(_methods(document["resources"], "/" + document["servicePath"]))

    def find(self, http_method: str, path: str) -> tuple[Method, dict[str, str]] | None:
        """The call with its path parameters, or None."""
        for method in self._methods:
            match = method.pattern.fullmatch(path) if method.http_method == http_method else None
            if match:
                return method, match.groupdict()
        return None

    def unknown_parameters(self, method: Method, names: list[str]) -> list[str]:
        """Query parameters that the call does not take."""
        return [name for name in names if name not in method.parameters and name not in self._everywhere]

    def problems(self, schema: str, document: Any) -> list[str]:
        """What is wrong with a document, each with its path; empty when it is right."""
        return list(self._check({"$ref": schema}, document, schema))

    def _check(self, schema: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"]]
        kind = schema.get("type", "any")
        if kind == "object":
            if not isinstance(value, dict):
                yield f"{where}: expected an object"
                return
            known, others = schema.get("properties", {}), schema.get("additionalProperties")
            for key, item in value.items():
                expected = known.get(key) or others
                if expected is None:
                    yield f"{where}.{key}: unknown name"
                else:
                    yield from self._check(expected, item, f"{where}.{key}")
        elif kind == "array":
            if not isinstance(value, list):
                yield f"{where}: expected a list"
                return
            for index, item in enumerate(value):
                yield from self._check(schema["items"], item, f"{where}[{index}]")
        elif not _scalar_fits(kind, schema, value):
            yield f"{where}: {value!r} is no {schema.get('format', kind)}"


def _scalar_fits(kind: str, schema: Mapping[str, Any], value: Any) -> bool:
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "string":
        if not isinstance(value, str):
            return False
        digits = _INTEGERS.get(schema.get("format", ""))
        return (digits is None or digits.fullmatch(value) is not None) and value in schema.get(
            "enum", [value]
        )
    return True


def _methods(resources: Mapping[str, Any], base: str) -> Iterator[Method]:
    for resource in resources.values():
        for entry in resource.get("methods", {}).values():
            yield Method(
                id=".".join(entry["id"].split(".")[-2:]),
                http_method=entry["httpMethod"],
                pattern=_pattern(base + entry["flatPath"]),
                request=entry.get("request", {}).get("$ref", ""),
                response=entry.get("response", {}).get("$ref", ""),
                parameters=entry.get("parameters", {}),
            )
        yield from _methods(resource.get("resources", {}), base)


def _pattern(path: str) -> re.Pattern[str]:
    """``projects/{project}/zones`` as an expression."""
    text = ""
    for literal, name in re.findall(r"([^{]+)|\{(\w+)\}", path):
        text += re.escape(literal) if literal else f"(?P<{name}>[^/:]+)"
    return re.compile(text)
