"""`broker.toml`, key by key."""

import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from broker.core.time import format_duration
from broker.settings import SEARCHED, CloudSection, Settings
from broker.settings_values import Count

PAGE = "settings.md"

_INTRO = """\
# `broker.toml`

Read from `--config`, else `$BROKER_CONFIG`, else {searched}; without a file, the defaults hold. Every key may also
come from the environment, which wins: `listen` of `[server]` is `BROKER_SERVER__LISTEN`. Unknown keys, sections and
variables are refused with their place and a suggestion. Durations are strings (`90s`, `10m`, `2h`) on the daemon's
clock; money is dollars. A relative path starts at the file's folder. The file is read once, at the start.

No secret belongs into this file: keys of clouds come from each vendor's own chain (environment, files, roles), keys of
the checkpoint store from the variables that `access_key_env` and `secret_key_env` name.
"""


def render() -> str:
    """The page."""
    parts = [_INTRO.format(searched=", else ".join(f"`{path}`" for path in SEARCHED))]
    for name, field in Settings.model_fields.items():
        if name == "clouds":
            parts += _section("clouds.NAME", CloudSection)
        else:
            assert isinstance(field.annotation, type)
            parts += _section(name, field.annotation)
    return "\n".join(parts)


def _section(name: str, section: type[BaseModel]) -> Iterator[str]:
    yield f"## `[{name}]`\n"
    yield f"{section.__doc__}\n"
    yield "| key | value | default | meaning |"
    yield "|---|---|---|---|"
    for attribute, field in section.model_fields.items():
        if not field.exclude:
            yield f"| `{field.alias or attribute}` | {_kind(attribute, field)} | {_default(attribute, field)} | {field.description} |"
    yield ""


def _kind(attribute: str, field: FieldInfo) -> str:
    if attribute.endswith("_ms"):
        return "RFC 3339"
    if attribute.endswith("_s"):
        return "duration"
    if "usd" in attribute:
        return "dollars"
    kinds = [k for k in (get_args(field.annotation) or (field.annotation,)) if k is not types.NoneType]
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in kinds)
    names: Mapping[Any, str] = {
        str: "text",
        bool: "true or false",
        int: "number",
        float: "number",
        Count: "number",
        Path: "path",
    }
    return names.get(kinds[0], "text")


def _default(attribute: str, field: FieldInfo) -> str:
    value = field.default
    if value is None or value is PydanticUndefined or value == "":
        return ""
    if attribute.endswith("_s"):
        return f"`{format_duration(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
