"""The daemon's configuration: `broker.toml`, overridden by the environment, frozen once read.

Which file: ``--config``, else ``$BROKER_CONFIG``, else ``./broker.toml``, else ``/etc/broker/broker.toml``, else
the defaults below. Environment: ``BROKER_SERVER__LISTEN`` is ``listen`` in ``[server]``. Durations are strings
(``10m``) on *our* clock. A relative path in the file starts at the file's folder, in the environment at the
working directory. Secrets are never written here: the file names the environment variables that hold them.

Mistakes are refused with file, line, column and a suggestion; `broker.settings_errors` words them.
"""

import os
import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from broker.core.errors import SettingsError
from broker.core.time import DAY_S
from broker.settings_errors import Document, explain, refuse_unknown_variables
from broker.settings_values import Address, Count, Dollars, Duration, Factor, Instant, is_url
from broker.textfile import read_text

SEARCHED = (Path("broker.toml"), Path("/etc/broker/broker.toml"))
ENV_PREFIX = "BROKER_"
CLOUDS = ("aws", "gcp", "azure", "lambda", "coreweave", "local")

# Keys that hold a path, so that a relative one can be taken from the file's folder.
_PATHS = (
    ("state", "dir"),
    ("policies", "dir"),
    ("market", "overlay"),
    ("server", "tls_cert"),
    ("server", "tls_key"),
    ("server", "tls_ca"),
    ("store", "path"),
    ("store", "ca_file"),
)


def _without_unit(name: str) -> str:
    """Attributes carry their unit, keys of the file do not: ``beat_s`` is ``beat``."""
    return name.removesuffix("_s").removesuffix("_ms")


class Section(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=_without_unit)


class Server(Section):
    """Where the daemon listens, and what nodes and people call it."""

    listen: Address = Field(default="127.0.0.1:8700", description="Address and port.")
    public_url: str = Field(
        default="", description="What nodes and people dial; default `https://` and `listen`."
    )
    tls_cert: Path | None = Field(
        default=None, description="Certificate chain (PEM). Default: made and renewed by us."
    )
    tls_key: Path | None = Field(default=None, description="Its private key (PEM).")
    tls_ca: Path | None = Field(default=None, description="CA that nodes and the CLI trust (PEM).")

    @property
    def host(self) -> str:
        """Address to bind."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Port to bind; 0 lets the system choose."""
        return int(self.listen.rpartition(":")[2])

    @property
    def url(self) -> str:
        """What nodes and people dial, without a slash at the end."""
        return (self.public_url or f"https://{self.listen}").rstrip("/")


def _default_state_dir() -> Path:
    """systemd's ``$STATE_DIRECTORY`` (its first entry), else the user's state folder."""
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(given) if given else platformdirs.user_state_path("broker")


class State(Section):
    """Databases, logs, sources, certificates."""

    dir: Path = Field(
        default_factory=_default_state_dir,
        description="Default: `$STATE_DIRECTORY`, else the user's state folder.",
    )


class ClockSection(Section):
    """Our clock. Anything but rate 1 is for rehearsals against the lab."""

    rate: Factor = Field(default=1.0, gt=0, le=1000, description="Our seconds per real second.")
    anchor_ms: Instant | None = Field(
        default=None,
        description="RFC 3339 moment when our clock and the world's agree; needed when `rate` is not 1.",
    )


class StoreSection(Section):
    """The checkpoint store. `folder` works on one machine only: nodes elsewhere cannot reach it."""

    kind: Literal["s3", "folder"] = Field(
        default="folder", description="`s3` (any S3 with conditional writes) or `folder`."
    )
    endpoint: str = Field(default="", description="`https://host[:port]`; empty for AWS's own.")
    region: str = Field(default="us-east-1", description="For the signature.")
    bucket: str = Field(default="", description="Bucket; needed for `s3`.")
    prefix: str = Field(default="", description="Key prefix of everything that the broker writes.")
    path: Path | None = Field(
        default=None, description="Folder, for `folder`; default `checkpoints` in the state folder."
    )
    access_key_env: str = Field(default="AWS_ACCESS_KEY_ID", description="Variable that holds the key id.")
    secret_key_env: str = Field(
        default="AWS_SECRET_ACCESS_KEY", description="Variable that holds the secret key."
    )
    ca_file: Path | None = Field(
        default=None, description="CA of the endpoint (PEM), when it is not a public one."
    )
    mint: Literal["static", "sts"] = Field(
        default="static",
        description="`sts`: short-lived keys for one job's prefix; `static`: nodes get the keys themselves.",
    )
    role_arn: str = Field(default="", description="Role to assume, for `sts`.")
    sts_endpoint: str = Field(default="", description="Empty for AWS's own.")


