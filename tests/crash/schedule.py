"""Which deaths a seed draws, and when."""

import random
from dataclasses import dataclass
from enum import StrEnum

from tests.crash.armed import INSIDE


class Victim(StrEnum):
    """What is killed."""

    DAEMON = "daemon"  # at a random moment
    EFFECT = "effect"  # the daemon, at a named moment
    AGENT = "agent"  # never to come back
    STORE = "store"


_SHARES = {Victim.DAEMON: 0.30, Victim.EFFECT: 0.36, Victim.AGENT: 0.18, Victim.STORE: 0.16}
MOMENTS = (
    *(f"{e} {m}" for e in ("CreateNode", "FindNode", "DeleteNode", "Fence") for m in ("before", "after")),
    INSIDE,
)
# Of the daemon's random deaths, those that come while it starts.
_IN_ITS_START = 0.3


@dataclass(frozen=True)
class Kill:
    """One death. All times are real seconds.

    Attributes:
        moment: For an effect: where the daemon dies.
        wait_s: From the death before.
        down_s: Until it is started again.
        in_its_start: The daemon is not given the time to come up first.
        pick: From 0 to 1: which of those that could be killed.
        together: In the same moment the cloud takes the agent's machine, which else runs on until somebody ends it; or
            the daemon dies with the store.
    """

    victim: Victim
    wait_s: float
    moment: str = ""
    down_s: float = 0.0
    in_its_start: bool = False
    pick: float = 0.0
    together: bool = False

    def __str__(self) -> str:
        text = self.moment if self.victim is Victim.EFFECT else str(self.victim)
        if self.in_its_start:
            text += " in its start"
        other = {Victim.AGENT: "its machine", Victim.STORE: "the daemon"}.get(self.victim)
        return f"{text}, and {other}" if self.together else text


def draw(seed: int, kills: int) -> list[Kill]:
    """The deaths of a seed: of each kind its share, and at least one as soon as there are as many as kinds."""
    dice = random.Random(seed)
    victims = _victims(kills)
    dice.shuffle(victims)
    moments: list[str] = []
    drawn = []
    for victim in victims:
        if victim is Victim.EFFECT and not moments:
            moments = dice.sample(MOMENTS, len(MOMENTS))
        in_its_start = victim is Victim.DAEMON and dice.random() < _IN_ITS_START
        drawn.append(
            Kill(
                victim,
                wait_s=dice.uniform(0.3, 2.5) if in_its_start else dice.uniform(0.5, 5.0),
                moment=moments.pop() if victim is Victim.EFFECT else "",
                down_s=dice.uniform(0.0, 2.0),
                in_its_start=in_its_start,
                pick=dice.random(),
                together=victim in (Victim.AGENT, Victim.STORE) and dice.random() < 0.5,
            )
        )
    return drawn


def _victims(kills: int) -> list[Victim]:
    """Largest remainders, the rarest kind first where they are equal."""
    exact = {victim: share * kills for victim, share in _SHARES.items()}
    counts = {victim: int(number) for victim, number in exact.items()}
    by_rest = sorted(_SHARES, key=lambda victim: (counts[victim] - exact[victim], _SHARES[victim]))
    for victim in by_rest[: kills - sum(counts.values())]:
        counts[victim] += 1
    return [victim for victim, count in counts.items() for _ in range(count)]
