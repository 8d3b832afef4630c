"""What happens in a rehearsal: prices, stock and moments, by seed. The ratios of the price jump hold in every seed.

AWS spot, first zone     base                 x 1.9 at the jump
GCP spot                 0.8 x base           no stock until the jump, then for one machine, gone after the interruption
AWS spot, other zones    1.05 .. 1.35 x base  in stock
AWS on demand            2.2 x base           in stock
"""

import random
from dataclasses import dataclass

JUMP = 1.9
GCP_SHARE = 0.8

FIRST = "aws/use1-az6/p5.4xlarge/spot"
GCP = "gcp/us-central1-a/a3-highgpu-1g/spot"

_BASE_USD_H = 3.1046
_SECOND = "aws/use1-az2/p5.4xlarge/spot"
_THIRD = "aws/use1-az1/p5.4xlarge/spot"


@dataclass(frozen=True)
class Play:
    """One rehearsal.

    Attributes:
        seed: 0 is the one in the README.
        prices_usd_h: Offer key to dollars an hour at the start; a key ending in ``*`` names every offer that begins so.
        stock: Offer key to machines that can be had at the start; what is not named has plenty.
        jump_at: Share of the steps after which the price jumps.
        interrupt_at: Share of the steps after which the new node is taken back; not before it has trained a while.
    """

    seed: int
    prices_usd_h: dict[str, float]
    stock: dict[str, int]
    jump_at: float
    interrupt_at: float

    @property
    def base_usd_h(self) -> float:
        """Of the first AWS zone."""
        return self.prices_usd_h[FIRST]


def play(seed: int) -> Play:
    """The rehearsal of a seed."""
    draw = random.Random(seed)
    base = _BASE_USD_H if seed == 0 else round(_BASE_USD_H * draw.uniform(0.5, 1.5), 4)
    second = 1.08 if seed == 0 else draw.uniform(1.05, 1.35)
    third = 1.12 if seed == 0 else draw.uniform(1.05, 1.35)
    prices = {
        FIRST: base,
        _SECOND: round(base * second, 4),
        _THIRD: round(base * third, 4),
        GCP: round(base * GCP_SHARE, 6),
        "aws/*/p5.4xlarge/on_demand": round(base * 2.2, 4),
    }
    stock = {"gcp/*/a3-highgpu-1g/spot": 0}
    if seed:
        # Some seeds empty one of the other zones; never both, or there would be nowhere to land cheaply.
        empty = draw.choice([None, _SECOND, _THIRD])
        if empty is not None:
            stock[empty] = 0
    return Play(
        seed=seed,
        prices_usd_h=prices,
        stock=stock,
        jump_at=0.20 if seed == 0 else draw.uniform(0.15, 0.22),
        interrupt_at=0.66 if seed == 0 else draw.uniform(0.62, 0.70),
    )
