"""How fast a job on paper trains, place by place."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.core.gpu import GPUS
from broker.core.offer import Offer
from broker.core.spec import JobSpec
from broker.decision.fit import speed_tflops


@dataclass(frozen=True)
class Pace:
    """True speed of the whole gang.

    Attributes:
        steps_per_s: By GPU SKU, one at least. On any other SKU the job trains in proportion to its rank speed
            (`broker.decision.fit.speed_tflops`), which is also what a decision expects of a GPU that nobody measured.
    """

    spec: JobSpec
    steps_per_s: Mapping[str, float]
    _seen: dict[str, float] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert self.steps_per_s, "a speed on one GPU at least"
        assert all(rate > 0 for rate in self.steps_per_s.values()), "speeds are positive"

    def on(self, offer: Offer) -> float:
        """Steps a second there."""
        rate = self._seen.get(offer.key)
        if rate is None:
            rate = self._seen[offer.key] = self._on(offer)
        return rate

    def _on(self, offer: Offer) -> float:
        told = self.steps_per_s.get(offer.gpu)
        if told is not None:
            return told
        sku, rate = min(self.steps_per_s.items())
        return rate * speed_tflops(offer, self.spec) / self._asked(sku)

    def _asked(self, sku: str) -> float:
        """Rank speed of the gang that the job asks for, on that SKU."""
        resources = self.spec.resources
        counts = [r.count for r in resources.gpus if r.type in (sku, GPUS[sku].family)]
        return GPUS[sku].speed * max(counts, default=resources.gpus[0].count) * resources.nodes
