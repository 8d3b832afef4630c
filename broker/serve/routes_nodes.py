"""``/api/v1``: nodes and placements. Reads only."""

from typing import Annotated

from fastapi import APIRouter, Query

from broker.core.audit import Audit
from broker.core.model import Placement
from broker.serve.auth import Broker, Viewer
from broker.serve.beats import reasons_of
from broker.serve.views import Listing, NodeView, ProbeView, node_view

router = APIRouter(prefix="/api/v1")


@router.get("/nodes", tags=["nodes"])
def nodes(
    viewer: Viewer,
    broker: Broker,
    all: Annotated[bool, Query(description="Also those that are gone.")] = False,
) -> Listing[NodeView]:
    """Nodes of the caller's project."""
    with broker.store.read() as tx:
        rows = tx.nodes(open_only=not all)
    items = [node_view(node) for node in rows if viewer.sees(node.project_id)]
    return Listing(at_ms=broker.clock.now_ms(), items=items)


@router.get("/nodes/unowned", tags=["nodes"])
def unowned(_viewer: Viewer, broker: Broker) -> Audit:
    """Machines with our tag that no row wants, as of the last search of each cloud; asks no cloud."""
    return broker.unowned()


@router.get("/placements", tags=["nodes"])
def placements(
    viewer: Viewer,
    broker: Broker,
    all: Annotated[bool, Query(description="Also those that are gone.")] = False,
) -> Listing[Placement]:
    """Placements of the caller's project."""
    with broker.store.read() as tx:
        rows = tx.placements(open_only=not all)
    items = [placement for placement in rows if viewer.sees(placement.project_id)]
    return Listing(at_ms=broker.clock.now_ms(), items=items)


@router.get("/placements/{placement_id}/probes", tags=["nodes"])
def probes(placement_id: str, viewer: Viewer, broker: Broker) -> Listing[ProbeView]:
    """What the probe said of a placement's nodes."""
    with broker.store.read() as tx:
        placement = tx.placement(placement_id)
        reports = tx.probe_reports(placement_id=placement_id)
    shown = placement is not None and viewer.sees(placement.project_id)
    items = [
        ProbeView(
            report.node_token,
            report.placement_id,
            report.at_ms,
            report.verdict,
            reasons_of(report.report),
        )
        for report in (reports if shown else ())
    ]
    return Listing(at_ms=broker.clock.now_ms(), items=items)
