"""How long spot placements have lived, by pool: what `broker.decision.risk` reckons with. Pure.

Kaplan-Meier, so that placements we ended ourselves count for as long as they lasted, with one pseudo-observation:
a pool with a short past is drawn to the prior, and no pool is ever thought immortal or dead on arrival.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from broker.core.model import EndedBy, Segment
from broker.core.offer import SPOT_PRIOR_LIFE_S, Market
from broker.core.time import MS


@dataclass(frozen=True)
class Spell:
    """One stay of a placement.

    Attributes:
        seconds: How long it lasted, or has lasted.
        interrupted: The cloud ended it; otherwise it only lived at least so long.
    """

    seconds: float
    interrupted: bool


def spot_lives(segments: Iterable[Segment], now_ms: int) -> Mapping[str, float]:
    """Expected seconds to interruption by ``cloud/zone/instance_type``, of pools that we have been in.

    A gang is one spell: it ends when the cloud takes the first of its nodes.
    """
    placements: dict[str, list[Segment]] = {}
    for segment in segments:
        if segment.offer.market is Market.SPOT:
            placements.setdefault(segment.placement_id, []).append(segment)
    pools: dict[str, list[Spell]] = {}
    for gang in placements.values():
        offer = gang[0].offer
        pools.setdefault(f"{offer.cloud}/{offer.zone}/{offer.instance_type}", []).append(_spell(gang, now_ms))
    return {pool: expected_life_s(spells) for pool, spells in pools.items()}


def expected_life_s(spells: Iterable[Spell], prior_s: float = SPOT_PRIOR_LIFE_S) -> float:
    """Mean of the Kaplan-Meier curve of the spells and of one more that lasted as long as the prior says.

    When the longest spell has not ended, Lindy: what is left of the curve lasts as long again as it has.
    """
    ordered = sorted(
        (*spells, Spell(prior_s, True)), key=lambda spell: (spell.seconds, not spell.interrupted)
    )
    alive, mean_s, at_s = 1.0, 0.0, 0.0
    for position, spell in enumerate(ordered):
        mean_s += alive * (spell.seconds - at_s)
        at_s = spell.seconds
        if spell.interrupted:
            at_risk = len(ordered) - position
            alive *= 1 - 1 / at_risk
    return mean_s + alive * at_s


def _spell(gang: list[Segment], now_ms: int) -> Spell:
    began_ms = min(segment.started_at_ms for segment in gang)
    taken = [s.ended_at_ms for s in gang if s.ended_by is EndedBy.CLOUD and s.ended_at_ms is not None]
    ended_ms = min(taken) if taken else max(s.ended_at_ms or now_ms for s in gang)
    return Spell(max(0, ended_ms - began_ms) / MS, bool(taken))
