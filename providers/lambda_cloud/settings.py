"""Options of `[clouds.lambda]`."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from providers.options import ExistingFile, Options, Outline, SecretUrl, parse_options, unset

API = "https://cloud.lambda.ai/api/v1"

Region = Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]


class LambdaOptions(Options):
    """What it takes to read the list of instance types. The API key is never written here."""

    regions: tuple[Region, ...] | None = Field(
        default=None, min_length=1, description='regions to price: ["us-east-1"]; default: all that are known'
    )
    api_key_env: str = Field(
        default="LAMBDA_API_KEY", min_length=1, description="environment variable that holds the API key"
    )
    ca_file: ExistingFile | None = Field(default=None, description="CA bundle for the endpoint")
    endpoint: SecretUrl = Field(default=API, description="URL instead of the vendor's API, with its version")
    timeout_s: float = Field(default=30.0, gt=0, le=300, description="of one call, real time")


def parse(options: Mapping[str, Any]) -> LambdaOptions:
    """Strictly.

    Raises:
        SettingsError: an option is wrong; the text names the key.
    """
    return parse_options(LambdaOptions, "lambda", options)


def outline(options: Mapping[str, Any]) -> Outline:
    """Prices only, and none without a key."""
    return Outline(launches=False, missing=unset(parse(options).api_key_env))


def vendor_endpoints(options: Mapping[str, Any]) -> list[str]:
    """The endpoint, when it is Lambda's own: the default, or another one of theirs."""
    endpoint = parse(options).endpoint
    host = urlsplit(endpoint).hostname or ""
    return [endpoint] if f".{host}".endswith((".lambda.ai", ".lambdalabs.com")) else []
