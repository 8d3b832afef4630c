"""What the daemon remembers between passes: holds, empty pools, launches, probe reports."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sqlmodel import col, delete, select

from broker.core.model import Verdict
from broker.core.offer import Market, Offer
from broker.store.fetch import fetch
from broker.store.rows import Rows
from broker.store.tables import HoldRow, LaunchRow, PoolRow, ProbeReportRow


class Wish(NamedTuple):
    """A move that a policy has been wanting: the fields of `broker.decision.subject.Hold`, in its order.

    Attributes:
        target_key: Offer key.
        since_ms: Since when, without a break.
        quote_at_ms: Newest quote behind it.
    """

    target_key: str
    since_ms: int
    quote_at_ms: int


class AnyHold(Protocol):
    """Whatever has the fields of a `Wish`."""

    @property
    def target_key(self) -> str: ...
    @property
    def since_ms(self) -> int: ...
    @property
    def quote_at_ms(self) -> int: ...


@dataclass(frozen=True)
class Launch:
    """One launch and its outcome.

    Attributes:
        error: Code of the error (`broker.core.errors`), empty when it got a node.
    """

    at_ms: int
    offer_key: str
    market: Market
    ok: bool
    error: str = ""


@dataclass(frozen=True)
class ProbeReport:
    """What the probe said of a node.

    Attributes:
        report: ``gpu-probe/1``.
    """

    node_token: str
    placement_id: str
    at_ms: int
    verdict: Verdict
    report: Mapping[str, Any]


# Asked for every job in every pass: past the ORM.
_HOLD = "SELECT target_key, since_ms, quote_at_ms FROM hold WHERE job_id = :job_id AND policy = :policy"
_POOLS = "SELECT offer_key, empty_until_ms FROM pool WHERE empty_until_ms > :now_ms"
_LAUNCHES = (
    "SELECT at_ms, offer_key, market, ok, error FROM launch WHERE at_ms >= :since_ms ORDER BY at_ms, id"
)


class Memory(Rows):
    """Memory of the daemon, in a transaction."""

    def hold(self, job_id: str, policy: str) -> Wish | None:
        """What a policy has been wanting for a job; `Hold(*tx.hold(...))` makes the decision's own value of it."""
        found = fetch(self._connection, _HOLD, {"job_id": job_id, "policy": policy})
        return Wish(*found[0]) if found else None

    def save_hold(self, job_id: str, policy: str, hold: AnyHold | None) -> None:
        """Remember it, or forget it when it is None."""
        if hold is None:
            mine = (col(HoldRow.job_id) == job_id, col(HoldRow.policy) == policy)
            self._session.exec(delete(HoldRow).where(*mine))
            return
        self._merge(
            HoldRow(
                job_id=job_id,
                policy=policy,
                target_key=hold.target_key,
                since_ms=hold.since_ms,
                quote_at_ms=hold.quote_at_ms,
            )
        )

    def pools(self) -> dict[str, int]:
        """Pools that are taken for empty now: offer key to until when, ms."""
        return dict(fetch(self._connection, _POOLS, {"now_ms": self._clock.now_ms()}))

    def mark_empty(self, offer_key: str, until_ms: int, reason: str) -> None:
        """Take a pool for empty until then; 0 takes the mark away."""
        self._merge(PoolRow(offer_key=offer_key, empty_until_ms=until_ms, reason=reason))

    def record_launch(self, at_ms: int, offer: Offer, ok: bool, error: str = "") -> None:
        """Keep the outcome of a launch."""
        row = LaunchRow(at_ms=at_ms, offer_key=offer.key, market=offer.market.value, ok=ok, error=error)
        self._session.add(row)
        self._session.flush()  # `launches` does not see what has not been flushed

    def launches(self, since_ms: int) -> list[Launch]:
        """Launches at or after then, oldest first."""
        found = fetch(self._connection, _LAUNCHES, {"since_ms": since_ms})
        return [
            Launch(at_ms, key, Market(market), bool(ok), error) for at_ms, key, market, ok, error in found
        ]

    def save_probe_report(self, report: ProbeReport) -> None:
        """Keep a report; a node that is probed twice has two."""
        self._session.add(
            ProbeReportRow(
                node_token=report.node_token,
                placement_id=report.placement_id,
                at_ms=report.at_ms,
                verdict=report.verdict.value,
                report=dict(report.report),
            )
        )

    def probe_reports(
        self, *, node_token: str | None = None, placement_id: str | None = None
    ) -> list[ProbeReport]:
        """Reports, oldest first."""
        query = select(ProbeReportRow).order_by(col(ProbeReportRow.at_ms), col(ProbeReportRow.id))
        if node_token is not None:
            query = query.where(ProbeReportRow.node_token == node_token)
        if placement_id is not None:
            query = query.where(ProbeReportRow.placement_id == placement_id)
        return [
            ProbeReport(row.node_token, row.placement_id, row.at_ms, Verdict(row.verdict), row.report)
            for row in self._session.exec(query)
        ]
