"""What clouds say about obtaining an offer, in few words. Every cloud has its own scale; none is a promise."""

from collections.abc import Iterable, Mapping
from typing import Any

from broker.core.availability import Signal


def words(hints: Iterable[Mapping[str, Any]]) -> str:
    """``score 8/10``, ``70 % · preempted 25 %``, ``evicted 5–10 %/h``; empty when the cloud says nothing."""
    return " · ".join(_word(hint["signal"], hint["low"], hint["high"]) for hint in hints)


def _word(signal: str, low: float, high: float) -> str:
    match signal:
        case Signal.PLACEMENT_SCORE:
            return f"score {_range(low, high)}/10"
        case Signal.PLACEMENT_RANK:
            return f"chance {_RANKS.get(round(high), 'unknown')}"
        case Signal.OBTAINABILITY:
            return f"{_range(100 * low, 100 * high)} %"
        case Signal.PREEMPTION_RATE:
            return f"preempted {_range(round(100 * low), round(100 * high))} %"  # of those that stopped
        case Signal.EVICTION_RATE:
            return f"evicted {_range(100 * low, 100 * high)} %/h"
        case Signal.LISTED:
            return "listed" if high > 0 else "none listed"
    return f"{signal} {_range(low, high)}"  # of a newer daemon


_RANKS = {1: "low", 2: "medium", 3: "high"}


def _range(low: float, high: float) -> str:
    first, last = f"{low:.3g}", f"{high:.3g}"
    return first if first == last else f"{first}–{last}"
