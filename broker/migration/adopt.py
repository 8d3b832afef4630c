"""How the rows of a restored database catch up with the world, once an operator has said that they shall. Pure.

Without this the latch could be cleared and would close again at once: tags would still be newer than the log, and
each fence would find a HEAD ahead of it. What it must never do is let two copies of a job commit: so generations are
raised to what HEAD carries, and whoever comes next is given a higher one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from broker.core.model import Job, Node, NodeState, Placement, PlacementState
from broker.migration.rules import Rules
from broker.wire.head import Head


def catch_up(
    jobs: Iterable[Job],
    placements: Iterable[Placement],
    nodes: Iterable[Node],
    heads: Mapping[str, Head],
    now_ms: int,
    rules: Rules,
) -> list[Job | Placement | Node]:
    """The open rows that have to change.

    Args:
        heads: HEAD by job, where there is one that can be read.
    """
    changed: list[Job | Placement | Node] = []
    placements, nodes = list(placements), list(nodes)
    tokens = {node.token for node in nodes}
    for job in jobs:
        head = heads.get(job.id)
        if head is None:
            continue
        # An older HEAD was put back: the copy that held the newest generation cannot commit under it any more. With
        # its number spent it is an ordinary copy that was fenced, and the job is recovered from what HEAD names.
        put_back = any(
            p.job_id == job.id and p.fenced and p.generation == job.generation > head.generation
            for p in placements
        )
        generation = max(head.generation, job.generation + put_back)
        if generation == head.generation and head.holder and head.holder not in tokens:
            generation += 1  # spent by somebody whom these rows do not know, or who is gone
        if generation != job.generation:
            changed.append(replace(job, generation=generation))
    for placement in placements:
        # Deadlines that passed while the copy lay in a drawer say nothing; each state gets its full time again.
        new = replace(placement, deadline_ms=rules.deadline_ms(placement.state, now_ms))
        head = heads.get(placement.job_id)
        if placement.state == PlacementState.READY and head is not None and placement.generation is not None:
            others = placement.generation == head.generation and head.holder and head.holder not in tokens
            if placement.generation < head.generation or others:
                # Its fence would be refused for ever: it is granted a newer generation instead.
                new = replace(new, generation=None)
        if new != placement:
            changed.append(new)
    for node in nodes:
        if node.state in (NodeState.RUNNING, NodeState.UNREACHABLE) and node.seen_at_ms is not None:
            # Silence is counted from now: its agent may be calling, and nobody listened.
            changed.append(replace(node, seen_at_ms=max(now_ms, node.seen_at_ms)))
    return changed
