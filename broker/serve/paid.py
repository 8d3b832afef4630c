"""What segments cost: prices from the history, rules from the clouds, the sum by `broker.jobs.ledger`."""

from collections.abc import Sequence

from broker.core.model import Segment
from broker.jobs.ledger import Bill, ledger
from broker.serve.services import Services


def bills(broker: Services, segments: Sequence[Segment]) -> list[Bill]:
    """A bill for every segment, as of now."""
    now_ms = broker.clock.now_ms()
    since_ms: dict[str, int] = {}
    for segment in segments:
        key = segment.offer.key
        since_ms[key] = min(segment.started_at_ms, since_ms.get(key, segment.started_at_ms))
    # A minimum may bill time that is still to come; a price that is known by then counts.
    until_ms = now_ms + 86_400_000
    points = {key: broker.history.points(key, start_ms, until_ms) for key, start_ms in since_ms.items()}
    return ledger(segments, points, broker.billing_rule, now_ms)
