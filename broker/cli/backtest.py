"""`broker policy backtest`: what a policy would have cost on a market that was measured, beside others and the optimum."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.output import AsJson, show_json, show_table
from broker.core.errors import UsageError
from broker.core.time import HOUR_S, parse_duration

if TYPE_CHECKING:
    from broker.backtest.contest import Contest, Player
    from broker.backtest.grid import Grid, Shock
    from broker.policy.schema import Policy

_USUAL = ("on_demand", "spot_else_on_demand", "eager", "uniform_progress")
_SHOCK = re.compile(r"(?P<factor>\d{1,3}(?:\.\d{1,6})?)@(?P<hour>\d{1,4}(?:\.\d{1,6})?)")
_NO_NUMPY = (
    "a back-test needs numpy: in the checkout, pip install --constraint requirements.lock '.[backtest]'"
)


def register(group: typer.Typer) -> None:
    """Add the command to `broker policy`."""
    group.command()(backtest)


def backtest(
    trace: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder with placements.csv, events.csv.gz, meta.json.")
    ],
    policies: Annotated[list[Path] | None, typer.Argument(help="Policy files.")] = None,
    grid: Annotated[bool, typer.Option("--grid", help="Score by the rules of the benchmark.")] = False,
    baseline: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run this beside; more than once for several.")
    ] = None,
    work: Annotated[str, typer.Option(help="Training that each job needs.")] = "40h",
    deadline: Annotated[str, typer.Option(help="From the start of each job.")] = "60h",
    gang: Annotated[int, typer.Option(min=1, max=10_000, help="Instances that a job needs at once.")] = 1,
    startup: Annotated[str, typer.Option(help="From a launch to training, billed.")] = "13m",
    startup_cross: Annotated[str, typer.Option(help="More than that from another region.")] = "0m",
    checkpoint_gib: Annotated[
        float, typer.Option(min=0, max=1e6, help="What a change of region moves.")
    ] = 50,
    history: Annotated[str, typer.Option(help="Of the trace, before the first job starts.")] = "72h",
    windows: Annotated[int, typer.Option(min=1, max=10_000, help="Jobs, evenly spread over the trace.")] = 20,
    shock: Annotated[
        str | None,
        typer.Option(
            metavar="F@H",
            help="From hour H of each job on, spot in the cheapest region costs F times as much.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PLACEMENT", help="Only this one of the trace; more than once for several."),
    ] = None,
    log: Annotated[Path | None, typer.Option(metavar="FILE", help="Write launches and stops as CSV.")] = None,
    as_json: AsJson = False,
) -> None:
    """What jobs would have cost under policies on a measured market, beside baselines and the optimum of who knows the future.

    Policies are asked as the daemon asks them, at every tick of the trace; here they act, whatever their `mode`. Without
    --baseline the usual ones are run beside: on_demand, spot_else_on_demand, eager, uniform_progress.
    OVER OPTIMUM is the sum of costs over the sum of optima, with the interval in which it lies in 95 of 100 resamples of the
    windows; windows overlap, and neighbours are drawn together. P95 and MAX are of single windows. OVERHEAD is start-ups as a
    share of the work. A job that misses its deadline is finished on on-demand, and counted.
    """
    try:
        from broker.backtest.contest import contest
        from broker.backtest.grid import Grid, Terms
        from broker.backtest.log import write_log
        from broker.backtest.trace import read_trace
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise UsageError(_NO_NUMPY) from None
    if not grid:
        raise UsageError("say --grid: back-tests on other terms are not there yet")
    terms = Terms(
        gang=gang,
        work_s=_duration(work, "--work"),
        deadline_s=_duration(deadline, "--deadline"),
        start_s=_duration(startup, "--startup"),
        cross_s=_duration(startup_cross, "--startup-cross"),
        checkpoint_gib=checkpoint_gib,
        history_s=_duration(history, "--history"),
        windows=windows,
        shock=_shock(shock),
    )
    named = [_policy(path) for path in policies or ()]
    names = list(dict.fromkeys(baseline or _USUAL))
    if log is not None and len(named or names) != 1:
        raise UsageError("a log holds one way to run the jobs", hint="name one policy, or one --baseline")
    market = Grid(read_trace(trace, tuple(only or ())), terms)
    # The log is of the first.
    found = contest(market, _players(named, names, market))
    if log is not None:
        write_log(log, zip(found.windows, found.entries[0].runs, strict=True))
    if as_json:
        show_json(found.plain())
    else:
        _show(found)


def _policy(path: Path) -> "Policy":
    from broker.policy.load import load_policy, read_file

    return load_policy(read_file(path), str(path))


def _players(policies: "list[Policy]", names: list[str], market: "Grid") -> dict[str, "Player"]:
    from broker.backtest.baselines import BASELINES
    from broker.backtest.contest import player
    from broker.backtest.policies import PolicyPlayer

    players: dict[str, Player] = {}
    for policy in policies:
        if policy.name in players or policy.name in names:
            raise UsageError(f"{policy.file}: the name {policy.name} is taken", hint="rename the policy")
        players[policy.name] = PolicyPlayer(policy, market)
    for name in names:
        if name not in BASELINES:
            raise UsageError(f"no baseline {name!r}", hint=f"there are {', '.join(BASELINES)}")
        players[name] = player(BASELINES[name], market)
    return players


def _show(found: "Contest") -> None:
    columns = (
        "POLICY",
        "COST",
        "OVER OPTIMUM",
        "95 %",
        "P95",
        "MAX",
        "MISSES",
        "LAUNCHES",
        "MOVES",
        "ON-DEMAND",
        "OVERHEAD",
        "EGRESS",
        "HOURS",
    )
    optimum = ("optimum", f"${sum(found.optimum_usd):,.2f}", "1.000", *[None] * (len(columns) - 3))
    rows = [
        (
            entry.name,
            f"${one.usd:,.2f}",
            f"{one.ratio:.3f}",
            None if one.interval is None else f"{one.interval[0]:.3f}–{one.interval[1]:.3f}",
            f"{one.p95:.3f}",
            f"{one.max:.3f}",
            f"{one.misses} of {one.windows}",
            f"{one.launches:.1f}",
            f"{one.moves:.1f}",
            f"{one.on_demand * 100:.0f} %",
            f"{one.overhead * 100:.1f} %",
            f"${one.egress_usd:,.2f}",
            f"{one.hours:.1f}",
        )
        for entry in found.entries
        for one in (entry.score,)
    ]
    show_table(columns, [optimum, *rows])


def _duration(text: str, name: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def _shock(text: str | None) -> "Shock | None":
    if text is None:
        return None
    from broker.backtest.grid import Shock

    match = _SHOCK.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--shock: {text!r} is no shock", hint="write 1.9@10: factor, then the hour of each job"
        )
    return Shock(float(match["factor"]), float(match["hour"]) * HOUR_S)
