"""``/api/v1/audit``: rows, clouds and checkpoint store compared, and what was shown carried out."""

from typing import Annotated

from fastapi import APIRouter, Body

from broker.core.audit import Applied, Audit
from broker.serve.auth import Broker, Operator

router = APIRouter(prefix="/api/v1", tags=["audit"])


@router.get("/audit")
async def audit(_operator: Operator, broker: Broker) -> Audit:
    """Ask every cloud and the store, compare, and say what would be done. Changes nothing; takes seconds.

    A part with `unasked` could not be asked in full: nothing is concluded from its silence.
    """
    return await broker.audit()


@router.post("/audit/apply")
async def apply(
    operator: Operator,
    broker: Broker,
    ids: Annotated[
        list[str],
        Body(embed=True, description="Of discrepancies that an audit has shown.", max_length=10_000),
    ],
) -> Applied:
    """Look again, and do what still is so: end machines that no row wants, close segments. Nothing beyond `ids`."""
    return await broker.apply_audit(frozenset(ids), operator.name)
