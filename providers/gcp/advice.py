"""Compute Engine's Capacity Advisor: what spot machines cost and did cost, how many were preempted, and how likely a
request is to succeed. Calls and their replies; who asks what and when is in `spot` and `hints`.

Prices are asked for a region, since they are the same in all of its zones; rates of preemption for a zone. A price
belongs to a machine type with the GPUs and local SSDs that come with it. Not every project may ask: whoever is refused
is told so at once and not asked again for a day.

Sources: `advice` in the discovery document of compute v1, and Google's guides "View the preemption rate and pricing
for Spot VMs" and "View the availability of Spot VMs", 2026-11: prices of a year, changing at midnight Pacific, with gaps
where there are no data; rates by the day of the last 30 days.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

from google.api_core import exceptions as api
from google.cloud import compute_v1

from broker.core.errors import Denied
from broker.core.ports import Clock
from broker.core.time import DAY_S, MS, from_iso
from providers.gcp.clients import Clients
from providers.gcp.errors import from_reply, translated
from providers.gcp.settings import GcpOptions

T = TypeVar("T")

HISTORY = "advice.capacityHistory"
CAPACITY = "advice.capacity"

_REFUSED_FOR_MS = DAY_S * MS
_OF_THE_QUESTION = (400, 404)  # this machine type, or this place
_OF_THE_METHOD = (405, 501)


@dataclass(frozen=True)
class SpotPrice:
    """What a machine type costs an hour from a moment to another one, exclusive; None is for as long as is known."""

    amount: Decimal
    currency: str
    from_ms: int
    to_ms: int | None


@dataclass(frozen=True)
class Refusal:
    """That we may not ask, for a day."""

    at_ms: int
    text: str


class Advisor:
    """Asks, and remembers what it may not ask. A refused question has no answer: None.

    Every method raises `ProviderError` where the call failed in a way that another try may mend.
    """

    def __init__(self, options: GcpOptions, clients: Clients, clock: Clock) -> None:
        self._project = options.project
        self._clients = clients
        self._clock = clock
        self._refusals: dict[tuple[str, ...], Refusal] = {}

    def prices(self, region: str, machine_type: str) -> list[SpotPrice] | None:
        """Every known price of a type, oldest first."""
        found = self._history(region, machine_type, "PRICE", None, _prices)
        return None if found is None else sorted(found, key=lambda price: price.from_ms)

    def preemption_rate(self, zone: str, machine_type: str) -> float | None:
        """Of the spot machines that stopped on the newest whole day, the share that was preempted, 0 to 1."""
        now_ms = self._clock.now_ms()
        found = self._history(
            zone.rpartition("-")[0], machine_type, "PREEMPTION", zone, lambda answer: _rates(answer, now_ms)
        )
        return max(found)[1] if found else None

    def obtainability(self, zone: str, machine_type: str) -> float | None:
        """How likely one spot machine can be had there now, 0 to 1."""
        policy = {"instance_selections": {"wanted": {"machine_types": [machine_type]}}}
        asked = compute_v1.CapacityAdviceRequest(
            size=1,
            instance_properties={"scheduling": {"provisioning_model": "SPOT"}},
            instance_flexibility_policy=policy,
            distribution_policy={"target_shape": "ANY_SINGLE_ZONE", "zones": [{"zone": f"zones/{zone}"}]},
        )
        request = compute_v1.CapacityAdviceRpcRequest(
            project=self._project, region=zone.rpartition("-")[0], capacity_advice_request_resource=asked
        )
        return self._ask(
            CAPACITY,
            (zone, machine_type),
            lambda: _obtainability(self._clients.advice.capacity(request, **self._clients.call)),
        )

    def refusal(self, method: str, *question: str) -> Refusal | None:
        """Whether the whole method is refused, or a question to it: a place and a machine type."""
        return self._held((method, *question))

    def forget(self, method: str) -> None:
        """Ask again what was refused."""
        self._refusals = {key: value for key, value in self._refusals.items() if key[0] != method}

    def _history(
        self, region: str, machine_type: str, kind: str, zone: str | None, read: Callable[[Any], list[T]]
    ) -> list[T] | None:
        asked = compute_v1.CapacityHistoryRequest(
            types=[kind],
            instance_properties={
                "machine_type": machine_type,
                "scheduling": {"provisioning_model": "SPOT"},
            },
        )
        if zone is not None:
            asked.location_policy = {"location": f"zones/{zone}"}
        request = compute_v1.CapacityHistoryAdviceRequest(
            project=self._project, region=region, capacity_history_request_resource=asked
        )
        return self._ask(
            HISTORY,
            (zone or region, machine_type),
            lambda: read(self._clients.advice.capacity_history(request, **self._clients.call)),
        )

    def _ask(self, method: str, question: tuple[str, ...], call: Callable[[], T]) -> T | None:
        if self._held((method,)) or self._held((method, *question)):
            return None
        doing = f"asking {method} about {' '.join(question)}"
        with translated(doing):
            try:
                return call()
            except api.GoogleAPICallError as error:
                refused = _refused(error, doing)
                if refused is None:
                    raise
                key = (method, *question) if refused == "question" else (method,)
                self._refusals[key] = Refusal(self._clock.now_ms(), f"{error.code}: {error.message}")
                return None

    def _held(self, key: tuple[str, ...]) -> Refusal | None:
        refusal = self._refusals.get(key)
        lasting = refusal is not None and self._clock.now_ms() - refusal.at_ms < _REFUSED_FOR_MS
        return refusal if lasting else None


def _refused(error: api.GoogleAPICallError, doing: str) -> str | None:
    """How far a refusal reaches: the question or the method; None when it is a failure of another kind.

    A 403 may also be throttling, and a 401 are credentials that nothing else would accept either.
    """
    status = int(error.code or 0)
    if status in _OF_THE_METHOD or (status == 403 and isinstance(from_reply(error, doing), Denied)):
        return "method"
    return "question" if status in _OF_THE_QUESTION else None


def _prices(answer: Any) -> list[SpotPrice]:
    return [
        SpotPrice(
            amount=Decimal(record.list_price.units) + Decimal(record.list_price.nanos) / 10**9,
            currency=record.list_price.currency_code,
            from_ms=from_iso(record.interval.start_time),
            to_ms=from_iso(record.interval.end_time) if record.interval.end_time else None,
        )
        for record in answer.price_history
        if record.interval.start_time
    ]


def _rates(answer: Any, now_ms: int) -> list[tuple[int, float]]:
    """(end, rate) of the days that are over; of the running one when there are no others."""
    days = [
        (from_iso(record.interval.end_time), float(record.preemption_rate))
        for record in answer.preemption_history
        if record.interval.end_time
    ]
    return [day for day in days if day[0] <= now_ms] or days


def _obtainability(answer: Any) -> float | None:
    """Of the first recommendation: the service gives one."""
    for recommendation in answer.recommendations:
        return float(recommendation.scores.obtainability)
    return None
