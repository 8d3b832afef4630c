"""Microsoft's own description of its APIs: which call a request is, and whether a document has the right shape.

The descriptions are the model classes of the SDKs, in the two forms that the SDK generators write. A request's body is
checked against them before anything happens, and the tests check every reply.
"""

import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Operation:
    """One call of the resource manager.

    Attributes:
        id: As Microsoft's specifications have it.
        request: Model of the body; None for none.
        response: Model of the reply, of each entry of its ``value`` where it is paged.
    """

    id: str
    method: str
    pattern: re.Pattern[str]
    request: type | None
    response: type
    paged: bool = False


@cache
def operations() -> tuple[Operation, ...]:
    """The calls that the lab has; importing the SDKs' models takes a moment, once."""
    from azure.mgmt.compute import models as compute
    from azure.mgmt.computerecommender import models as recommender
    from azure.mgmt.resourcegraph import models as graph

    subscription = "/subscriptions/(?P<subscription>[^/]+)/providers/Microsoft.Compute"
    location = f"{subscription}/locations/(?P<location>[^/]+)"
    return (
        _operation("ResourceSkus_List", "GET", f"{subscription}/skus", None, compute.ResourceSku, True),
        _operation("Usage_List", "GET", f"{location}/usages", None, compute.Usage, True),
        _operation(
            "SpotPlacementScores_Post",
            "POST",
            f"{location}/placementScores/spot/generate",
            recommender.SpotPlacementScoresInput,
            recommender.SpotPlacementScoresResponse,
        ),
        _operation(
            "Resources",
            "POST",
            "/providers/Microsoft.ResourceGraph/resources",
            graph.QueryRequest,
            graph.QueryResponse,
        ),
    )


def find(method: str, path: str) -> tuple[Operation, dict[str, str]] | None:
    """The call with its path parameters, or None."""
    for operation in operations():
        match = operation.pattern.fullmatch(path) if operation.method == method else None
        if match:
            return operation, match.groupdict()
    return None


def reply_problems(operation: Operation, document: Any) -> list[str]:
    """What is wrong with a reply, each with its path; empty when it is right."""
    if not operation.paged:
        return problems(operation.response, document)
    if not isinstance(document, dict) or not set(document) <= {"value", "nextLink"}:
        return [f"{operation.id}: expected value and nextLink"]
    entries = document.get("value", [])
    return [problem for entry in entries for problem in problems(operation.response, entry)]


def problems(model: type, document: Any) -> list[str]:
    """What is wrong with a document, each with its path; empty when it is right."""
    return list(_model(model, document, model.__name__))


def _operation(
    name: str, method: str, path: str, request: type | None, response: type, paged: bool = False
) -> Operation:
    return Operation(name, method, re.compile(path), request, response, paged)


def _model(model: type, value: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: expected an object"
        return
    known = _fields(model)
    for key, item in value.items():
        if key not in known:
            yield f"{where}.{key}: unknown name"
        else:
            yield from _check(known[key], item, f"{where}.{key}")
    for key, kind in known.items():
        if key not in value and not _takes_none(kind):
            yield f"{where}.{key}: missing"


def _check(kind: Any, value: Any, where: str) -> Iterator[str]:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return
    if origin in (Union, types.UnionType):
        tries = [list(_check(one, value, where)) for one in inner]
        if all(tries):
            yield from tries[0]
    elif origin is list:
        if not isinstance(value, list):
            yield f"{where}: expected a list"
            return
        for index, item in enumerate(value):
            yield from _check(inner[0], item, f"{where}[{index}]")
    elif origin is dict:
        if not isinstance(value, dict):
            yield f"{where}: expected an object"
            return
        for key, item in value.items():
            yield from _check(inner[1], item, f"{where}.{key}")
    elif isinstance(kind, type) and _is_model(kind):
        yield from _model(kind, value, where)
    elif not _scalar_fits(kind, value):
        yield f"{where}: {value!r} is no {getattr(kind, '__name__', kind)}"


def _scalar_fits(kind: Any, value: Any) -> bool:
    if get_origin(kind) is typing.Literal:
        return value in get_args(kind)
    if kind is bool or kind is type(None):
        return isinstance(value, kind)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is datetime:
        try:
            return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
        except ValueError:
            return False
    if isinstance(kind, type) and issubclass(kind, Enum):
        return value in {member.value for member in kind}
    return isinstance(value, str) if kind is str else False


def _is_model(kind: type) -> bool:
    return any(base.__name__ == "Model" for base in kind.__mro__)


def _takes_none(kind: Any) -> bool:
    return kind is Any or type(None) in get_args(kind)


@cache
def _fields(model: type) -> Mapping[str, Any]:
    """REST name -> what it takes, of either form of model."""
    module = sys.modules[model.__module__]
    package = sys.modules[module.__package__ or ""]
    if hasattr(model, "_attribute_map"):
        required = {name for name, rule in getattr(model, "_validation", {}).items() if rule.get("required")}
        found = {}
        for name, entry in model._attribute_map.items():
            kind = _written(entry["type"], package)
            found[entry["key"]] = kind if name in required else typing.Optional[kind]  # noqa: UP045
        return found
    model()  # the newer form resolves its fields when it is made for the first time
    hints = get_type_hints(model, {**vars(module), "_models": package})
    fields: Mapping[str, Any] = vars(model)["_attr_to_rest_field"]
    return {field._rest_name: hints[name] for name, field in fields.items()}


def _written(text: str, package: Any) -> Any:
    """A type as the older form writes it: ``[str]``, ``{int}``, ``object``, the name of a model."""
    if text[0] == "[":
        return list[_written(text[1:-1], package)]  # type: ignore[misc]
    if text[0] == "{":
        return dict[str, _written(text[1:-1], package)]  # type: ignore[misc]
    simple = {"str": str, "int": int, "float": float, "bool": bool, "object": Any, "iso-8601": datetime}
    return simple[text] if text in simple else getattr(package, text)
