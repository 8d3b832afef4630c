"""Options of a cloud, as `[clouds.NAME]` has them, into a strict model; every mistake names its key."""

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from broker.core.errors import SettingsError
from broker.core.tariff import EgressPrices
from broker.core.wrong_value import of_one_value, words


def _existing(file: Path) -> Path:
    try:
        is_file = file.is_file()
    except (OSError, ValueError):  # a name that no file can have
        is_file = False
    if not is_file:
        raise ValueError(f"there is no file {file}")
    return file


ExistingFile = Annotated[Path, AfterValidator(_existing)]


def _keeps_secrets(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("https", "http"):
        raise ValueError(f"{url!r} is no URL")
    if parts.scheme == "http" and host not in ("127.0.0.1", "::1", "localhost"):
        raise ValueError("must be https: every request carries a secret")
    return url.rstrip("/")


# Where a key or token is sent as it is: in clear at most to this host.
SecretUrl = Annotated[str, AfterValidator(_keeps_secrets)]


@dataclass(frozen=True)
class Outline:
    """What options and environment tell of a cloud before anybody is called.

    Attributes:
        launches: Nodes are rented there; else prices are read and nothing more.
        missing: What the daemon will lack, a sentence each; as this process' environment has it.
    """

    launches: bool
    missing: tuple[str, ...] = ()


def unset(*names: str) -> tuple[str, ...]:
    """Of these environment variables those that are not set, as `Outline.missing` has them."""
    return tuple(
        f"{name} is not set in this environment; the daemon needs it"
        for name in names
        if not os.environ.get(name, "").strip()
    )


_EGRESS = tuple(price.name for price in fields(EgressPrices))


class Options(BaseModel):
    """Base of every cloud's options: frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def unless_given(self, prices: EgressPrices) -> EgressPrices:
        """List prices of some regions, without those that an option sets: a contract's price holds everywhere."""
        given = {price for price in _EGRESS if f"egress_{price}_usd_gib" in self.model_fields_set}
        return replace(prices, **dict.fromkeys(given))


M = TypeVar("M", bound=Options)


def parse_options(kind: type[M], cloud: str, options: Mapping[str, Any]) -> M:
    """Check `options` against a cloud's model.

    Raises:
        SettingsError: a key is unknown, missing or of the wrong kind, or names a file that is not there; the text
            names it and, where one comes close, the key that was probably meant.
    """
    try:
        return kind.model_validate(dict(options))
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
        # A misspelt key is also a missing one; the misspelling is what the person can see.
        mistakes.sort(key=lambda found: found["type"] != "extra_forbidden")
        loc, same = of_one_value(mistakes)
        path = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in ("clouds", cloud, *loc)
        )[1:]
        if same[0]["type"] == "extra_forbidden":
            raise SettingsError(f"{path}: unknown key", hint=_suggestion(kind, loc)) from error
        message, near = words(same, table="a table")
        raise SettingsError(f"{path}: {message}", hint=near or _description(kind, loc)) from error


def refuse_half(parsed: Options, cloud: str, needed: str, launches: Sequence[str]) -> None:
    """A cloud without the option that every launch needs is one whose prices are read; then none of the others may be set.

    Args:
        needed: The option; None when it is not set.
        launches: Options that are of use for launches alone.

    Raises:
        SettingsError: one of them is set; the text names it and the one that is missing.
    """
    given = [key for key in launches if key in parsed.model_fields_set]
    if getattr(parsed, needed) is None and given:
        raise SettingsError(
            f"clouds.{cloud}.{needed}: missing, and {given[0]} is of use for launches alone",
            hint=f"{type(parsed).model_fields[needed].description}; to read prices only, leave both out",
        )


def _suggestion(kind: type[Options], loc: tuple[int | str, ...]) -> str:
    known = sorted(kind.model_fields)
    close = difflib.get_close_matches(str(loc[-1]), known, n=1)
    return f"did you mean {close[0]}?" if close else f"known keys: {', '.join(known)}"


def _description(kind: type[Options], loc: tuple[int | str, ...]) -> str | None:
    field = kind.model_fields.get(str(loc[0])) if loc else None
    return field.description if field else None
