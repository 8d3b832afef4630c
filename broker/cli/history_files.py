"""`broker market export`, `broker market import`: the history as a file, on the daemon's machine, while it runs or not."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.output import AsJson, say, show_json
from broker.cli.serve import ConfigOption
from broker.core.errors import NotFound, Refused, UsageError
from broker.core.offer import Quote
from broker.core.time import MS, from_iso, parse_duration, to_iso

if TYPE_CHECKING:
    from broker.core.ports import Clock
    from broker.settings import Settings
    from broker.store.past_files import Source

_BATCH = 10_000  # of one transaction: a fraction of a second
# A poll that waits for us gets in between.
_PAUSE_S = 0.05
_SHOWN = 20

ObservedOption = Annotated[
    str,
    typer.Option(
        metavar="auto|file|import",
        help="When a price was known, which is what a back-test may know. `auto`: as the file says, when `broker market "
        "export` wrote it as Parquet; else the moment of the import. `file`: as the file says, on your word.",
    ),
]


def register(group: typer.Typer) -> None:
    """Add the commands to `broker market`."""
    group.command("export")(export)
    group.command("import")(import_)


def export(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Named .parquet or .csv; replaced when it exists.")
    ],
    since: Annotated[
        str | None, typer.Option(help="A duration back (30d), or a moment (2026-11-01T00:00:00Z).")
    ] = None,
    cloud: Annotated[str | None, typer.Option(help="Only this cloud.")] = None,
    config: ConfigOption = None,
    as_json: AsJson = False,
) -> None:
    """Write every change of price into FILE, and of each offer the one that held when it begins.

    What the clouds said, without your overlay. Parquet needs the extra `parquet` (pyarrow); CSV needs nothing. The columns:
    docs/how-to/read-the-market.md.
    """
    from broker.store.past import PastStore
    from broker.store.past_files import write

    settings, clock = _settings(config)
    now_ms = clock.now_ms()
    path = settings.state_dir / "history.db"
    if not path.is_file():
        raise NotFound(
            f"no history.db in {settings.state_dir}; name the daemon's configuration with --config"
        )
    since_ms = 0 if since is None else moment(since, now_ms)
    _known_cloud(cloud)
    store = PastStore.open(path)
    try:
        rows = write(file, store.quotes(since_ms, cloud and cloud.lower()), now_ms)
    finally:
        store.close()
    if as_json:
        show_json({"file": str(file), "rows": rows})
    else:
        say(f"changes of price in {file}: {rows}")


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Parquet or CSV with the columns of an export.")
    ],
    observed_at: ObservedOption = "auto",
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Leave wrong rows out; without it one wrong row imports nothing."),
    ] = False,
    rebill: Annotated[
        bool,
        typer.Option(
            "--rebill",
            help="Also prices that change what your nodes have cost; without it they import nothing.",
        ),
    ] = False,
    config: ConfigOption = None,
    as_json: AsJson = False,
) -> None:
    """Take the past into the history. It never becomes a price now, and says nothing against one.

    Every row is looked at before the first is written. Rows that are wrong are told with their number, from 1, and exit is 2.
    Bills are computed from the history: prices from when your nodes ran are told by offer and refused with exit 6.
    Again is no harm: what is known already says nothing new. Ends on Ctrl-C between two batches; what is in is in.
    """
    from broker.market.bands import outside_band
    from broker.settings import CLOUDS
    from broker.store.past import Added, PastStore
    from broker.store.past_bills import billed
    from broker.store.past_files import read
    from broker.store.past_rows import Observed, quote_of

    settings, clock = _settings(config)
    now_ms = clock.now_ms()
    source = read(file)
    observed = _observed(observed_at, source)
    if source.unknown:
        say(f"columns that mean nothing here: {', '.join(source.unknown)}")

    def to_quote(row: Any) -> Quote:
        quote = quote_of(row, now_ms, observed, CLOUDS)
        # Bills are computed from the history: what the market would doubt in a poll gets in by no other door either.
        if outside := outside_band(quote.offer, quote.price_micro_usd_h):
            raise ValueError(outside)
        return quote

    rows, bad = _count_bad(source, to_quote)
    if bad and not skip_bad:
        raise UsageError(
            f"{file}: {bad} of {rows} rows are wrong; nothing is imported", hint="--skip-bad leaves them out"
        )
    settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = PastStore.open(settings.state_dir / "history.db")
    done = Added()
    confirmed = observed is Observed.FILE
    try:
        stretches = billed(settings.state_dir / "state.db", clock)
        rebilled = [
            quote
            for quotes in (_batches(source, to_quote) if stretches else ())
            for quote in store.rebilling(quotes, stretches, confirmed)
        ]
        if rebilled:
            _tell_rebilled(rebilled)
            if not rebill:
                raise Refused(
                    f"{file}: {len(rebilled)} prices would change what nodes of yours have cost; nothing is imported "
                    "(--rebill imports them too)"
                )
        for quotes in _batches(source, to_quote):
            done += store.add(quotes, confirmed)
            time.sleep(_PAUSE_S)
    finally:
        store.close()
    if as_json:
        counted = {
            "rows": rows,
            "wrong": bad,
            "points": done.points,
            "known": done.known,
            "newer": done.newer,
            "rebilled": len(rebilled),
        }
        show_json(counted | {"observed_at": observed.value})
        return
    known = "as the file says" if observed is Observed.FILE else "now"
    say(
        f"changes of price imported: {done.points}; rows that said nothing new: {done.known}; known since: {known}"
    )
    if done.newer:
        say(f"newer than the price that their offer has now, and left out: {done.newer}")
    if bad:
        say(f"wrong rows left out: {bad}")


def _tell_rebilled(quotes: list[Quote]) -> None:
    by_offer: dict[str, list[int]] = {}
    for quote in quotes:
        by_offer.setdefault(quote.offer.key, []).append(quote.effective_at_ms)
    for key, times in sorted(by_offer.items())[:_SHOWN]:
        say(
            f"{key}: nodes of yours ran at {len(times)} of its prices, {to_iso(min(times))} to {to_iso(max(times))}"
        )
    if len(by_offer) > _SHOWN:
        say(f"and {len(by_offer) - _SHOWN} more offers")


def _settings(config: Path | None) -> "tuple[Settings, Clock]":
    from broker.clock import SystemClock
    from broker.settings import Settings

    settings = Settings.load(config)
    return settings, SystemClock(settings.clock.rate, settings.clock.anchor_ms)


def _count_bad(source: "Source", to_quote: Callable[[Any], Quote]) -> tuple[int, int]:
    number = bad = 0
    for batch in source.batches():
        for row in batch:
            number += 1
            try:
                to_quote(row)
            except ValueError as error:
                bad += 1
                if bad <= _SHOWN:
                    say(f"row {number}: {error}")
    if bad > _SHOWN:
        say(f"and {bad - _SHOWN} more")
    return number, bad


def _batches(source: "Source", to_quote: Callable[[Any], Quote]) -> Iterator[list[Quote]]:
    for batch in source.batches():
        quotes = []
        for row in batch:
            try:
                quotes.append(to_quote(row))
            except ValueError:
                continue  # told when they were counted
        for start in range(0, len(quotes), _BATCH):
            yield quotes[start : start + _BATCH]


def _observed(word: str, source: "Source") -> Any:
    from broker.store.past_rows import Observed

    if word == "auto":
        return Observed.FILE if source.ours else Observed.IMPORT
    if word not in tuple(Observed):
        raise UsageError(f"--observed-at: {word!r} is not one of auto, {', '.join(Observed)}")
    return Observed(word)


def moment(text: str, now_ms: int) -> int:
    """The value of ``--since`` in ms: a duration back, or a moment.

    Raises:
        UsageError: it is neither.
    """
    try:
        return max(0, now_ms - parse_duration(text) * MS)
    except ValueError as no_duration:
        try:
            return max(0, from_iso(text))
        except ValueError:
            raise UsageError(f"--since: {no_duration}", hint="or a moment: 2026-11-01T00:00:00Z") from None


def _known_cloud(cloud: str | None) -> None:
    from broker.core.yaml_text import did_you_mean
    from broker.settings import CLOUDS

    if cloud is not None and cloud.lower() not in CLOUDS:
        raise UsageError(f"--cloud: there is no {cloud!r}", hint=did_you_mean(cloud, CLOUDS))
