"""``/api/v1``: the market, nodes and placements. Reads only."""

from collections.abc import Collection
from typing import Annotated

from fastapi import APIRouter, Query

from broker.core.audit import Audit
from broker.core.errors import UsageError
from broker.core.gpu import FAMILIES, GPUS
from broker.core.model import Placement
from broker.core.offer import Market, Quote
from broker.core.yaml_text import did_you_mean
from broker.serve.auth import Broker, Viewer
from broker.serve.beats import reasons_of
from broker.serve.views import Listing, NodeView, ProbeView, QuoteView, node_view, quote_views
from broker.settings import CLOUDS

router = APIRouter(prefix="/api/v1")


@router.get("/prices", tags=["market"])
def prices(
    _viewer: Viewer,
    broker: Broker,
    gpu: Annotated[str | None, Query(description="Family or exact SKU.")] = None,
    count: Annotated[int | None, Query(description="GPUs per instance.")] = None,
    market: Market | None = None,
    cloud: str | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Listing[QuoteView]:
    """Accepted quotes as of now, whatever their age, cheapest per GPU first; unknown names are refused."""
    snapshot = broker.snapshot()
    if gpu is not None:
        _known("gpu", gpu, (*FAMILIES, *GPUS))
    if cloud is not None:
        _known("cloud", cloud, CLOUDS)

    def wanted(quote: Quote) -> bool:
        offer = quote.offer
        return (
            (gpu is None or gpu.lower() in (offer.gpu.lower(), offer.model.family.lower()))
            and count in (None, offer.gpus)
            and market in (None, offer.market)
            and (cloud is None or cloud.lower() == offer.cloud)
        )

    found = sorted(
        filter(wanted, snapshot.quotes.values()),
        key=lambda quote: (quote.price_micro_usd_h / quote.offer.gpus, quote.offer.key),
    )
    return Listing(at_ms=snapshot.at_ms, items=quote_views(snapshot, found[:limit]))


def _known(what: str, word: str, names: Collection[str]) -> None:
    if word.lower() not in {name.lower() for name in names}:
        hint = did_you_mean(word, names) or f"known are {', '.join(sorted(names))}"
        raise UsageError(f"{what}: there is no {word!r}", hint=hint)


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
