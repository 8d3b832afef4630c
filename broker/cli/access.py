"""`broker login`, `broker token create|list|revoke`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.output import AsJson, ago, say, show_json, show_table
from broker.cli.serve import ConfigOption
from broker.core.errors import AuthError, NotFound, UsageError

if TYPE_CHECKING:
    from broker.cli.client import Client
    from broker.settings import Settings

tokens = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(login)
    app.add_typer(tokens, name="token", help="Make, list and revoke access tokens.")


def login(
    url: Annotated[
        str | None, typer.Argument(help="https://broker.example:8700; default: this machine's daemon.")
    ] = None,
    token: Annotated[str | None, typer.Option(help="Asked for when not given; `-` reads stdin.")] = None,
    ca: Annotated[
        Path | None, typer.Option(help="CA of the daemon (PEM), when it is not a public one.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Keep URL and token for the other commands, after trying them out.

    Without URL: the daemon that runs on this machine with this configuration, as its first operator.
    """
    from broker.cli.client import Client
    from broker.cli.login import Login, save_login

    if url is None:
        chosen = _local_login(config, token)
    else:
        if not url.startswith("https://"):
            raise UsageError(
                f"{url} does not start with https://", hint=f"did you mean https://{url.split('//')[-1]}?"
            )
        chosen = Login(url.rstrip("/"), _ask(token), ca)
    with Client(chosen) as daemon:
        me = daemon.get("/whoami")
    file = save_login(chosen.url, chosen.token, chosen.ca.read_text() if chosen.ca else "")
    say(
        f"logged in to {chosen.url} as {me['name']} ({me['role']}, project {me['project_id']}); kept in {file}"
    )


def _ask(token: str | None) -> str:
    if token == "-":
        return typer.get_text_stream("stdin").readline().strip()
    return token or str(typer.prompt("Token", hide_input=True, err=True)).strip()


def _local_login(config: Path | None, token: str | None) -> Any:
    from broker.cli.login import Login
    from broker.serve.local import find_daemon, read_operator_token
    from broker.settings import Settings

    settings = Settings.load(config)
    daemon = find_daemon(settings.state_dir)
    if daemon is None:
        raise NotFound(
            f"no daemon runs with the state folder {settings.state_dir}; start it (`broker serve`), or give its URL"
        )
    known = token or read_operator_token(settings.state_dir)
    if known is None:
        raise AuthError(
            f"cannot read {settings.state_dir}/operator.token; give --token, or run as the daemon's user"
        )
    return Login(daemon.url, known, Path(daemon.ca) if daemon.ca else None)


@tokens.command("create")
def create(
    role: Annotated[str, typer.Option(help="viewer, engineer, author or operator.")],
    name: Annotated[
        str | None, typer.Option(help="Whose it is; becomes `created_by` of what it makes.")
    ] = None,
    project: Annotated[str, typer.Option(help="Where its jobs live; made when it is new.")] = "default",
    config: ConfigOption = None,
    as_json: AsJson = False,
) -> None:
    """Print a new token, once. Works with the daemon running or not."""
    from broker.serve.auth import role_named

    wanted = {"role": str(role_named(role)), "name": name, "project_id": project}
    daemon = _daemon(config)
    if daemon is not None:
        with daemon:
            made = daemon.call("POST", "/tokens", wanted)
    else:
        made = _create_offline(config, wanted)
    if as_json:
        show_json(made)
        return
    print(made["token"])
    about = made["about"]
    say(
        f"{about['name']}: {about['role']} in project {about['project_id']}; keep the token, it is not shown again"
    )


@tokens.command("list")
def list_tokens(config: ConfigOption = None, as_json: AsJson = False) -> None:
    """All tokens, without their secrets."""
    with _running(config) as daemon:
        answer = daemon.get("/tokens")
    if as_json:
        show_json(answer)
        return
    show_table(
        ("NAME", "ROLE", "PROJECT", "BY", "AGE", "LAST USED", "STATE"),
        (
            (
                item["name"],
                item["role"],
                item["project_id"],
                item["created_by"],
                ago(item["created_at_ms"], answer["at_ms"]),
                ago(item["last_used_at_ms"], answer["at_ms"]),
                "revoked" if item["revoked_at_ms"] else "valid",
            )
            for item in answer["items"]
        ),
    )


@tokens.command("revoke")
def revoke(name: Annotated[str, typer.Argument()], config: ConfigOption = None) -> None:
    """End a token at once."""
    from urllib.parse import quote

    with _running(config) as daemon:
        daemon.call("DELETE", f"/tokens/{quote(name, safe='')}")
    say(f"{name} is revoked")


def _daemon(config: Path | None) -> "Client | None":
    """The daemon to ask: this machine's as its first operator, else the one we are logged in to; None: there is none."""
    from broker.cli.client import Client
    from broker.cli.login import Login, load_login
    from broker.serve.local import find_daemon, read_operator_token
    from broker.settings import Settings

    settings = Settings.load(config)
    local = find_daemon(settings.state_dir)
    if local is not None and (token := read_operator_token(settings.state_dir)) is not None:
        return Client(Login(local.url, token, Path(local.ca) if local.ca else None))
    if config is not None or (settings.state_dir / "state.db").exists():
        return None
    try:
        return Client(load_login())
    except AuthError:
        return None


def _running(config: Path | None) -> "Client":
    daemon = _daemon(config)
    if daemon is None:
        raise NotFound(
            "no daemon runs here; start it (`broker serve`), or log in to one (`broker login URL`)"
        )
    return daemon


def _create_offline(config: Path | None, wanted: dict[str, str | None]) -> dict[str, Any]:
    """Write the token into the state database ourselves; its lock keeps a daemon that starts meanwhile out."""
    from broker.clock import SystemClock, SystemIds
    from broker.log import configure
    from broker.settings import Settings

    configure("warning")
    settings = Settings.load(config)
    return _add_token(
        settings, SystemClock(settings.clock.rate, settings.clock.anchor_ms), SystemIds(), wanted
    )


def _add_token(settings: "Settings", clock: Any, ids: Any, wanted: dict[str, str | None]) -> dict[str, Any]:
    import getpass

    from broker.core.plain import to_plain
    from broker.serve.auth import make_token
    from broker.serve.views import token_view
    from broker.store.state import StateStore

    store = StateStore.open(settings.state_dir / "state.db", clock, ids)
    try:
        with store.write() as tx:
            secret, row = make_token(
                tx, ids, str(wanted["role"]), wanted["name"], str(wanted["project_id"]), getpass.getuser()
            )
    finally:
        store.close()
    return {"token": secret, "about": to_plain(token_view(row))}
