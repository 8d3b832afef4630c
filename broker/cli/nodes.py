"""`broker nodes`: what is rented."""

from typing import Annotated

import typer

from broker.cli.output import AsJson, ago, say, show_json, show_table


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(nodes)


def nodes(
    all_nodes: Annotated[bool, typer.Option("--all", "-a", help="Also those that are gone.")] = False,
    unowned: Annotated[
        bool,
        typer.Option(
            "--unowned",
            help="Machines with our tag that no row wants, as of the last search, and when that was. Exit 7 when a cloud "
            "could not be searched.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Machines that we rent, with their job and the agent's last call."""
    from broker.cli.client import Client

    if unowned:
        _unowned(as_json)
        return
    with Client() as daemon:
        answer = daemon.get("/nodes", all=str(all_nodes).lower())
    if as_json:
        show_json(answer)
        return
    show_table(
        ("NODE", "JOB", "PLACE", "STATE", "PHASE", "SEEN", "AGE", "REASON"),
        (
            (
                item["token"],
                item["job_id"],
                f"{item['cloud']}/{item['zone']}",
                item["state"],
                item["phase"],
                ago(item["seen_at_ms"], answer["at_ms"]),
                ago(item["created_at_ms"], answer["at_ms"]),
                item["reason"],
            )
            for item in answer["items"]
        ),
        empty="no nodes",
    )


def _unowned(as_json: bool) -> None:
    """Without asking a cloud: what the daemon's last search has found. `broker audit` asks."""
    from broker.cli.audit import refuse_unknown, show_audit
    from broker.cli.client import Client

    with Client() as daemon:
        found = daemon.get("/nodes/unowned")
    if as_json:
        show_json(found)
    else:
        show_audit(found)
        if not found["asked"]:
            say("no cloud is configured: nothing has been searched")
    refuse_unknown(found)
