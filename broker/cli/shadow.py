"""`broker shadow`: a job that is never submitted, as it would stand now under a policy."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.history_files import moment
from broker.cli.output import AsJson, rate, say, show_json, show_table
from broker.cli.serve import ConfigOption
from broker.core.errors import NotFound, UsageError
from broker.core.time import MS, format_duration, parse_duration, to_iso

if TYPE_CHECKING:
    from broker.paper.shadow import Plan, Standing
    from broker.policy.load import PolicySet
    from broker.policy.schema import Policy

# A first poll that comes so soon after the moment that was asked for needs no word.
_SOON_MS = 3600 * MS

PolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="Of the policy folder, or a file; more than once for several. Default: the one that would decide for the job.",
    ),
]
WorkOption = Annotated[
    str,
    typer.Option(metavar="TIME", help="Training that the job needs, on the first GPU that its file names."),
]
CheckpointOption = Annotated[
    float, typer.Option(min=0, max=1e6, metavar="GIB", help="Size of a checkpoint: what a move takes along.")
]
SavesOption = Annotated[
    bool,
    typer.Option(
        "--saves-on-request", help="The job saves when it is asked to stop, so that a notice loses no work."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(shadow)


def shadow(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file.")],
    policy: PolicyOption = None,
    since: Annotated[
        str,
        typer.Option(
            help="When it would have been submitted: a duration back (7d), or a moment (2026-11-01T00:00:00Z)."
        ),
    ] = "7d",
    work: WorkOption = "24h",
    checkpoint_gib: CheckpointOption = 10,
    saves_on_request: SavesOption = False,
    steps: Annotated[
        bool, typer.Option("--steps", help="Also each place and each move, with the policy's words.")
    ] = False,
    config: ConfigOption = None,
    as_json: AsJson = False,
) -> None:
    """Where a job would be now under a policy, and what it would have paid, beside staying put and beside on-demand.

    Nothing is rented and nothing is kept: the job is played over the recorded prices each time you ask, so a moment in
    `--since` follows the same job from day to day. Every cloud whose prices are read takes part, also where nothing can be
    rented. Runs on the daemon's machine, reads its files and changes nothing.
    """
    from broker.cli.records import opened
    from broker.jobs.spec import load_job
    from broker.paper.shadow import Plan, standing, ways
    from broker.policy.load import PolicySet

    spec, _ = load_job(file)
    plan = Plan(spec, duration(work, "--work"), round(checkpoint_gib * 2**30), saves_on_request)
    with opened(config) as (settings, records, _):
        policies = chosen(PolicySet(settings.policies.dir), plan, policy or ())
        played = list(ways(policies))
        all_of = [way.policy for way in played]
        market = records.market(spec, all_of, moment(since, records.now_ms))
        if market.first_ms is None:
            raise NotFound("no price that this job and policy could take is on record")
        from_ms = max(market.from_ms, market.first_ms)
        found = [standing(plan, way, market, records.terms, from_ms, records.now_ms) for way in played]
        told = [*records.assumptions(market.pace_ms, market.assumed_looks), *plan_words(plan)]
        if unrented := sorted(market.clouds - records.clouds.renting):
            told.append(
                f"nodes could be had on {', '.join(unrented)}, where this configuration rents nothing"
            )
    if as_json:
        show_json(_plain(found, told, from_ms, records.now_ms))
        return
    if market.first_ms > market.from_ms + _SOON_MS:
        say(f"from {to_iso(from_ms)}: no such price is known from before")
    _show(found, steps)
    for sentence in told:
        say(f"assumed: {sentence}")


def chosen(folder: "PolicySet", plan: "Plan", names: Sequence[str]) -> "list[Policy]":
    """The policies that were named, by name or by file; the one that would decide for the job when none was."""
    from broker.policy.load import load_policy, read_file

    if not names:
        return [folder.select(plan.spec, "default")]
    return [
        load_policy(read_file(Path(name)), name) if name.endswith(".yaml") else folder.get(name)
        for name in dict.fromkeys(names)
    ]


def plan_words(plan: "Plan") -> list[str]:
    """What was assumed of the job."""
    saves = (
        "saves when it is asked to stop" if plan.handles_term else "does not save when it is asked to stop"
    )
    return [
        f"the job needs {format_duration(plan.work_s)} of training on {plan.sku}, on others as much longer as they are slower",
        f"it {saves}, and its checkpoint has {plan.checkpoint_bytes / 2**30:g} GiB",
    ]


def duration(text: str, option: str) -> int:
    """Seconds.

    Raises:
        UsageError: none, or none at all.
    """
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if seconds < 1:
        raise UsageError(f"{option}: {text} is no time at all")
    return seconds


def _show(found: "Sequence[Standing]", steps: bool) -> None:
    columns = ("POLICY", "PAID", "DONE", "$/H OF WORK", "FINISHED", "MOVES", "INTERRUPTED", "AT")
    rows = [
        (
            one.name,
            rate(one.cost_micro_usd),
            f"{one.share_done * 100:.0f} %",
            rate(one.micro_usd_per_work_h),
            one.finished_ms and to_iso(one.finished_ms),
            one.moves,
            one.interruptions,
            one.at if one.placed or one.finished_ms is not None else "waits",
        )
        for one in found
    ]
    show_table(columns, rows)
    if steps:
        for one in found:
            for step in one.steps:
                say(f"{one.name}: {to_iso(step.at_ms)} {step.effect}: {step.decision.summary}")


def _plain(found: "Sequence[Standing]", told: Sequence[str], from_ms: int, now_ms: int) -> dict[str, Any]:
    return {
        "at_ms": now_ms,
        "from_ms": from_ms,
        "items": [
            {
                "name": one.name,
                "cost_micro_usd": one.cost_micro_usd,
                "share_done": one.share_done,
                "micro_usd_per_work_h": one.micro_usd_per_work_h,
                "finished_ms": one.finished_ms,
                "hours": None if one.finished_ms is None else (one.finished_ms - from_ms) / MS / 3600,
                "moves": one.moves,
                "interruptions": one.interruptions,
                "at": one.at,
                "placed": one.placed,
                "steps": [
                    {"at_ms": s.at_ms, "effect": s.effect, "to": s.to, "summary": s.decision.summary}
                    for s in one.steps
                ],
            }
            for one in found
        ],
        "assumptions": list(told),
    }
