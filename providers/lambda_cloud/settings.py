"""Options of `[clouds.lambda]`."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from providers.options import ExistingFile, Options, parse_options

API = "https://cloud.lambda.ai/api/v1"

Region = Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class LambdaOptions(Options):
    """What it takes to read the list of instance types. The API key is never written here."""

    regions: tuple[Region, ...] | None = Field(
        default=None, min_length=1, description='regions to price: ["us-east-1"]; default: all that are known'
    )
    api_key_env: str = Field(
        default="LAMBDA_API_KEY", min_length=1, description="environment variable that holds the API key"
    )
    ca_file: ExistingFile | None = Field(default=None, description="CA bundle for the endpoint")
    endpoint: str = Field(default=API, description="URL instead of the vendor's API, with its version")
    timeout_s: float = Field(default=30.0, gt=0, le=300, description="of one call, real time")

    @field_validator("endpoint")
    @classmethod
    def _keeps_the_key_secret(cls, value: str) -> str:
        try:
            url = urlsplit(value)
            host = url.hostname
        except ValueError:
            host = None
        if host is None or url.scheme not in ("https", "http"):
            raise ValueError(f"{value!r} is no URL such as {API}")
        if url.scheme == "http" and host not in _LOOPBACK:
            raise ValueError("must be https: every request carries the API key")
        return value.rstrip("/")


def parse(options: Mapping[str, Any]) -> LambdaOptions:
    """Strictly.

    Raises:
        SettingsError: an option is wrong; the text names the key.
    """
    return parse_options(LambdaOptions, "lambda", options)


def vendor_endpoints(options: Mapping[str, Any]) -> list[str]:
    """The endpoint, when it is Lambda's own: the default, or another one of theirs."""
    endpoint = parse(options).endpoint
    host = urlsplit(endpoint).hostname or ""
    return [endpoint] if f".{host}".endswith((".lambda.ai", ".lambdalabs.com")) else []
