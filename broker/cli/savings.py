"""`broker savings`: what observing policies would have moved, paid and saved, beside what the jobs really cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from broker.cli.history_files import moment
from broker.cli.output import AsJson, rate, say, show_json, show_table
from broker.cli.serve import ConfigOption
from broker.core.errors import NotFound
from broker.core.time import to_iso

if TYPE_CHECKING:
    from broker.cli.records import Records
    from broker.core.model import Decision, Node
    from broker.paper.history import HistoryMarket
    from broker.paper.past import Ran
    from broker.paper.savings import Saving, Wish
    from broker.policy.schema import Policy
    from broker.store.state import Tx

_MOST_DECISIONS: Final = 100_000
# As `broker.migration.decide` marks a move of an acting policy that it did not carry out.
_NOT_DONE: Final = "(not done:"


@dataclass(frozen=True)
class Account:
    """What came of it.

    Attributes:
        savings: One for each job and observing policy.
        unplayed: (job, policy, why) where nothing can be told.
        assumptions: In sentences.
    """

    savings: "Sequence[Saving]"
    unplayed: Sequence[tuple[str, str, str]]
    assumptions: Sequence[str]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(savings)


def savings(
    since: Annotated[
        str, typer.Option(help="A duration back (30d), or a moment (2026-11-01T00:00:00Z).")
    ] = "30d",
    config: ConfigOption = None,
    as_json: AsJson = False,
) -> None:
    """What policies in `mode: observe` would have saved, by each job's first wish to move since then.

    From that wish on the job is played under the policy over the recorded prices, and its cost is held against what the job
    really cost. Where one of both has done more of the work by now, the other owes the rest at the price of the place where it
    is. Runs on the daemon's machine, reads its files and changes nothing. Policies that observe the same job do not add up.
    """
    from broker.cli.records import opened
    from broker.policy.load import PolicySet

    with opened(config) as (settings, records, tx):
        if tx is None:
            raise NotFound(f"no state.db in {settings.state_dir}: no daemon has run here")
        since_ms = moment(since, records.now_ms)
        policies = PolicySet(settings.policies.dir).policies
        found = account(records, tx, policies, since_ms)
    if as_json:
        show_json(_plain(found, since_ms, records.now_ms))
    else:
        _show(found)


def account(records: "Records", tx: "Tx", policies: "Mapping[str, Policy]", since_ms: int) -> Account:
    """Of every job and observing policy that has wished to move it since then."""
    from broker.policy.schema import Mode

    savings: list[Saving] = []
    unplayed: list[tuple[str, str, str]] = []
    pace_ms, assumed = 0, False
    for (job_id, name), wish in sorted(wishes(tx, since_ms).items(), key=lambda item: item[1].at_ms):
        policy = policies.get(name)
        if policy is None or policy.mode is not Mode.OBSERVE:
            why = "the policy acts now" if policy else "there is no such policy any more"
            unplayed.append((job_id, name, why))
            continue
        ran = ran_of(tx, job_id)
        played = _play(records, ran, policy, wish) if ran else "there is no such job any more"
        if isinstance(played, str):
            unplayed.append((job_id, name, played))
            continue
        saving, market = played
        savings.append(saving)
        pace_ms, assumed = max(pace_ms, market.pace_ms), assumed or market.assumed_looks
    told = records.assumptions(pace_ms, assumed)
    told.append(
        "policies are played as their files are now, from the first wish on; between two readings a job trained evenly"
    )
    return Account(savings, unplayed, told)


def wishes(tx: "Tx", since_ms: int) -> "dict[tuple[str, str], Wish]":
    """By job and policy: the first move since then that was only recorded."""
    from broker.core.model import DecisionKind
    from broker.paper.savings import Wish

    by_job: dict[tuple[str, str], list[Decision]] = {}
    for decision in tx.decisions(limit=_MOST_DECISIONS, since_ms=since_ms, kind=DecisionKind.MOVE):
        if not decision.acted and decision.target is not None and _NOT_DONE not in decision.summary:
            by_job.setdefault((decision.job_id, decision.policy), []).append(decision)
    found: dict[tuple[str, str], Wish] = {}
    for key, decisions in by_job.items():
        first = decisions[-1]  # newest first
        assert first.target is not None
        since = first.holds_since_ms
        began_ms = first.at_ms if since is None else since
        found[key] = Wish(first.at_ms, first.target.offer.key, began_ms, len(decisions))
    return found


def ran_of(tx: "Tx", job_id: str) -> "Ran | None":
    """What the rows tell of a job."""
    from broker.paper.past import Ran

    job = tx.job(job_id)
    if job is None:
        return None
    handles = [told for node in tx.nodes(job_id=job_id) if (told := _handles_term(node)) is not None]
    placements = sorted(tx.placements(job_id=job_id), key=lambda placement: placement.attempt)
    segments = tuple(tx.segments(job_id=job_id))
    return Ran(job, tuple(placements), segments, all(handles) if handles else None)


def _play(
    records: "Records", ran: "Ran", policy: "Policy", wish: "Wish"
) -> "tuple[Saving, HistoryMarket] | str":
    """The saving and the market that it was played over, or why none can be told."""
    from broker.paper.past import course_of
    from broker.paper.savings import saving

    course = course_of(ran, records.now_ms)
    if course is None:
        return "the job has not trained for long enough to tell its speed"
    market = records.market(
        ran.job.spec,
        [policy],
        wish.at_ms,
        also=[placement.offer for placement in ran.placements],
        bills_from_ms=min((segment.started_at_ms for segment in ran.segments), default=None),
        only_clouds=records.clouds.renting,
        but_job=ran.job.id,
    )
    found = saving(course, policy, wish, market, records.terms, records.now_ms)
    if found is None:
        return "the job had no place when the policy wished to move it"
    return found, market


def _handles_term(node: "Node") -> bool | None:
    told = node.report.get("job")
    saves = told.get("handles_term") if isinstance(told, dict) else None
    return saves if isinstance(saves, bool) else None


def _show(found: Account) -> None:
    rows = [
        (
            one.job_id,
            one.job_name,
            one.policy,
            to_iso(one.wish.at_ms),
            one.wish.count,
            one.paper.moves,
            f"{one.real.interruptions}/{one.paper.interruptions}",
            rate(one.real.paid_micro_usd),
            rate(one.paper.paid_micro_usd),
            rate(one.real.owed_micro_usd - one.paper.owed_micro_usd),
            rate(one.saved_micro_usd),
            one.paper.at,
        )
        for one in found.savings
    ]
    columns = (
        "JOB", "NAME", "POLICY", "SINCE", "WISHES", "MOVES", "INTERRUPTED", "PAID", "WOULD HAVE PAID", "WORK AHEAD",
        "SAVED", "WOULD BE AT",
    )  # fmt: skip
    show_table(columns, rows, empty="no observing policy has wished to move a job in that time")
    for name, saved in _by_policy(found.savings).items():
        say(f"{name}: saved {rate(saved)} in all")
    for job, name, why in found.unplayed:
        say(f"{job} under {name}: nothing can be told: {why}")
    if rows:
        for sentence in found.assumptions:
            say(f"assumed: {sentence}")


def _by_policy(savings: "Sequence[Saving]") -> dict[str, int]:
    total: dict[str, int] = {}
    for one in savings:
        total[one.policy] = total.get(one.policy, 0) + one.saved_micro_usd
    return total


def _plain(found: Account, since_ms: int, now_ms: int) -> dict[str, Any]:
    from broker.core.plain import to_plain

    return {
        "at_ms": now_ms,
        "since_ms": since_ms,
        "items": [to_plain(one) | {"saved_micro_usd": one.saved_micro_usd} for one in found.savings],
        "saved_micro_usd_by_policy": _by_policy(found.savings),
        "unplayed": [{"job_id": job, "policy": name, "why": why} for job, name, why in found.unplayed],
        "assumptions": list(found.assumptions),
    }
