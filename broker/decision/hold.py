"""A wish to move must last: `migrate.hold`, on fresh quotes.

The wish is held for as long as each answer is a move, whatever its target: two places that take turns at being
the cheapest do not keep a job in the dearest one. Time alone proves nothing. What counts is how long after the
wish began *both* prices were seen again, so one false reading, however long it stays the newest, moves nobody.
"""

from broker.core.model import Reason
from broker.core.offer import Quote
from broker.core.time import format_duration
from broker.decision.subject import Hold


def advance(hold: Hold | None, here: Quote, there: Quote, now_ms: int) -> Hold:
    """The memory after one more answer that is a move."""
    seen_ms = min(here.observed_at_ms, there.observed_at_ms)
    if hold is None:
        return Hold(there.offer.key, now_ms, seen_ms)
    return Hold(there.offer.key, hold.since_ms, max(hold.quote_at_ms, seen_ms))


def hold_reason(hold: Hold, hold_s: int, now_ms: int) -> Reason:
    """Whether the wish has lasted, as a line."""
    proven_s = max(0, hold.quote_at_ms - hold.since_ms) / 1000
    since_s = (now_ms - hold.since_ms) / 1000
    detail = f"since {format_duration(since_s)}"
    if proven_s < hold_s <= since_s:
        detail += ", and waits for newer prices"
    return Reason(f"migrate.hold: {format_duration(hold_s)}", proven_s >= hold_s, detail)
