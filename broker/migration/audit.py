"""Rows, clouds and checkpoint store, compared in both directions. Pure: values in, disagreements out.

Silence proves nothing. A cloud that could not be asked in full is not a cloud without machines, a list may lag behind
by minutes, and it covers the configured regions only; so a row is called *denied* only after a second look at its
token (`doubtful` says which ones need it), and a machine is called an orphan only past its grace.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from broker.core.audit import Act, Asked, Audit, Discrepancy, Kind
from broker.core.model import Job, Node, NodeState, PlacementState
from broker.core.ports import CloudNode, CloudState
from broker.core.time import format_duration
from broker.migration.rules import Rules
from broker.wire.head import Head

STORE = "store"
# The event that a node's tag names: `broker.migration.decide` writes it with the node's row.
INTENT = "placement.intended"
# What a cloud's clock and ours may differ by.
CLOCKS_APART_MS = 60_000
_RUNS = (NodeState.REQUESTED, NodeState.RUNNING, NodeState.UNREACHABLE)


@dataclass(frozen=True)
class Orphans:
    """Machines with our tag that no row wants.

    Attributes:
        unowned: Past the grace: to be ended.
        waiting: Within the grace, or of unknown age.
        newer: Made by an event that our log does not have: it is an older copy.
    """

    unowned: tuple[CloudNode, ...] = ()
    waiting: tuple[CloudNode, ...] = ()
    newer: tuple[CloudNode, ...] = ()


@dataclass(frozen=True)
class Log:
    """What the event log knows of the tags that machines carry.

    Attributes:
        caught_up_to: Up to this number an operator has accepted that events are missing.
        intents: When a placement was intended, ms, by the event's number, for the numbers on tags; a number that
            has no such event is not a key.
    """

    caught_up_to: int = 0
    intents: Mapping[int, int] = field(default_factory=dict)

    def foreign(self, machine: CloudNode) -> bool:
        """Whether the event that made a machine is not in this log.

        Numbers alone would not do: a restored log grows, and soon has other events under the same numbers. Those are
        younger than the machine, whose own event was written before the copy was put back.
        """
        if machine.event_seq <= self.caught_up_to:
            return False  # also 0: no number on the tag
        intended_ms = self.intents.get(machine.event_seq)
        if intended_ms is None:
            return True
        return 0 < machine.created_at_ms < intended_ms - CLOCKS_APART_MS


def orphans(
    listed: Iterable[CloudNode],
    row: Callable[[str], Node | None],
    log: Log,
    installation_id: str,
    now_ms: int,
    rules: Rules,
    asked_at_ms: int | None = None,
) -> Orphans:
    """Compare a list that was read *before* the rows with them.

    Args:
        row: The node of a token.
        asked_at_ms: When the list was asked for. A row that became final since then says nothing: its machine may have
            ended while the list was on its way, and the next one tells. None: no row has changed since.
    """
    unowned, waiting, newer = [], [], []
    for machine in listed:
        if machine.installation_id != installation_id or machine.state == CloudState.TERMINATED:
            continue
        node = row(machine.token)
        if node is not None and node.state != NodeState.GONE:
            continue
        if node is not None and asked_at_ms is not None and node.state_since_ms >= asked_at_ms:
            continue
        if node is None and log.foreign(machine):
            newer.append(machine)
        elif 0 < machine.created_at_ms < now_ms - rules.collect_grace_s * 1000:
            unowned.append(machine)
        else:
            waiting.append(machine)
    return Orphans(tuple(unowned), tuple(waiting), tuple(newer))


@dataclass(frozen=True)
class Rows:
    """The rows that an audit needs, of one moment.

    Attributes:
        log: Of the events.
        nodes: All of them, final ones too, by token.
        jobs: All of them, by id.
    """

    installation_id: str
    log: Log
    nodes: Mapping[str, Node]
    jobs: Mapping[str, Job]
    report_only: str | None = None


@dataclass(frozen=True)
class Outside:
    """What clouds and store have said, before the rows were read.

    Attributes:
        listed: Machines of every installation, by cloud; a cloud that could not be asked is not a key.
        unasked: Clouds (or the store) that could not be asked, and why.
        looked_up: Second looks, by token; a look-up that failed is not a key.
        heads: HEAD by open job; None where it cannot be read. A job without a HEAD is not a key.
        prefixes: Jobs that have anything in the store.
        asked_at_ms: When the first list was asked for; None: no row has changed since.
    """

    listed: Mapping[str, Sequence[CloudNode]] = field(default_factory=dict)
    unasked: Mapping[str, str] = field(default_factory=dict)
    looked_up: Mapping[str, CloudNode | None] = field(default_factory=dict)
    heads: Mapping[str, Head | None] = field(default_factory=dict)
    prefixes: Collection[str] = ()
    asked_at_ms: int | None = None


def doubtful(
    listed: Mapping[str, Sequence[CloudNode]], nodes: Iterable[Node], now_ms: int, rules: Rules
) -> list[Node]:
    """Rows of which their cloud's list says nothing, although it should: look each one up before concluding."""
    tokens = {machine.token for machines in listed.values() for machine in machines}
    return [
        node
        for node in nodes
        if node.cloud in listed
        and node.token not in tokens
        and (_unended(node) or (node.state in _RUNS and not _fresh(node, now_ms, rules)))
    ]