class CloudSection(Section):
    """One cloud. Keys that are not named here are handed to the cloud's provider (its page lists them)."""

    enabled: bool = Field(default=True, description="False keeps the section and rents nothing there.")
    poll_interval_s: Duration = Field(default=300, description="Between two readings of the price list.")
    options: Mapping[str, Any] = Field(default_factory=dict, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _collect_options(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ours = {key: value[key] for key in ("enabled", "poll_interval") if key in value}
        return {**ours, "options": {key: item for key, item in value.items() if key not in ours}}


class MarketSection(Section):
    """What is made of the clouds' prices, and how long they are kept."""

    overlay: Path | None = Field(
        default=None, description="What you pay where it is not the list price; read again when it changes."
    )
    keep_history_s: Duration = Field(
        default=400 * DAY_S, description="Older changes of price go, but what held then and what bills need."
    )


class Policies(Section):
    """Policy files."""

    dir: Path = Field(default=Path("policies"), description="Folder with the policy files.")


class LimitsSection(Section):
    """Caps that bind every policy. Without them nothing bounds the deployment as a whole."""

    max_micro_usd_per_hour: Dollars | None = Field(
        default=None,
        alias="max_usd_per_hour",
        description="All open placements together, in dollars an hour.",
    )
    max_nodes: Count | None = Field(default=None, ge=0, description="Nodes not gone, over all clouds.")
    recoveries_per_hour: Count = Field(
        default=20, ge=0, description="More than this and an operator must look first."
    )


class TimingSection(Section):
    """Intervals, leases, deadlines, and the estimates that decisions start from."""

    beat_s: Duration = Field(default=10, description="Between two calls of an agent.")
    run_lease_s: Duration = Field(
        default=1800, description="A job trains this long without hearing from the daemon."
    )
    dead_man_s: Duration = Field(default=900, description="After the run lease the node ends itself.")
    request_deadline_s: Duration = Field(default=300, description="From the intent to the cloud's yes.")
    boot_deadline_s: Duration = Field(
        default=900, description="From the cloud's yes to the agent's first call."
    )
    probe_deadline_s: Duration = Field(default=600, description="From the first call to the probe's verdict.")
    ready_deadline_s: Duration = Field(
        default=1800, description="A verified node waits this long for its turn."
    )
    drain_deadline_s: Duration = Field(default=600, description="From the order to stop to the last commit.")
    release_deadline_s: Duration = Field(default=900, description="From the delete to the cloud's not-found.")
    unreachable_after_s: Duration = Field(
        default=180, description="Silence of an agent before the cloud is asked."
    )
    empty_pool_for_s: Duration = Field(
        default=900, description="A pool that refused a launch is left alone this long."
    )
    reconcile_interval_s: Duration = Field(default=2, description="Between two passes over all rows.")
    collect_interval_s: Duration = Field(
        default=60, description="Between two searches for machines nobody owns."
    )
    collect_grace_s: Duration = Field(
        default=300, description="A machine younger than this is never collected."
    )
    notice_s: Duration = Field(
        default=120, description="Interruption notice to ask a cloud for, where it lets us."
    )
    boot_estimate_s: Duration = Field(default=240, description="Request to first call, until measured.")
    probe_estimate_s: Duration = Field(default=75, description="First call to verdict, until measured.")
    restore_estimate_s: Duration = Field(
        default=60, description="Stop there to training here, without transfer."
    )


class LogSection(Section):
    """What the daemon writes to stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe that is written."
    )
    format: Literal["auto", "json", "console"] = Field(
        default="auto", description="`auto`: console on a terminal, else JSON."
    )


class Settings(BaseSettings):
    """All of `broker.toml`."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, case_sensitive=False
    )

    server: Server = Field(default_factory=Server)
    state: State = Field(default_factory=State)
    clock: ClockSection = Field(default_factory=ClockSection)
    store: StoreSection = Field(default_factory=StoreSection)
    clouds: Mapping[str, CloudSection] = Field(default_factory=dict)
    market: MarketSection = Field(default_factory=MarketSection)
    policies: Policies = Field(default_factory=Policies)
    limits: LimitsSection = Field(default_factory=LimitsSection)
    timing: TimingSection = Field(default_factory=TimingSection)
    log: LogSection = Field(default_factory=LogSection)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment before the file; the file arrives as keyword arguments."""
        return env_settings, init_settings

    @classmethod
    def load(cls, path: str | Path | None = None) -> "Settings":
        """Read the configuration: `path`, or the first file of the search order, or the defaults.

        Raises:
            SettingsError: no such file, not TOML, or a value or key is wrong.
        """
        file = find_file(path)
        if file is None:
            return cls.parse("", "defaults", Path.cwd())
        text = read_text(file, SettingsError, hint="name a file with --config")
        return cls.parse(text, str(file), file.resolve().parent)

    @classmethod
    def parse(cls, text: str, file: str = "broker.toml", folder: Path | None = None) -> "Settings":
        """The settings in `text`; `file` is for messages, relative paths start at `folder`.

        Raises:
            SettingsError: not TOML, or a value or key is wrong.
        """
        document = Document(file, text)
        try:
            tables = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise document.syntax_error(error) from error
        refuse_unknown_variables(os.environ, ENV_PREFIX, tuple(cls.model_fields))
        try:
            settings = cls(**_absolute(tables, folder or Path.cwd()))
        except ValidationError as error:
            raise explain(error, document, cls, os.environ, ENV_PREFIX) from error
        _check(settings, document)
        return settings

    @cached_property
    def state_dir(self) -> Path:
        """Absolute."""
        return self.state.dir.expanduser().absolute()

    @property
    def source_dir(self) -> Path:
        """Uploaded tarballs, one file a hash."""
        return self.state_dir / "sources"

    @property
    def agent_dir(self) -> Path:
        """Agents of this release and of those before it, one file a hash."""
        return self.state_dir / "agents"

    @property
    def log_dir(self) -> Path:
        """Logs of jobs, one file a node."""
        return self.state_dir / "logs"

    @property
    def store_dir(self) -> Path:
        """Where a `folder` checkpoint store keeps its objects."""
        return (self.store.path or self.state_dir / "checkpoints").expanduser().absolute()

    @property
    def open_clouds(self) -> Mapping[str, CloudSection]:
        """The enabled clouds by name."""
        return {name: cloud for name, cloud in self.clouds.items() if cloud.enabled}


def find_file(path: str | Path | None) -> Path | None:
    """The configuration file that `Settings.load` reads; None when it takes the defaults."""
    named = path or os.environ.get("BROKER_CONFIG")
    if named:
        return Path(named).expanduser()
    return next((candidate for candidate in SEARCHED if candidate.is_file()), None)


def _absolute(tables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The tables with relative paths, the default ones too, taken from `folder`."""
    policies = tables.get("policies", {})
    if isinstance(policies, dict):
        tables["policies"] = {"dir": str(Policies().dir), **policies}
    for section, key in _PATHS:
        value = tables.get(section, {}).get(key) if isinstance(tables.get(section), dict) else None
        if isinstance(value, str) and value:
            tables[section][key] = str(folder / Path(value).expanduser())
    return tables


def _check(settings: Settings, document: Document) -> None:
    """What one key cannot know of another."""
    for name in settings.clouds:
        if name not in CLOUDS:
            raise document.wrong(("clouds", name), f"unknown cloud {name!r}", known=CLOUDS)
    if (settings.server.tls_cert is None) != (settings.server.tls_key is None):
        given = "tls_cert" if settings.server.tls_cert else "tls_key"
        raise document.wrong(
            ("server", given), "tls_cert and tls_key belong together", hint="give both or neither"
        )
    if not settings.server.url.startswith("https://"):
        raise document.wrong(("server", "public_url"), "public_url must start with https://")
    if not is_url(settings.server.url):
        raise document.wrong(
            ("server", "public_url"),
            "public_url is no address",
            hint="write https://host or https://host:port",
        )
    if settings.store.kind == "s3" and not settings.store.bucket:
        raise document.wrong(
            ("store", "kind"), "an s3 store needs a bucket", hint='add bucket = "..." to [store]'
        )
    if settings.clock.rate == 1:
        return
    if settings.clock.anchor_ms is None:
        raise document.wrong(
            ("clock", "rate"), "a rate needs an anchor", hint='add anchor = "2026-11-30T12:00:00Z"'
        )
    for name, cloud in settings.open_clouds.items():
        if own := vendor_endpoints(name, cloud.options):
            raise document.wrong(
                ("clock", "rate"),
                f"clock rate {settings.clock.rate:g} is refused: {name} would be called at {own[0]}, the vendor's own",
                hint="a real cloud bills in real time; remove the rate, or point every cloud at a lab",
            )


def vendor_endpoints(cloud: str, options: Mapping[str, Any]) -> list[str]:
    """The endpoints of a cloud that are the vendor's own.

    Raises:
        SettingsError: no such cloud, or an option is wrong; read as the daemon reads it, and nobody is called.
    """
    # Late: only a rehearsal and `doctor` judge settings by the providers.
    from providers.registry import vendor_endpoints as of_provider

    return list(of_provider(cloud, options))
