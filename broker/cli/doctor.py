"""`broker doctor`: what is not well, and what to do about it."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from broker.cli.output import AsJson, ago, say, show_json, show_table
from broker.cli.serve import ConfigOption
from broker.core.errors import SettingsError

if TYPE_CHECKING:
    from broker.settings import Settings
    from providers.options import Outline

# Real seconds. The daemon asks clouds and store at once, and waits for none longer than half a minute.
_DAEMON_S = 10.0
_CHECKS_S = 45.0

# Where a person who has installed the package finds it, too.
OPERATE_PAGE = "https://github.com/gpu-capacity-broker/gpu-capacity-broker/blob/main/docs/how-to/operate.md"

Finding = tuple[str, str, bool | None, str]

_MARK = {True: "ok", False: "FAIL", None: "?"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    offline: bool = typer.Option(False, "--offline", help="Only what can be seen without a running daemon."),
    config: ConfigOption = None,
    as_json: AsJson = False,
) -> None:
    """Check configuration, state folder, policies; and, through the daemon, clouds and the checkpoint store.

    Exit 1 when a check fails.
    """
    findings = list(_offline(config)) if offline else list(_online())
    if as_json:
        keys = ("subject", "name", "ok", "detail")
        show_json({"items": [dict(zip(keys, finding, strict=True)) for finding in findings]})
    else:
        show_table(
            ("", "SUBJECT", "CHECK", "FINDING"),
            ((_MARK[ok], s, name, detail) for s, name, ok, detail in _first_of_each_reason(findings)),
        )
    failed = sum(ok is False for _, _, ok, _ in findings)
    say(f"{len(findings)} checks, {failed} failed")
    if failed:
        raise typer.Exit(1)


def _first_of_each_reason(findings: Sequence[Finding]) -> Iterator[Finding]:
    """One broken credential fails every check of its cloud: the first says why, and one line names the others."""
    alike: dict[tuple[str, str], list[str]] = {}
    for subject, name, ok, detail in findings:
        if ok is False:
            alike.setdefault((subject, _reason(subject, detail)), []).append(name)
    for subject, name, ok, detail in findings:
        names = alike.get((subject, _reason(subject, detail)), []) if ok is False else []
        if name not in names[1:]:
            yield subject, name, ok, detail
        elif name == names[1]:
            others = ", ".join(other.removeprefix(f"{subject}: ") for other in names[1:])
            yield subject, f"and {len(names) - 1} more", False, f"for the same reason: {others}"


def _reason(subject: str, detail: str) -> str:
    """Without what was being done: ``aws: reading the price list: Unable to locate credentials``."""
    _doing, _, reason = detail.removeprefix(f"{subject}: ").partition(": ")
    return reason if reason and detail.startswith(f"{subject}: ") else detail


def _online() -> Iterator[Finding]:
    from broker.cli.client import Client, DaemonDown

    with Client(timeout_s=_DAEMON_S) as daemon:
        me = daemon.get("/whoami")
        yield (
            "daemon",
            "reachable",
            True,
            f"{daemon.login.url}, release {me['version']}, as {me['name']} ({me['role']})",
        )
        yield "daemon", "installation", True, f"{me['installation_id']}: the tag of every machine of ours"
        yield from _switches(me)
    with Client(timeout_s=_CHECKS_S) as daemon:
        try:
            items = daemon.get("/doctor")["items"]
        except DaemonDown as error:
            yield "daemon", "checks", False, str(error)
            return
        for item in items:
            yield item["subject"], item["name"], item["ok"], item["detail"]


def _switches(me: dict[str, Any]) -> Iterator[Finding]:
    """Both, with who turned them on, when and why."""
    told = {
        switch["name"]: f"{switch['reason'] or 'no reason given'} "
        f"(by {switch['set_by']}, {ago(switch['set_at_ms'], me['at_ms'])} ago)"
        for switch in me["switches"]
    }
    if why := told.get("paused"):
        yield "daemon", "paused", None, f"{why}; `broker resume` ends it"
    else:
        yield "daemon", "paused", True, "no"
    if why := told.get("report_only"):
        what = (
            f"{why}; nothing is created, fenced or ended. What to do: {OPERATE_PAGE}#report-only-is-latched"
        )
        yield "daemon", "report only", False, what


def _offline(config: Path | None) -> Iterator[Finding]:
    from broker.serve.checks import NO_CLOUD
    from broker.settings import Settings
    from providers.options import Outline

    try:
        settings = Settings.load(config)
    except SettingsError as error:
        yield "config", "broker.toml", False, str(error)
        return
    yield _file(config)
    yield from _state(settings)
    outlines = _outlines(settings)
    # Of a cloud that cannot be read nobody knows what it is for.
    away = [name for name, told in outlines.items() if isinstance(told, Outline) and told.launches]
    away = [name for name in away if name != "local"]
    yield from _address(settings, away)
    yield from _policies(settings)
    yield from _store(settings, away)
    for name, outline in outlines.items():
        yield from _cloud(name, outline)
    if not outlines:
        yield "clouds", "enabled", False, NO_CLOUD
    yield from _overlay(settings)


def _file(config: Path | None) -> Finding:
    from broker.settings import SEARCHED, find_file

    file = find_file(config)
    if file is None:
        places = ", ".join(str(place.absolute()) for place in SEARCHED)
        return "config", "broker.toml", None, f"no broker.toml found, defaults; looked in {places}"
    return "config", "broker.toml", True, f"read {file.absolute()}"


def _overlay(settings: "Settings") -> Iterator[Finding]:
    from broker.market.overlay_file import OverlayFile

    file = settings.market.overlay
    if file is None:
        return
    try:
        entries = OverlayFile(file).overlay.dated
    except SettingsError as error:
        yield "market", "overlay", False, str(error)
        return
    yield "market", "overlay", True, f"{file}, {len(entries)} {'entry' if len(entries) == 1 else 'entries'}"


def _outlines(settings: "Settings") -> "dict[str, Outline | SettingsError]":
    """Each cloud's options, read as the daemon reads them; nobody is called."""
    from providers.registry import outline

    told: dict[str, Outline | SettingsError] = {}
    for name, section in settings.open_clouds.items():
        try:
            told[name] = outline(name, section.options)
        except SettingsError as error:
            told[name] = error
    return told


