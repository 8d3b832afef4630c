"""The numbers of the protocol, in seconds of our clock unless they say otherwise."""

from dataclasses import dataclass, field

from broker.core.model import PlacementState


def _deadlines() -> dict[PlacementState, float]:
    return {
        PlacementState.INTENDED: 300,
        PlacementState.REQUESTED: 300,
        PlacementState.BOOTING: 900,
        PlacementState.PROBING: 900,
        PlacementState.READY: 1800,
        PlacementState.DRAINING: 300,
        PlacementState.RELEASING: 600,
    }


@dataclass(frozen=True)
class Rules:
    """What bounds the protocol.

    Attributes:
        deadlines_s: How long a placement may stay in a state. ACTIVE and GONE have none.
        find_every_s: Least time between two look-ups of one node.
        resend_after_s: An unknown node that the cloud does not show is created again (same token) after this; at
            least a cloud's list lag.
        forget_after_s: An unknown node of a released placement is given up after this: longer than any request
            can arrive late.
        unreachable_after_s: Silence of an agent before the cloud is asked.
        gone_confirmations: How often in a row a cloud must deny a node before it is gone (K).
        run_lease_s: How long a job may train without hearing from us.
        dead_man_s: How long after its run lease a node ends itself.
        beat_s: Between two beats of an agent.
        drain_s: How long a job may take to save when asked to stop.
        empty_pool_s: How long a pool that refused is taken for empty.
        recoveries_per_hour: More than this at once is no coincidence: stop and let a person look.
        probe_refusals: After that many nodes in a row that the probe refused, a job waits before the next, each time
            twice as long: the fault may be in the order, the policy or the image, and every try costs money.
        start_failures: A job whose start fails on that many placements is at fault itself.
        notice_s: Interruption notice asked of clouds that let us choose.
        collect_grace_s: A machine without a row is left alone until it is older than this: longer than any cloud's
            list lag plus our own longest transaction.
    """

    deadlines_s: dict[PlacementState, float] = field(default_factory=_deadlines)
    find_every_s: float = 10.0
    resend_after_s: float = 30.0
    forget_after_s: float = 180.0
    unreachable_after_s: float = 60.0
    gone_confirmations: int = 2
    run_lease_s: float = 1800.0
    dead_man_s: float = 900.0
    beat_s: float = 5.0
    drain_s: float = 120.0
    empty_pool_s: float = 900.0
    recoveries_per_hour: int = 20
    probe_refusals: int = 3
    start_failures: int = 2
    notice_s: int = 120
    collect_grace_s: float = 180.0

    def deadline_ms(self, state: PlacementState, now_ms: int) -> int | None:
        """When a placement that enters `state` now will have stayed too long."""
        bound_s = self.deadlines_s.get(state)
        return None if bound_s is None else now_ms + round(bound_s * 1000)
