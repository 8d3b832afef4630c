"""What a cloud says about obtaining an offer. It is a hint and never a promise; only a launch tells."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from broker.core.errors import ProviderError


class Signal(StrEnum):
    """Kinds of hints, each with its own scale."""

    PLACEMENT_SCORE = "placement_score"
    """AWS: 1 (unlikely) to 10, that a spot request of a given size succeeds."""
    OBTAINABILITY = "obtainability"
    """GCP: 0 to 1, that a request succeeds."""
    PREEMPTION_RATE = "preemption_rate"
    """GCP: of the spot machines that stopped, the share that was preempted, 0 to 1. Not per hour."""
    EVICTION_RATE = "eviction_rate"
    """Azure: share of the spot machines that are evicted in an hour, as a range of 0 to 1."""
    PLACEMENT_RANK = "placement_rank"
    """Azure: 1 (low), 2 (medium) or 3 (high), that a spot request for one machine succeeds."""
    LISTED = "listed"
    """Lambda, CoreWeave: 1 when the cloud lists capacity now, 0 when it lists the type without any."""


@dataclass(frozen=True)
class Availability:
    """One hint.

    Attributes:
        offer_key: Which offer. A hint for a whole region is given for each of its zones.
        signal: Which scale.
        low: Bounds of the value on that scale; equal where the cloud gives one number.
        high: See `low`.
        observed_at_ms: When the cloud said so.
        source: Which call said so.
    """

    offer_key: str
    signal: Signal
    low: float
    high: float
    observed_at_ms: int
    source: str


@dataclass(frozen=True)
class Unanswered:
    """Something that a cloud was asked and did not answer, while there are hints to tell. `error` is for a person."""

    error: str


def answered(
    hints: Sequence[Availability], failures: Sequence[ProviderError]
) -> list[Availability | Unanswered]:
    """The hints, and a word for each call that failed.

    Raises:
        ProviderError: the first failure, where there is no hint at all.
    """
    if failures and not hints:
        raise failures[0]
    return [*hints, *(Unanswered(str(failure)) for failure in failures)]
