"""`broker simulate`: what a job may cost, and how long it may take, over many markets that could have been."""

import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from broker.cli.history_files import moment
from broker.cli.options import whole
from broker.cli.output import AsJson, rate, say, show_json, show_table
from broker.cli.serve import ConfigOption
from broker.cli.shadow import (
    CheckpointOption,
    PolicyOption,
    SavesOption,
    WorkOption,
    chosen,
    duration,
    plan_words,
)
from broker.core.errors import BrokerError, NotFound
from broker.core.money import MICRO_PER_USD
from broker.core.time import DAY_S, MS, format_duration

if TYPE_CHECKING:
    from broker.paper.simulate import Fate, Forecast, Spread, Study

# Of all runs together; a CPU answers about two thousand of them a second.
_ASKS: Final = 16_000
_MOST_RUNS: Final = 100_000
_CHUNK: Final = 20

# What the processes of one simulation share; a fork hands it over as it is.
_shared: "list[Study]" = []


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(simulate)


def simulate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file.")],
    policy: PolicyOption = None,
    runs: Annotated[
        int,
        typer.Option(
            "--runs", metavar="N", parser=whole("--runs", 1, _MOST_RUNS), help="Markets to run it over."
        ),
    ] = 1000,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", parser=whole("--seed", 0, 2**53), help="The same seed, the same markets."
        ),
    ] = 1,
    since: Annotated[
        str, typer.Option(help="History to draw days from: a duration back (30d), or a moment.")
    ] = "30d",
    work: WorkOption = "24h",
    checkpoint_gib: CheckpointOption = 10,
    saves_on_request: SavesOption = False,
    svg: Annotated[Path | None, typer.Option(help="Draw the costs into this file.")] = None,
    config: ConfigOption = None,
    as_json: AsJson = False,
) -> None:
    """What a job may cost under policies, beside on-demand: runs over days of your history, drawn anew for each.

    Whole days of all offers together are drawn; spot is interrupted by chance, as often as your own nodes were in that pool, or
    every 6h where you have none. Of 100 runs 10 cost no more than P10, 50 no more than P50, 90 no more than P90. Runs on the
    daemon's machine, reads its files and changes nothing.
    """
    from broker.cli.records import opened
    from broker.jobs.spec import load_job
    from broker.paper.shadow import Plan, ways
    from broker.paper.simulate import forecasts, study
    from broker.policy.load import PolicySet

    spec, _ = load_job(file)
    plan = Plan(spec, duration(work, "--work"), round(checkpoint_gib * 2**30), saves_on_request)
    with opened(config) as (settings, records, _):
        policies = chosen(PolicySet(settings.policies.dir), plan, policy or ())
        played = [way for way in ways(policies) if not way.name.endswith(", staying")]
        market = records.market(spec, [way.policy for way in played], moment(since, records.now_ms))
        planned = study(plan, played, market, records.terms, records.now_ms, runs=runs, seed=seed, asks=_ASKS)
    if planned is None:
        raise NotFound("no whole day of prices that this job and policy could take is on record")
    found = forecasts(planned, _all_fates(planned, runs))
    told = [*_words(planned, records.landings), *plan_words(plan)]
    if svg is not None:
        _draw(svg, found)
    if as_json:
        show_json(_plain(found, told, planned, runs))
        return
    _show(found)
    for sentence in told:
        say(f"assumed: {sentence}")


def _all_fates(planned: "Study", runs: int) -> "list[list[Fate]]":
    """Of every run, in their order, whatever the number of processes."""
    count = min(os.cpu_count() or 1, -(-runs // _CHUNK))
    if count < 2:
        return [planned.fates(run) for run in range(runs)]
    _shared[:] = [planned]
    try:
        with multiprocessing.get_context("fork").Pool(count) as pool:
            return pool.map(_fates, range(runs), _CHUNK)
    finally:
        _shared.clear()


def _fates(run: int) -> "list[Fate]":
    return _shared[0].fates(run)


def _words(planned: "Study", landings: int) -> list[str]:
    days, timing = planned.days, planned.terms.timing
    lands = format_duration(timing.boot_s + timing.probe_s + timing.restore_s)
    measured = f"the middle of {landings} of yours" if landings else "as configured"
    return [
        f"each run draws from {days.count} whole days of your history, of all offers together, in steps of "
        f"{format_duration(days.slot_ms / MS)}",
        f"of {len(days.offers)} offers the {planned.cheapest} cheapest of each market and speed are weighed at a time, and where "
        "the job is",
        "every launch gets its nodes; spot is taken back by chance, each pool for itself",
        f"a landing takes {lands} in all ({measured})",
        f"a run is given up after {format_duration((planned.until_ms - planned.from_ms) / MS)}",
        "no other job, no cap, no budget and no metrics of the job are there",
    ]


def _show(found: "Sequence[Forecast]") -> None:
    columns = (
        "POLICY", "$ P10", "$ P50", "$ P90", "HOURS P10", "HOURS P50", "HOURS P90", "LOST P10", "LOST P50", "LOST P90",
        "MOVES", "UNFINISHED", "LATE",
    )  # fmt: skip
    rows = [
        (
            one.name,
            *(rate(round(usd * MICRO_PER_USD)) for usd in _values(one.cost_usd)),
            *((f"{hours:.1f}" for hours in _values(one.hours)) if one.hours else (None,) * 3),
            *(f"{count:.0f}" for count in _values(one.interruptions)),
            f"{one.moves.p50:.0f}",
            f"{one.unfinished * 100:.1f} %" if one.unfinished else None,
            None if one.late is None else f"{one.late * 100:.1f} %",
        )
        for one in found
    ]
    if sys.stdout.isatty():
        from broker.cli.spread_plots import in_terminal

        print(in_terminal([(one.name, one.costs_usd) for one in found]))
    show_table(columns, rows)


def _draw(file: Path, found: "Sequence[Forecast]") -> None:
    from broker.cli.spread_plots import as_svg

    try:
        file.write_text(as_svg([(one.name, one.costs_usd) for one in found]), encoding="utf-8")
    except OSError as error:
        raise BrokerError(f"cannot write {file}: {error.strerror}") from None
    say(f"drawn into {file}")


def _values(spread: "Spread") -> tuple[float, float, float]:
    return spread.p10, spread.p50, spread.p90


def _plain(found: "Sequence[Forecast]", told: Sequence[str], planned: "Study", runs: int) -> dict[str, Any]:
    from broker.core.plain import to_plain

    items = [{key: value for key, value in to_plain(one).items() if key != "costs_usd"} for one in found]
    return {
        "runs": runs,
        "seed": planned.seed,
        "days": planned.days.count,
        "slot_s": planned.days.slot_ms / MS,
        "horizon_days": (planned.until_ms - planned.from_ms) / MS / DAY_S,
        "items": items,
        "assumptions": list(told),
    }
