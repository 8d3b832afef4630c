"""What can be done to the outside. Every effect follows a committed intent and may be done twice."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CreateNode:
    """Rent a node. Its row is `unknown` already; the same token makes it at most one node."""

    token: str


@dataclass(frozen=True)
class FindNode:
    """Ask the cloud about a token."""

    token: str


@dataclass(frozen=True)
class DeleteNode:
    """Ask the cloud to end a node; repeated until the cloud no longer knows it."""

    token: str


@dataclass(frozen=True)
class Fence:
    """Swap HEAD to a generation. The row carries it already, so a crash here is repeated, not repaired."""

    job_id: str
    placement_id: str
    generation: int


Effect = CreateNode | FindNode | DeleteNode | Fence
