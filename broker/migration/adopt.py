"""How the rows of a restored database catch up with the world, once an operator has said that they shall. Pure.

Without this the latch could be cleared and would close again at once: tags would still be newer than the log, and
each fence would find a HEAD ahead of it. What it must never do is let two copies of a job commit: so generations are
raised to what HEAD carries, and whoever comes next is given a higher one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from broker.core.model import Job, Node, NodeState, Placement, PlacementState
from broker.migration.rules import Rules


def catch_up(
    jobs: Iterable[Job],
    placements: Iterable[Placement],
    nodes: Iterable[Node],
    heads: Mapping[str, int],
    now_ms: int,
    rules: Rules,
) -> list[Job | Placement | Node]:
    """The open rows that have to change.

    Args:
        heads: Generation of HEAD, by job.
    """
    changed: list[Job | Placement | Node] = []
    for job in jobs:
        if heads.get(job.id, 0) > job.generation:
            changed.append(replace(job, generation=heads[job.id]))
    for placement in placements:
        # Deadlines that passed while the copy lay in a drawer say nothing; each state gets its full time again.
        new = replace(placement, deadline_ms=rules.deadline_ms(placement.state, now_ms))
        granted = placement.generation
        if placement.state == PlacementState.READY and granted and granted < heads.get(placement.job_id, 0):
            # Its fence would be refused for ever: it is granted a newer generation instead.
            new = replace(new, generation=None)
        if new != placement:
            changed.append(new)
    for node in nodes:
        if node.state in (NodeState.RUNNING, NodeState.UNREACHABLE) and node.seen_at_ms is not None:
            # Silence is counted from now: its agent may be calling, and nobody listened.
            changed.append(replace(node, seen_at_ms=max(now_ms, node.seen_at_ms)))
    return changed
