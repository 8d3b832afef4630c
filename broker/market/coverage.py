"""Which nodes a commitment has room for, and when. Pure.

First come, first served: of the nodes that run at a moment, those that began first are inside. When one of them ends, the
next takes its room. So at every moment as many are inside as can be, and who is inside does not change while nobody ends.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from broker.core.model import Segment
from broker.market.overlay import Commitment, Overlay

Stretch = tuple[int, int]  # half open, ms


@dataclass(frozen=True, order=True)
class _Piece:
    """A stretch of a segment within which the same commitment holds. Their order is that of who goes in first."""

    start_ms: int
    began_ms: int
    token: str
    end_ms: int


def covered(overlay: Overlay, segments: Iterable[Segment], now_ms: int) -> Mapping[str, tuple[Stretch, ...]]:
    """By node token: when it was inside a commitment; nodes that never were are left out.

    Args:
        segments: Of every project: a commitment belongs to all of them.
        now_ms: Until when a segment that is still open is counted.
    """
    pieces: dict[Commitment, list[_Piece]] = {}
    for segment in segments if overlay.committed else ():
        end_ms = now_ms if segment.ended_at_ms is None else segment.ended_at_ms
        cuts = [date for date in overlay.dates_ms if segment.started_at_ms < date < end_ms]
        for start_ms, until_ms in pairwise(
            (segment.started_at_ms, *cuts, max(end_ms, segment.started_at_ms))
        ):
            commitment = overlay.commitment(segment.offer, start_ms)
            if commitment is not None and start_ms < until_ms:
                piece = _Piece(start_ms, segment.started_at_ms, segment.node_token, until_ms)
                pieces.setdefault(commitment, []).append(piece)
    found: dict[str, list[Stretch]] = {}
    for commitment, mine in pieces.items():
        for token, stretch in _inside(commitment.count, mine):
            found.setdefault(token, []).append(stretch)
    return {token: tuple(sorted(stretches)) for token, stretches in found.items()}


def _inside(count: int, pieces: Iterable[_Piece]) -> Iterator[tuple[str, Stretch]]:
    # At one moment ends come first: their room is free for who begins then.
    moments = [(p.start_ms, 1, p) for p in pieces] + [(p.end_ms, 0, p) for p in pieces]
    since_ms: dict[_Piece, int] = {}
    waiting: deque[_Piece] = deque()
    gone: set[_Piece] = set()
    for at_ms, begins, piece in sorted(moments):
        if begins:
            waiting.append(piece)
        else:
            gone.add(piece)
            if since_ms.get(piece, at_ms) < at_ms:
                yield piece.token, (since_ms[piece], at_ms)
            since_ms.pop(piece, None)
        while waiting and len(since_ms) < count:
            following = waiting.popleft()
            if following not in gone:
                since_ms[following] = at_ms
