"""How long a placement lasts, and how much of it a deadline can spare.

Lifetimes come from our own history through the snapshot (`broker.market.lifetimes`). They are those of whole
placements, gangs included, so nothing is corrected here for the number of nodes.
"""

import math

from broker.core.offer import SPOT_PRIOR_LIFE_S, Market, MarketSnapshot, Offer

WORK_MARGIN = 1.05
"""How much longer the work may take than we think before a deadline is in danger: a job's speed varies by some per cent.

What it costs is seen where time is short. `ride-the-spot` on V100 spot of AWS (github.com/andylizf/skynomad-artifact, 9
zones, 20 jobs of 40 h in 44 h): 1.62 times the optimum with a margin of 1.1, which pays for on-demand from the first hour
on, and 1.19 with 1.05 or less. In 50 h and more the margin makes no difference. No deadline was missed with any, but on
that grid every job keeps its speed.
"""

USEFUL_SHARE_MIN = 0.1
"""A place where less than this share of a life is training is no place at all."""


def life_s(offer: Offer, snapshot: MarketSnapshot) -> float:
    """Expected seconds from landing to interruption; infinite where the cloud does not interrupt."""
    if offer.market is not Market.SPOT:
        return math.inf
    pool = f"{offer.cloud}/{offer.zone}/{offer.instance_type}"
    return snapshot.spot_life_s.get(pool, SPOT_PRIOR_LIFE_S)


def useful_s(life: float, lost_each_s: float) -> float:
    """Seconds of training in one life, when starting and repeating cost `lost_each_s` of it.

    Never less than a tenth of the life: where a job already runs, it gets at least that far.
    """
    return max(life - lost_each_s, USEFUL_SHARE_MIN * life)


def is_hopeless(life: float, lost_each_s: float) -> bool:
    """Whether a start there would hardly reach training before the interruption."""
    return life - lost_each_s < USEFUL_SHARE_MIN * life


def spot_fits(work_s: float, start_up_s: float, left_s: float) -> bool:
    """Whether a job may still gamble on spot: the work with its margin and two starts fit before the deadline.

    The second start is the one on on-demand after an interruption. This is the safety net of Uniform Progress
    (Wu et al., "Can't Be Late", NSDI 2024): on-demand as soon as the time left is under work + 2 start-ups.
    """
    return work_s * WORK_MARGIN + 2 * start_up_s <= left_s
