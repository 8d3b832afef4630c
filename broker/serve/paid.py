"""What segments cost: prices from the history with the overlay over them, rules from the clouds, the sum by
`broker.jobs.ledger`. Credits are no part of it: they pay a bill and do not make it smaller.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

from broker.core.model import Segment
from broker.core.time import DAY_S, MINUTE_S, MS
from broker.jobs.budget import Tally, month_start_ms, tally
from broker.jobs.ledger import Bill, RuleOf, ledger
from broker.market.coverage import covered
from broker.market.overlay import Overlay
from broker.serve.services import Services
from broker.store.history import HistoryStore
from broker.store.state import Tx

# Credits last for months.
_SPENT_FOR_S = MINUTE_S


@dataclass(frozen=True)
class Prices:
    """Where prices and rules come from.

    Attributes:
        rule_of: How a cloud bills a market.
        overlay: In force now.
    """

    history: HistoryStore
    rule_of: RuleOf
    overlay: Callable[[], Overlay]

    def bills(self, segments: Sequence[Segment], everybody: Iterable[Segment], now_ms: int) -> list[Bill]:
        """A bill for every segment.

        Args:
            everybody: The segments of all projects: who is inside a commitment depends on them.
        """
        overlay = self.overlay()
        inside = covered(overlay, everybody, now_ms)
        since_ms: dict[str, int] = {}
        for segment in segments:
            key = segment.offer.key
            since_ms[key] = min(segment.started_at_ms, since_ms.get(key, segment.started_at_ms))
        # A minimum may bill time that is still to come; a price that is known by then counts.
        until_ms = now_ms + DAY_S * MS
        listed = {key: self.history.points(key, start_ms, until_ms) for key, start_ms in since_ms.items()}
        charged = {key: overlay.over(points, until_ms) for key, points in listed.items()}
        found: list[Bill] = []
        for segment in segments:
            key = segment.offer.key
            points = charged[key]
            if segment.node_token in inside:
                points = overlay.over(listed[key], until_ms, inside[segment.node_token])
            found += ledger([segment], {key: points}, self.rule_of, now_ms)
        return found


def bills(broker: Services, segments: Sequence[Segment]) -> list[Bill]:
    """A bill for every segment, as of now."""
    everybody: Sequence[Segment] = ()
    if broker.overlay().committed:
        with broker.store.read() as tx:
            everybody = tx.segments()
    prices = Prices(broker.history, broker.billing_rule, broker.overlay)
    return prices.bills(segments, everybody, broker.clock.now_ms())


class Budgets:
    """What budgets are held against; counted again once a minute."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._counted: tuple[int, Tally] | None = None

    def tally(self, tx: Tx, now_ms: int) -> Tally:
        """Of the jobs that are open and the policies of this month."""
        if self._counted is None or not 0 <= now_ms - self._counted[0] < _SPENT_FOR_S * MS:
            self._counted = now_ms, self._count(tx, now_ms)
        return self._counted[1]

    def _count(self, tx: Tx, now_ms: int) -> Tally:
        everybody, since_ms = tx.segments(), month_start_ms(now_ms)
        jobs = {job.id: job for job in tx.jobs(open_only=True)}
        mine = [
            segment
            for segment in everybody
            if segment.job_id in jobs or segment.ended_at_ms is None or segment.ended_at_ms > since_ms
        ]
        placements = {placement.id: placement for placement in tx.placements(open_only=False)}
        return tally(self._prices.bills(mine, everybody, now_ms), placements, jobs, now_ms)


class Spending:
    """What has been spent on each cloud since its credit began; counted again once a minute."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._lock = Lock()
        self._counted: tuple[Overlay, int, Mapping[str, int]] | None = None

    def micro_usd(self, tx: Tx, now_ms: int) -> Mapping[str, int]:
        """By cloud."""
        overlay = self._prices.overlay()
        live = {credit.cloud: credit.from_ms or 0 for credit in overlay.credits if credit.holds(now_ms)}
        if not live:
            return {}
        with self._lock:
            kept = self._counted
            if kept is None or kept[0] is not overlay or not 0 <= now_ms - kept[1] < _SPENT_FOR_S * MS:
                kept = overlay, now_ms, self._count(tx.segments(), live, now_ms)
                self._counted = kept
            return kept[2]

    def _count(
        self, everybody: Sequence[Segment], since_ms: Mapping[str, int], now_ms: int
    ) -> Mapping[str, int]:
        spent = dict.fromkeys(since_ms, 0)
        mine = [
            segment
            for segment in everybody
            if segment.offer.cloud in since_ms
            and (segment.ended_at_ms is None or segment.ended_at_ms > since_ms[segment.offer.cloud])
        ]
        for bill in self._prices.bills(mine, everybody, now_ms):
            cloud = bill.segment.offer.cloud
            for line in bill.lines:
                within = max(0, line.to_ms - max(line.from_ms, since_ms[cloud]))
                spent[cloud] += line.paid_micro_usd * within // max(1, line.to_ms - line.from_ms)
        return spent
