"""A price list with two meters, made up in the shape of the real ones, with every fault that these have shown.

What is true is known here, so that nothing need be guessed by looking ahead. Real steps are small and places close
together: whoever moves has believed something false.
"""

from dataclasses import dataclass
from decimal import Decimal
from random import Random

from broker.core.offer import Market, Offer
from tests.replay.recording import Recording, Series

HOUR_MS = 3_600_000
START_MS = 1_775_000_000_000
REGIONS = ("eastus", "westus2", "westeurope", "uksouth", "japaneast", "centralindia")
# Size, GPU, vCPUs, dollars an hour on demand and spot.
SIZES = (
    ("Standard_NC24ads_A100_v4", "A100-PCIe-80GB", 24, "3.673", "0.735"),
    ("Standard_NC40ads_H100_v5", "H100-NVL-94GB", 40, "6.98", "2.19"),
)
_SPREAD = 0.05
_STEP = 0.05
_FAULTS_A_POLL = 0.08
# Polls after which a step is believed, with faults between.
_SETTLES = 12
# A meter that is dearer by another amount, as those of the V100 sizes are.
_OTHER_LICENCE = Decimal("1.3")


@dataclass(frozen=True)
class Made:
    """A recording and the truth behind it.

    Attributes:
        truth: By offer key, the price at each poll, in micro-USD an hour.
    """

    recording: Recording
    truth: dict[str, list[int]]


def make(seed: int, polls: int = 48) -> Made:
    """The same for the same seed."""
    random = Random(seed)
    series: dict[str, Series] = {}
    truth: dict[str, list[int]] = {}
    for number, region in enumerate(REGIONS):
        for size, gpu, vcpus, on_demand, spot in SIZES:
            true = {
                Market.ON_DEMAND: _steps(random, Decimal(on_demand), "0.001", polls),
                Market.SPOT: _steps(random, Decimal(spot), "0.000001", polls),
            }
            licence = Decimal("0.046") * vcpus
            with_licence = {
                Market.ON_DEMAND: [price + licence for price in true[Market.ON_DEMAND]],
                Market.SPOT: [
                    (spot * (1 + licence / dear)).quantize(Decimal("0.000001"))
                    for spot, dear in zip(true[Market.SPOT], true[Market.ON_DEMAND], strict=True)
                ],
            }
            steps = [
                poll
                for poll in range(1, polls)
                for prices in true.values()
                if prices[poll] != prices[poll - 1]
            ]
            for market in (Market.ON_DEMAND, Market.SPOT):
                offer = Offer("azure", region, region, size, market, gpu, 1, vcpus=vcpus)
                dearer = [
                    price + (more - price) * _OTHER_LICENCE
                    for price, more in zip(true[market], with_licence[market], strict=True)
                ]
                texts = _read(random, true[market], with_licence[market], dearer, steps)
                if number == len(REGIONS) - 1:
                    texts[0] = str(with_licence[market][0])
                series[offer.key] = Series(offer, texts)
                truth[offer.key] = [round(price * 1_000_000) for price in true[market]]
    times = [START_MS + poll * 3 * HOUR_MS for poll in range(polls)]
    return Made(Recording("azure", "azure:retail", times, series), truth)


def _steps(random: Random, price: Decimal, digits: str, polls: int) -> list[Decimal]:
    """A price that may step once."""
    price *= Decimal(str(1 + random.uniform(0, _SPREAD)))
    at = random.randrange(8, 2 * polls)
    after = price * Decimal(str(1 + random.uniform(-_STEP, _STEP)))
    return [(after if poll >= at else price).quantize(Decimal(digits)) for poll in range(polls)]


def _read(
    random: Random,
    true: list[Decimal],
    with_licence: list[Decimal],
    dearer: list[Decimal],
    steps: list[int],
) -> list[str | None]:
    """What the list says; `steps` are the polls in which a price of the machine changes."""
    texts: list[str | None] = [str(price) for price in true]
    poll = 1
    while poll < len(true):
        if random.random() >= _FAULTS_A_POLL:
            poll += 1
            continue
        kind = random.choice(
            ["licence", "licence", "licence", "long licence", "other", "other", "gone", "no price"]
        )
        lasts = random.randint(5, 9) if kind == "long licence" else random.randint(1, 3)
        factor = random.choice([None, Decimal("0.6"), Decimal("1.6"), Decimal("1.9")])
        nonsense = random.choice(["0", "NaN", "-1", str(true[poll] * 100), str(true[poll] / 97)])
        until = min(poll + lasts, len(true))
        if kind == "long licence" and any(poll - _SETTLES <= at < until for at in steps):
            # By how much the licence is dearer than a price that is not yet believed, nobody knows.
            until = poll + 1
        for at in range(poll, until):
            texts[at] = {
                "gone": None,
                "no price": nonsense,
                "other": str((true[poll] * factor if factor else dearer[poll]).quantize(Decimal("0.001"))),
            }.get(kind, str(with_licence[at]))
            if kind == "no price":
                break
        # After a fault the list is right for once, or nobody could tell one fault from the next.
        poll = until + 1
    return texts
