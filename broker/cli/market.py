"""`broker market`: how well the clouds are read; the history as a file, out and in."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from broker.cli import history_files
from broker.cli.output import AsJson, ago, show_json, show_table
from broker.core.errors import ProviderError
from broker.core.time import MS, format_duration

# Real seconds: a cloud has two minutes for its whole price list.
_POLL_S = 150.0


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        invoke_without_command=True, help="How well each cloud's prices are read; history out and in."
    )
    group.callback()(feeds)
    group.command()(polls)
    group.command()(poll)
    history_files.register(group)
    app.add_typer(group, name="market")


def feeds(context: typer.Context, as_json: AsJson = False) -> None:
    """How well each cloud's prices are read (as `broker market polls`), and the history as a file, out and in."""
    if context.invoked_subcommand is None:
        polls(as_json)


def polls(as_json: AsJson = False) -> None:
    """One line a cloud: how old its prices are, the last poll, changes and failures of a day, doubts, its past.

    AGE counts from the last whole poll, and PRICES are those that it read; that old are the prices that decisions are made
    on. Where they come from a list with a date, NOTE says which: they are as old as that. LAST POLL says when the next try
    is where one has failed, and `late` where three are overdue. DOUBTED may be decided on; readings of GPUs that this release
    does not know are in NOTE.
    """
    from broker.cli.client import Client

    with Client() as daemon:
        answer = daemon.get("/market/polls")
    if as_json:
        show_json(answer)
        return
    show_table(
        ("CLOUD", "AGE", "PRICES", "CHANGES/D", "LAST POLL", "FAILED/D", "DOUBTED", "PAST", "NOTE"),
        (
            (
                item["cloud"],
                "never" if item["age_s"] is None else format_duration(item["age_s"]),
                item["prices"],
                item["changes_1d"],
                _last(item, answer["at_ms"]),
                f"{item['failed_1d']}/{item['polls_1d']}",
                item["doubted"],
                _past(item, answer["at_ms"]),
                _note(item),
            )
            for item in answer["items"]
        ),
        empty="no cloud is configured, and none was ever read",
    )


def poll(
    cloud: Annotated[str | None, typer.Argument(help="Default: every cloud that is configured.")] = None,
    as_json: AsJson = False,
) -> None:
    """Read the prices of CLOUD now, say after a credential was mended. Needs the role operator; exit 7 when a poll fails.

    It is one poll like any other: a price that is doubted is believed no sooner for it.
    """
    from broker.cli.client import Client

    with Client(timeout_s=_POLL_S) as daemon:
        feeds = [] if cloud else daemon.get("/market/polls")["items"]
        clouds = [cloud] if cloud else [feed["cloud"] for feed in feeds if feed["configured"]]
        done = [daemon.call("POST", f"/market/polls/{quote(name, safe='')}") for name in clouds]
    if as_json:
        show_json({"items": done})
    else:
        show_table(
            ("CLOUD", "PRICES", "CHANGES", "TOOK", "POLL"),
            (
                (
                    item["cloud"],
                    item["prices"],
                    item["changes"],
                    format_duration(item["took_s"]),
                    "ok" if item["ok"] else f"failed: {item['error']}",
                )
                for item in done
            ),
            empty="no cloud is configured",
        )
    if not all(item["ok"] for item in done):
        raise typer.Exit(ProviderError.exit_code)


def _last(item: dict[str, Any], now_ms: int) -> str:
    if item["ok"] is None:
        return "none yet"
    age = ago(item["last_at_ms"], now_ms)
    if item["ok"] and not (item["configured"] and item["late"]):
        return f"ok {age} ago"
    times = f", {item['failed_in_row']} in a row" if item["failed_in_row"] > 1 else ""
    said = f"ok {age} ago" if item["ok"] else f"failed {age} ago{times}"
    if item["late"]:
        said += f", late: due every {format_duration(item['interval_s'])}"
    if item["next_at_ms"] is not None:
        said += f", again in {format_duration(max(0, item['next_at_ms'] - now_ms) / MS)}"
    return said if item["ok"] else f"{said}: {item['error']}"


def _past(item: dict[str, Any], now_ms: int) -> str:
    match item["history"]:
        case "read":
            return f"{item['history_points']} prices read {ago(item['history_at_ms'], now_ms)} ago"
        case "failed":
            return f"failed {ago(item['history_at_ms'], now_ms)} ago: {item['history_error']}"
    return "not asked yet"


def _note(item: dict[str, Any]) -> str:
    if not item["configured"]:
        return "not configured any more"
    notes = ["prices only"] if item["prices_only"] else []
    if item["list_date"]:
        notes.append(f"list of {item['list_date']}")
    if item["unknown_gpus"]:
        notes.append(f"{item['unknown_gpus']} of GPUs not known here")
    return "; ".join(notes)
