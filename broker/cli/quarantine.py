"""`broker quarantine`: readings that are kept and not believed."""

from typing import Annotated

import typer

from broker.cli.output import AsJson, ago, rate, say, show_json, show_table
from broker.core.errors import UsageError
from broker.core.time import format_duration

_Offer = Annotated[str, typer.Argument(help="As `broker quarantine list` shows it.")]
_Price = Annotated[
    str | None, typer.Option(help="The reading that you have seen; refused when it is another by now.")
]

_NAMED = 5


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Prices that the market does not believe, and what you say of them.", no_args_is_help=True
    )
    group.command("list")(list_)
    group.command()(confirm)
    group.command()(drop)
    app.add_typer(group, name="quarantine")


def list_(
    cloud: Annotated[str | None, typer.Option(help="Only this cloud.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also readings of GPUs that this release does not know.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What is doubted now, with the reason, oldest first. Readings of GPUs that this release does not know are only counted.

    HOLDS is the price that is used meanwhile. STAYED: for how long the reading has stayed, and how long it takes to be believed;
    `never` when no time proves anything. TIMES: polls in a row that have read it.
    """
    from broker.cli.client import Client

    with Client() as daemon:
        answer = daemon.get("/quarantine", cloud=cloud)
    if as_json:
        show_json(answer)
        return
    unknown = [item for item in answer["items"] if not item["gpu_known"]]
    show_table(
        ("OFFER", "READS", "HOLDS", "FIRST", "LAST", "TIMES", "STAYED", "SOURCE", "REASON"),
        (
            (
                item["key"],
                " ".join((item["price_text"], item["currency"])),
                rate(item["price_micro_usd_h"]),
                ago(item["first_seen_ms"], answer["at_ms"]),
                ago(item["last_seen_ms"], answer["at_ms"]),
                item["times_seen"],
                _stayed(item["held_s"], item["needed_s"]),
                item["source"],
                item["reason"],
            )
            for item in answer["items"]
            if every or item["gpu_known"]
        ),
        empty="" if unknown else "nothing is in quarantine",
    )
    if unknown and not every:
        names = sorted({item["offer"]["gpu"] for item in unknown})
        shown = ", ".join(names[:_NAMED]) + (" and others" if len(names) > _NAMED else "")
        say(f"{len(unknown)} of GPUs not known here ({shown}), which no word makes a price; --all lists them")


def _stayed(held_s: int, needed_s: int | None) -> str:
    return "never" if needed_s is None else f"{format_duration(held_s)} of {format_duration(needed_s)}"


def confirm(offer: _Offer, price: _Price = None, as_json: AsJson = False) -> None:
    """Believe the newest reading of OFFER now, for as long as its cloud says the same. Needs the role operator.

    It is the price from now on, marked `+confirmed` in its source, and the log keeps who said so. What can be no price (zero,
    not in dollars, an unknown GPU) is refused with exit 6.
    """
    from broker.cli.client import Client

    with Client() as daemon:
        done = daemon.call("POST", "/quarantine/confirm", {"offer": _key(offer), "price_text": price})
    if as_json:
        show_json(done)
        return
    before = done["before_micro_usd_h"]
    was = f", was {rate(before)}/h" if before is not None else ""
    say(f"{done['key']} is {rate(done['price_micro_usd_h'])}/h from now on{was}")


def drop(offer: _Offer, price: _Price = None, as_json: AsJson = False) -> None:
    """Forget the newest reading of OFFER. The next poll that reads it again doubts it again, as if for the first time. Needs
    the role operator.
    """
    from broker.cli.client import Client

    with Client() as daemon:
        done = daemon.call("POST", "/quarantine/drop", {"offer": _key(offer), "price_text": price})
    if as_json:
        show_json(done)
        return
    say(f"{done['key']}: {done['price_text']} is forgotten; the next poll that reads it doubts it again")


def _key(offer: str) -> str:
    if offer.count("/") != 3:
        raise UsageError(f"{offer!r} is no offer", hint="it looks like aws/use1-az6/p5.48xlarge/spot")
    return offer
