"""Everything that runs or is meant to, as of one moment: what caps are held against."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from broker.core.model import Job, Node, Placement, PlacementState, Purpose
from broker.core.offer import MarketSnapshot, Offer
from broker.decision.subject import Caps, Timing, World
from broker.store.state import Tx


@dataclass(frozen=True)
class Load:
    """Read once for many jobs.

    Attributes:
        policies: By job: its policy's name.
        rates: By placement: micro-USD per hour of each of its nodes.
    """

    jobs: Sequence[Job]
    placements: Sequence[Placement]
    nodes: Sequence[Node]
    policies: Mapping[str, str | None]
    rates: Mapping[str, int]

    @classmethod
    def of(cls, tx: Tx) -> "Load":
        jobs, placements = tx.jobs(open_only=True), tx.placements(open_only=True)
        policies = {job.id: job.policy for job in jobs}
        for placement in placements:
            # A job that has ended counts until its nodes have: they are paid for, and it may have been moving.
            if placement.job_id not in policies:
                ended = tx.job(placement.job_id)
                policies[placement.job_id] = ended.policy if ended else None
        rates = {p.id: p.price_micro_usd_h for p in placements}
        return cls(jobs, placements, tx.nodes(open_only=True), policies, rates)

    def world(
        self,
        policy: str,
        now_ms: int,
        snapshot: MarketSnapshot,
        *,
        caps: Caps,
        timing: Timing,
        egress: Callable[[Offer, Offer | None], int],
    ) -> World:
        """What a decision by that policy is held against; egress is micro-USD per GiB from one place to another."""
        mine = [p for p in self.placements if self.policies.get(p.job_id) == policy]
        my_rates = {p.id: self.rates[p.id] for p in mine}
        return World(
            now_ms=now_ms,
            snapshot=snapshot,
            egress_micro_usd_per_gib=egress,
            caps=caps,
            timing=timing,
            burn_micro_usd_h=sum(self.rates.get(n.placement_id, 0) for n in self.nodes),
            policy_burn_micro_usd_h=sum(my_rates.get(n.placement_id, 0) for n in self.nodes),
            open_nodes=len(self.nodes),
            migrations_running=sum(
                p.purpose == Purpose.MOVE and (p.state.landing or p.state == PlacementState.READY)
                for p in mine
            ),
        )
