"""`broker policy new`: a policy to start from, with a test that passes."""

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.output import say
from broker.core.errors import UsageError


def register(policy: typer.Typer) -> None:
    """Add the command to `broker policy`."""
    policy.command("new")(new)


def new(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and dashes: ride-the-spot.")],
    folder: Annotated[
        Path, typer.Option("--dir", help="Where to write the two files; it is made if need be.")
    ] = Path(),
) -> None:
    """Write NAME.yaml and NAME.test.yaml. Nothing that is there is overwritten."""
    from broker.paper.testing.scaffold import cases_text, policy_text
    from broker.policy.load import mistakes

    texts = {folder / f"{name}.yaml": policy_text(name), folder / f"{name}.test.yaml": cases_text(name)}
    policy = next(iter(texts))
    # The reader of policies knows best what a name may be.
    wrong = mistakes(texts[policy], str(policy))
    if wrong:
        raise UsageError(f"{name!r} is no name for a policy", hint=wrong[0].hint)
    for path in texts:
        if path.exists():
            raise UsageError(f"{path} is there already", hint="choose another name, or another --dir")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        # Made anew or not at all, also when somebody else writes it in this very moment.
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        say(f"{path}")
    say(f"broker policy test {folder}")