def compare(outside: Outside, rows: Rows, now_ms: int, rules: Rules) -> Audit:
    """The whole audit."""
    found: list[Discrepancy] = []
    for cloud in sorted(outside.listed):
        sorted_out = orphans(
            outside.listed[cloud],
            rows.nodes.get,
            rows.log,
            rows.installation_id,
            now_ms,
            rules,
            outside.asked_at_ms,
        )
        found += describe(sorted_out, rows.nodes.get, now_ms, rules)
    found += _overdue(outside, rows, now_ms, rules)
    for node in doubtful(outside.listed, rows.nodes.values(), now_ms, rules):
        if node.token in outside.looked_up:
            found += _silent(node, outside.looked_up[node.token], now_ms)
    found += _store(outside, rows)
    return Audit(now_ms, rows.report_only, _asked(outside, rows, now_ms, rules), tuple(found))


def describe(
    found: Orphans, row: Callable[[str], Node | None], now_ms: int, rules: Rules
) -> list[Discrepancy]:
    """Orphans in words."""
    grace = format_duration(rules.collect_grace_s)
    ends = [_machine(m, row, Act.END, _age(m, now_ms)) for m in found.unowned]
    waits = [
        _machine(m, row, Act.WAIT, f"{_age(m, now_ms)}, within its grace of {grace}") for m in found.waiting
    ]
    newer = [
        _machine(
            m,
            row,
            Act.LATCH,
            f"made by event {m.event_seq}, which is not in our log: is this database a restored one?",
            Kind.NEWER,
        )
        for m in found.newer
    ]
    return ends + waits + newer


def _machine(
    machine: CloudNode,
    row: Callable[[str], Node | None],
    act: Act,
    detail: str,
    kind: Kind | None = None,
) -> Discrepancy:
    node = row(machine.token)
    if kind is None:
        kind = Kind.UNKNOWN if node is None else Kind.RELEASED
    who = "no row has its token" if node is None else f"its row is gone ({node.reason})"
    return Discrepancy(
        id=f"{machine.cloud}/{machine.provider_id}",
        kind=kind,
        act=act,
        subject=machine.token,
        cloud=machine.cloud,
        place=f"{machine.region}/{machine.zone}",
        provider_id=machine.provider_id,
        detail=f"{machine.state}, {detail}; {who}",
    )


def _overdue(outside: Outside, rows: Rows, now_ms: int, rules: Rules) -> Iterable[Discrepancy]:
    bound_s = rules.deadlines_s[PlacementState.RELEASING]
    for machines in outside.listed.values():
        for machine in machines:
            node = rows.nodes.get(machine.token)
            if node is None or node.state != NodeState.RELEASING:
                continue
            lasted_s = (now_ms - node.state_since_ms) / 1000
            if lasted_s > bound_s:
                detail = f"{machine.state}; being deleted for {format_duration(lasted_s)}, still asked for"
                yield _row(node, Kind.OVERDUE, Act.RECONCILE, detail)


