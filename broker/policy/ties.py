"""Two acting policies that can be told to tie before any job comes: the same `match`, the same precedence.

Other pairs can tie too, and only for some jobs: ``{team: nlp}`` and ``{labels: {tier: gold}}``. Whether such a job
will ever come is not in the files, so those are told when one does (`broker.policy.select`).
"""

from collections.abc import Iterable

from broker.core.errors import PolicyError
from broker.policy.schema import Match, Mode, Policy
from broker.policy.sections import DEFAULT_NAME


def ties(policies: Iterable[Policy]) -> list[tuple[Policy, ...]]:
    """Groups of acting policies between which no job could choose, each in the order given.

    Two files with one name are another mistake, told elsewhere.
    """
    groups: dict[object, dict[str, Policy]] = {}
    for policy in policies:
        if policy.mode is Mode.ACT and policy.name != DEFAULT_NAME:
            groups.setdefault((policy.precedence, _as_sets(policy.match)), {}).setdefault(policy.name, policy)
    return [tuple(group.values()) for group in groups.values() if len(group) > 1]


def tie_error(policy: Policy, first: Policy) -> PolicyError:
    """What is wrong with a policy that ties with one that was there before it."""
    return PolicyError(
        f"{policy.file}: {policy.name} matches the same jobs as {first.name} ({first.file}) "
        f"with the same precedence {policy.precedence}, and both act",
        hint="raise the precedence of one of them, or let one observe (mode: observe)",
    )


def _as_sets(match: Match) -> object:
    """A list in another order is the same match."""
    return (
        frozenset(match.teams),
        frozenset(match.labels.items()),
        frozenset(match.priorities),
        frozenset(match.projects),
    )
