"""`broker backup`: a copy of the state folder, while the daemon runs."""

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.output import say, show_table
from broker.cli.serve import ConfigOption
from broker.core.size import format_size


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(backup)


def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that does not exist yet.")],
    config: ConfigOption = None,
) -> None:
    """Copy the state folder to DIR, on the daemon's machine, while it runs or not.

    Databases, certificates, the operator's token, jobs' sources; not logs, and not broker.toml and the policies. The
    copy starts with report-only latched: docs/how-to/backup.md.
    """
    from broker.clock import SystemClock
    from broker.settings import Settings
    from broker.store.backup import back_up

    settings = Settings.load(config)
    clock = SystemClock(settings.clock.rate, settings.clock.anchor_ms)
    copied = back_up(settings.state_dir, folder.expanduser().absolute(), clock)
    show_table(("PART", "SIZE"), ((name, format_size(size)) for name, size in copied))
    say(f"backed up {settings.state_dir} to {folder}; it holds keys: keep it as you keep those")