def _silent(node: Node, looked_up: CloudNode | None, now_ms: int) -> Iterable[Discrepancy]:
    """A row that its cloud's list did not show, and what a look at its token said."""
    if looked_up is not None and looked_up.state != CloudState.TERMINATED:
        return  # the list lags, or does not cover its region
    word = "knows of no such machine" if looked_up is None else f"says it was ended by {looked_up.ended_by}"
    if _unended(node):
        yield _row(node, Kind.UNENDED, Act.CLOSE, f"{node.cloud} {word}; its segment has no end")
    else:
        seen = (
            "never"
            if node.seen_at_ms is None
            else f"{format_duration((now_ms - node.seen_at_ms) / 1000)} ago"
        )
        yield _row(
            node, Kind.DENIED, Act.RECONCILE, f"row {node.state}, agent seen {seen}; {node.cloud} {word}"
        )


def _row(node: Node, kind: Kind, act: Act, detail: str) -> Discrepancy:
    return Discrepancy(
        id=f"{node.cloud}/{node.token}/{kind}",
        kind=kind,
        act=act,
        subject=node.token,
        cloud=node.cloud,
        place=f"{node.region}/{node.zone}",
        provider_id=node.provider_id or "",
        detail=detail,
    )


def _store(outside: Outside, rows: Rows) -> Iterable[Discrepancy]:
    for job_id, head in sorted(outside.heads.items()):
        job = rows.jobs[job_id]
        if head is None:
            detail = "nothing may be concluded from it; look at the object"
            yield Discrepancy(f"store/{job_id}/damaged", Kind.HEAD_DAMAGED, Act.PERSON, job_id, detail=detail)
        elif why := disowned(head, job.generation, rows.nodes):
            detail = f"HEAD carries {why}"
            yield Discrepancy(f"store/{job_id}/ahead", Kind.HEAD_AHEAD, Act.LATCH, job_id, detail=detail)
    for job_id in sorted(set(outside.prefixes) - set(rows.jobs)):
        detail = "checkpoints of a job that no row knows; kept"
        yield Discrepancy(f"store/{job_id}/stray", Kind.STRAY, Act.PERSON, job_id, detail=detail)


def disowned(head: Head, generation: int, tokens: Container[str]) -> str | None:
    """Why HEAD is nothing that these rows have given, or None: rows older than the world, or a copy of rows in use.

    Args:
        generation: Newest that the rows have granted.
        tokens: Of every node in the rows.
    """
    if head.generation > generation:
        return f"generation {head.generation}; the rows have granted {generation}"
    if head.generation == generation and head.holder and head.holder not in tokens:
        return f"generation {head.generation} for {head.holder}, which is no node of ours"
    return None


def _asked(outside: Outside, rows: Rows, now_ms: int, rules: Rules) -> tuple[Asked, ...]:
    unanswered = {
        node.cloud
        for node in doubtful(outside.listed, rows.nodes.values(), now_ms, rules)
        if node.token not in outside.looked_up
    }
    parts = []
    for cloud in sorted({*outside.listed, *outside.unasked} - {STORE}):
        why = outside.unasked.get(cloud, "")
        if cloud not in outside.listed:
            parts.append(Asked(cloud, unasked=why))
            continue
        machines = outside.listed[cloud]
        ours = sum(machine.installation_id == rows.installation_id for machine in machines)
        why = why or ("a look-up of a node failed" if cloud in unanswered else "")
        parts.append(Asked(cloud, ours, len(machines) - ours, why))
    reached = {*outside.listed, *outside.unasked}
    for cloud in sorted({n.cloud for n in rows.nodes.values() if n.state != NodeState.GONE} - reached):
        parts.append(Asked(cloud, unasked="not configured, and rows of it are open"))
    failed = outside.unasked.get(STORE, "")
    parts.append(Asked(STORE, None if failed else len(outside.prefixes), None, failed))
    return tuple(parts)


def _unended(node: Node) -> bool:
    """A final row whose meter never stopped: the ledger would count it for ever."""
    return node.state == NodeState.GONE and node.billed_from_ms is not None and node.ended_at_ms is None


def _fresh(node: Node, now_ms: int, rules: Rules) -> bool:
    """Too young to be in every list."""
    return now_ms - (node.create_sent_at_ms or node.created_at_ms) <= rules.collect_grace_s * 1000


def _age(machine: CloudNode, now_ms: int) -> str:
    if not machine.created_at_ms:
        return "age unknown"
    return f"{format_duration(max(0, now_ms - machine.created_at_ms) / 1000)} old"
