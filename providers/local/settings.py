"""Options of `[clouds.local]`."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from broker.core.gpu import GPUS
from providers.options import Options, Outline, parse_options


class LocalOptions(Options):
    """What this host has, and what an hour of it is worth to you."""

    dir: Path = Field(description="folder for the nodes; on a disk with room for their work")
    gpu: str = Field(description="exact GPU SKU of this host, e.g. H100-SXM5-80GB")
    gpus: int = Field(default=1, ge=1, le=64, description="GPUs of one node")
    count: int = Field(default=1, ge=1, le=64, description="nodes that may run at once")
    price_usd_h: Decimal = Field(
        gt=0, description="of one node: depreciation, power, space; an hour is never free"
    )
    instance_type: str = Field(
        default="this-host", pattern=r"^[a-z0-9][a-z0-9.-]*$", description="name of the offer"
    )
    vcpus: int = Field(default=0, ge=0, description="of one node")
    memory_gib: int = Field(default=0, ge=0, description="of one node")
    egress_usd_gib: Decimal = Field(default=Decimal(0), ge=0, description="leaving this host")
    grace_s: float = Field(default=5.0, ge=0, le=60, description="between SIGTERM and SIGKILL, real time")

    @field_validator("gpu")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in GPUS:
            raise ValueError(f"unknown GPU {value!r}; known are {', '.join(GPUS)}")
        return value

    @field_validator("dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        if not value.is_absolute():
            raise ValueError("must be an absolute path")
        return value


def parse(options: Mapping[str, Any]) -> LocalOptions:
    """Strictly.

    Raises:
        SettingsError: an option is wrong; the text names the key.
    """
    return parse_options(LocalOptions, "local", options)


def outline(options: Mapping[str, Any]) -> Outline:
    """Launches, and needs no credentials."""
    parse(options)
    return Outline(launches=True)


def vendor_endpoints(options: Mapping[str, Any]) -> list[str]:
    """None: this host is nobody's but ours."""
    parse(options)
    return []
