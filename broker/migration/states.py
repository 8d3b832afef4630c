"""The three machines. A test reads these drawings and compares them with what the planner really does.

job

    queued      -> starting failed cancelling
    starting    -> running queued recovering failed cancelling
    running     -> moving recovering paused succeeded failed cancelling
    moving      -> running recovering succeeded failed cancelling
    recovering  -> running paused succeeded failed cancelling
    paused      -> starting succeeded cancelling
    cancelling  -> cancelled
    succeeded   .
    failed      .
    cancelled   .

placement

    intended    -> requested releasing
    requested   -> booting releasing
    booting     -> probing releasing
    probing     -> ready releasing
    ready       -> active releasing
    active      -> draining releasing
    draining    -> releasing
    releasing   -> gone
    gone        .

node

    intended    -> unknown gone
    unknown     -> requested running releasing gone
    requested   -> running releasing gone
    running     -> unreachable releasing gone
    unreachable -> running releasing gone
    releasing   -> gone
    gone        .

A job is `paused` from the moment its policy takes its place away: what it saves while it drains still counts, and it may
finish instead. Its next place is a start, not a recovery.

A node is `unknown` from the moment before its create is sent until the cloud has told us its id: a daemon that
dies in between finds the row in the state that asks for a look-up. A state may always be entered again from itself
(only its reason changes).
"""

from enum import StrEnum
from typing import TypeVar

from broker.core.model import JobState, NodeState, PlacementState

S = TypeVar("S", bound=StrEnum)


def _edges(machine: str, kind: type[S]) -> dict[S, frozenset[S]]:
    """Read one drawing of the docstring: it *is* the table, so the two cannot differ."""
    assert __doc__ is not None, "the state machines are drawn in the docstring; python -OO removes them"
    block = __doc__.split(f"\n{machine}\n\n", 1)[1].split("\n\n", 1)[0]
    table: dict[S, frozenset[S]] = {}
    for line in block.splitlines():
        source, _, targets = line.strip().partition(" ")
        table[kind(source)] = frozenset(kind(name) for name in targets.split() if name not in ("->", "."))
    return table


JOB_EDGES = _edges("job", JobState)
PLACEMENT_EDGES = _edges("placement", PlacementState)
NODE_EDGES = _edges("node", NodeState)


def check_edge(before: StrEnum, after: StrEnum) -> None:
    """Raises:
    AssertionError: the machine has no such edge; a bug of ours, never of the world.
    """
    if before == after:
        return
    match before:
        case JobState():
            allowed: frozenset[StrEnum] = frozenset(JOB_EDGES[before])
        case PlacementState():
            allowed = frozenset(PLACEMENT_EDGES[before])
        case NodeState():
            allowed = frozenset(NODE_EDGES[before])
        case _:
            raise AssertionError(f"{before!r} belongs to no machine")
    assert after in allowed, f"{type(before).__name__}: no edge {before} -> {after}"
