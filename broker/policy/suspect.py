"""What is read without a mistake and is one all the same, most likely: `broker policy check` warns of it. Pure.

    a bound that no value of the fact ever crosses     ``saving.fraction > 20.0``: shares are 0..1
    a number in another unit                           ``offer.price < 350.0`` is no price in cents; 35000.0 is one
    lines of one list that can never hold together     ``offer.price < 3.0`` and ``offer.price > 5.0``
    budgets of which the smaller makes the larger void

A warning keeps no file from being in force.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from broker.core.errors import Place, PolicyError
from broker.core.money import usd
from broker.policy.comparisons import Among, Comparison, Room, anywhere, conjuncts
from broker.policy.facts import FactType, fact_info
from broker.policy.schema import Condition, Policy

# Beyond these it is a number in another unit: twenty times what the dearest and largest machines have in 2026.
_PLAUSIBLE: Final[Mapping[str, tuple[float, str, float]]] = {
    "offer.price": (2000.0, "cents; prices are dollars", 100),
    "here.price": (2000.0, "cents; prices are dollars", 100),
    "offer.price_per_gpu": (300.0, "cents; prices are dollars", 100),
    "offer.gpu.memory_gib": (4096, "MiB", 1024),
    "offer.memory_gib": (65536, "MiB", 1024),
}
_NOT_NEGATIVE: Final = ("USD/h", "GiB", "0..1")
_MAY_BE_NEGATIVE: Final = ("saving.fraction",)


def warnings(policy: Policy) -> list[PolicyError]:
    """Each with its place, in the order of the file."""
    found: list[PolicyError] = []
    lists = _lists(policy)
    for conditions, all_hold in lists:
        for condition in conditions:
            found += _units(condition)
        known = _known(policy) if all_hold else {}
        for group in [conditions] if all_hold else [[condition] for condition in conditions]:
            found += _contradictions(group, known)
    found += _budgets(policy)
    return sorted(found, key=lambda e: (e.place.line, e.place.column) if e.place else (0, 0))


def _lists(policy: Policy) -> list[tuple[Sequence[Condition], bool]]:
    """Each list of conditions, and whether all of its lines have to hold."""
    return [
        (policy.candidates.where, True),
        (policy.place.skip_spot_when, False),
        (policy.migrate.where, True),
        (policy.stop.when if policy.stop else (), False),
    ]


def _known(policy: Policy) -> dict[str, tuple[Room, str]]:
    """What other keys of the file say of an offer already, with the key."""
    rooms = {}
    if policy.candidates.clouds:
        clouds = f"candidates.clouds: [{', '.join(policy.candidates.clouds)}]"
        rooms["offer.cloud"] = Room(among=frozenset(policy.candidates.clouds)), clouds
    order = f"place.order: [{', '.join(policy.place.order)}]"
    rooms["offer.market"] = Room(among=frozenset(market.value for market in policy.place.order)), order
    return rooms


def _units(condition: Condition) -> Iterable[PolicyError]:
    for part in anywhere(condition.text):
        info = fact_info(part.fact)
        if info is None or not isinstance(part.value, float) or not math.isfinite(part.value):
            continue
        told = _unit(part, info.unit)
        if told is not None:
            yield _warning(told[0], condition, part.at, told[1])


def _unit(part: Comparison, unit: str) -> tuple[str, str] | None:
    """What is wrong with the number, and what to write."""
    assert isinstance(part.value, float)
    number = f"{part.value:g}"
    if unit == "0..1" and part.value > 1:
        return (
            f"{part.fact} is a share, 1.0 at most: {number} is beyond it",
            f"write {part.value / 100:g} for {number} %",
        )
    if unit in _NOT_NEGATIVE and part.value < 0 and part.fact not in _MAY_BE_NEGATIVE:
        return f"{part.fact} is never negative: {number} is beyond it", "compare it with what it can be"
    if part.fact in _PLAUSIBLE:
        most, other, per = _PLAUSIBLE[part.fact]
        if part.value > most:
            shown = f"{part.value / per:g}"
            is_double = (info := fact_info(part.fact)) is not None and info.type is FactType.DOUBLE
            shown += ".0" if is_double and "." not in shown else ""
            return f"{part.fact} against {number} looks like {other}", f"write {shown}"
    return None


def _contradictions(
    conditions: Sequence[Condition], known: Mapping[str, tuple[Room, str]]
) -> Iterable[PolicyError]:
    """The first line of a list with which nothing is left for a fact, told with the one that it contradicts."""
    rooms = {fact: Room(among=room.among) for fact, (room, _) in known.items()}
    said: dict[str, list[str]] = {fact: [key] for fact, (_, key) in known.items()}
    for condition in conditions:
        for part in conjuncts(condition.text):
            if fact_info(part.fact) is None:
                continue
            room = rooms.setdefault(part.fact, Room())
            if room.is_empty():
                continue
            room.narrow(part)
            if room.is_empty():
                other = _against(part, said.get(part.fact, []))
                message = f"this can never hold: {part.text} contradicts {other}"
                yield _warning(message, condition, part.at, "take one of them out")
            said.setdefault(part.fact, []).append(f"{part.text} ({condition.place})")


def _against(part: Comparison | Among, said: Sequence[str]) -> str:
    return " and ".join(said) or f"what {part.fact} can be"


def _budgets(policy: Policy) -> Iterable[PolicyError]:
    budget = policy.budget
    if budget is None:
        return
    sizes = (
        ("budget.epoch_usd", budget.epoch_micro_usd, "budget.run_usd", budget.run_micro_usd),
        ("budget.run_usd", budget.run_micro_usd, "budget.month_usd", budget.month_micro_usd),
    )
    for small, part, large, whole in sizes:
        if part is not None and whole is not None and part > whole:
            never = f"{small} {usd(part):f} is more than {large} {usd(whole):f}: it never comes into play"
            yield PolicyError(f"{policy.file}: warning: {never}")


def _warning(message: str, condition: Condition, offset: int, hint: str) -> PolicyError:
    at = condition.at
    start = at.source.find(condition.text, at.column - 1)
    if start >= 0:
        at = Place(at.file, at.line, start + offset + 1, at.source)
    return PolicyError(f"warning: {message}", at, hint)
