"""`broker serve`: the daemon."""

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="broker.toml; default $BROKER_CONFIG, ./broker.toml, /etc/broker/broker.toml."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(serve)


def serve(config: ConfigOption = None) -> None:
    """Run the daemon in the foreground, until SIGTERM."""
    from broker.daemon import run
    from broker.log import configure
    from broker.settings import Settings

    settings = Settings.load(config)
    configure(settings.log.level, settings.log.format)
    raise typer.Exit(run(settings))
