"""``/healthz`` and ``/readyz``: is the process alive, and does it do its work. Without a token, and without details.

Ready means: a reconcile pass has finished, and the last one not too long ago.
"""

from dataclasses import dataclass

from fastapi import APIRouter, Response

from broker.serve.auth import Broker

# A pass may wait for a cloud's time-out; four of them in a row may not.
READY_WITHIN_S = 120.0

router = APIRouter(tags=["health"])


@dataclass(frozen=True)
class Readiness:
    """Whether the daemon does its work.

    Attributes:
        pass_age_s: Real seconds since a reconcile pass finished; null before the first.
    """

    ready: bool
    pass_age_s: float | None


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The loop turns: it has answered this."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(broker: Broker, response: Response) -> Readiness:
    """200 when work gets done, 503 when not."""
    age_s = broker.health().pass_age_s
    ready = age_s is not None and age_s < READY_WITHIN_S
    response.status_code = 200 if ready else 503
    return Readiness(ready, age_s)
