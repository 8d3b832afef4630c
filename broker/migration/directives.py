"""What the daemon wants of a node: a function of rows, nothing remembered. Durations leave divided by the rate."""

from collections.abc import Sequence
from dataclasses import dataclass

from broker.core.gpu import GPUS
from broker.core.model import Cut, Job, Node, Placement, PlacementState
from broker.migration.rules import Rules
from broker.policy.schema import Verify
from broker.wire import messages as wire


@dataclass(frozen=True)
class Terms:
    """What a directive needs besides rows.

    Attributes:
        rate: Of our clock; the node lives in real time.
        store: The job's part of the checkpoint store, with keys that outlive the run lease.
        verify: From the job's policy.
    """

    rules: Rules
    rate: float
    store: wire.StoreAccess
    verify: Verify

    def node_s(self, our_s: float) -> float:
        """Seconds of our clock as seconds of the node's."""
        return our_s / self.rate


def directive(
    node: Node, placement: Placement, job: Job, gang: Sequence[Node], terms: Terms
) -> wire.Directive:
    """The whole wish for one node."""
    state = placement.state
    if state in (PlacementState.BOOTING, PlacementState.PROBING) and placement.verdict is None:
        return _order(terms, wire.ORDER_PROBE, probe=_probe(placement, terms))
    if state in (PlacementState.PROBING, PlacementState.READY):
        return _order(terms, wire.ORDER_PREPARE, run=_run(node, placement, job, gang, terms, generation=0))
    if state == PlacementState.ACTIVE and placement.generation is not None:
        run = _run(node, placement, job, gang, terms, generation=placement.generation)
        return _order(terms, wire.ORDER_RUN, run=run)
    if state == PlacementState.DRAINING:
        drain = wire.DrainOrder(
            reason=placement.reason,
            save=placement.cut != Cut.BOUNDARY,
            within_s=terms.node_s(terms.rules.drain_s),
        )
        return _order(terms, wire.ORDER_DRAIN, drain=drain)
    if state in (PlacementState.RELEASING, PlacementState.GONE):
        return _order(terms, wire.ORDER_EXIT)
    return _order(terms, wire.ORDER_WAIT)


def _order(
    terms: Terms,
    order: str,
    probe: wire.ProbeOrder | None = None,
    run: wire.RunOrder | None = None,
    drain: wire.DrainOrder | None = None,
) -> wire.Directive:
    return wire.Directive(
        order=order,
        beat_s=terms.node_s(terms.rules.beat_s),
        run_lease_s=terms.node_s(terms.rules.run_lease_s),
        dead_man_s=terms.node_s(terms.rules.dead_man_s),
        probe=probe,
        run=run,
        drain=drain,
    )


def _probe(placement: Placement, terms: Terms) -> wire.ProbeOrder:
    model = GPUS[placement.offer.gpu]
    deadline_s = terms.rules.deadlines_s[PlacementState.PROBING]
    return wire.ProbeOrder(
        profile=terms.verify.profile,
        gpu=model.sku,
        gpus=placement.offer.gpus,
        nvml_name=model.nvml_name,
        nvml_memory_mib=model.nvml_memory_mib,
        compute_capability=model.compute_capability,
        baseline_tflops=model.measured_bf16_tflops,
        min_speed=terms.verify.min_speed,
        # The node's own cap must strike before our deadline, or a hang would never be named.
        timeout_s=min(150.0, 0.8 * terms.node_s(deadline_s)),
    )


def _run(
    node: Node, placement: Placement, job: Job, gang: Sequence[Node], terms: Terms, generation: int
) -> wire.RunOrder:
    spec = job.spec
    saved = spec.checkpoint
    addresses = [n.address or "127.0.0.1" for n in sorted(gang, key=lambda n: n.rank)]
    known = {
        "BROKER_JOB_ID": job.id,
        "BROKER_ATTEMPT": str(placement.attempt),
        "BROKER_GPUS_PER_NODE": str(placement.offer.gpus),
        "BROKER_CLOUD": placement.offer.cloud,
        "BROKER_REGION": placement.offer.region,
        "BROKER_ZONE": placement.offer.zone,
        "BROKER_MARKET": str(placement.offer.market),
    }
    return wire.RunOrder(
        job_id=job.id,
        generation=generation,
        run=spec.run,
        store=terms.store,
        setup=spec.setup,
        env={**spec.env, **known},
        source_sha256=spec.source.sha256 if spec.source else None,
        checkpoint_dir=saved.dir if saved else None,
        checkpoint_every_s=terms.node_s(saved.every_s) if saved else 0.0,
        keep_last=saved.keep_last if saved else 0,
        keep_metric=saved.keep_best.metric if saved and saved.keep_best else None,
        keep_mode=saved.keep_best.mode if saved and saved.keep_best else "min",
        rank=node.rank,
        nodes=spec.resources.nodes,
        node_addresses=addresses,
    )