def _cloud(name: str, told: "Outline | SettingsError") -> Iterator[Finding]:
    if isinstance(told, SettingsError):
        yield "clouds", name, False, str(told)
        return
    for missing in told.missing:
        yield "clouds", name, False, missing
    if not told.missing:
        only = "" if told.launches else "; prices only, nothing is launched there"
        yield "clouds", name, True, f"options are complete, credentials not tried{only}"


def _state(settings: "Settings") -> Iterator[Finding]:
    from broker.store.installation import installation_of

    folder = settings.state_dir
    probe = folder if folder.exists() else next(parent for parent in folder.parents if parent.exists())
    writable = os.access(probe, os.W_OK)
    detail = str(folder) if writable else f"{folder} cannot be written by uid {os.getuid()}"
    yield "state", "folder", writable, detail
    ours = installation_of(folder / "state.db")
    yield (
        "state",
        "installation",
        None if ours is None else True,
        "none yet: `broker serve` makes it when it starts for the first time"
        if ours is None
        else f"{ours}: the tag of every machine of ours",
    )


def _address(settings: "Settings", away: Sequence[str]) -> Iterator[Finding]:
    from urllib.parse import urlsplit

    host = urlsplit(settings.server.url).hostname or ""
    loopback = host in ("localhost", "::1") or host.startswith("127.")
    if loopback and away:
        yield (
            "server",
            "public_url",
            None,
            f"{settings.server.url} is this machine only: nodes of {', '.join(away)} cannot call it unless they "
            "run here; set public_url in [server]",
        )
    else:
        yield "server", "public_url", True, settings.server.url


def _policies(settings: "Settings") -> Iterator[Finding]:
    from broker.policy.load import PolicySet

    folder = settings.policies.dir
    policies = PolicySet(folder)
    for error in policies.errors:
        yield "policies", "files", False, str(error)
    if not policies.errors:
        names = ", ".join(policies.policies)
        yield "policies", "files", bool(names), names or f"{folder} has none"


def _store(settings: "Settings", away: Sequence[str]) -> Iterator[Finding]:
    store = settings.store
    if store.kind == "folder":
        detail = f"folder {settings.store_dir}: only nodes on this machine reach it"
        yield "store", "kind", None if away else True, detail
        return
    yield "store", "kind", True, f"s3 bucket {store.bucket}"
    if store.mint == "sts" and not store.role_arn:
        yield (
            "store",
            "role_arn",
            False,
            "mint is sts, but role_arn is empty; name a role that may use the bucket",
        )
    for variable in (store.access_key_env, store.secret_key_env):
        known = bool(os.environ.get(variable))
        yield "store", variable, known, "set" if known else "not set in this environment; the daemon needs it"
