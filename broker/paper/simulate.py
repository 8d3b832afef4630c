"""What a job may cost, how long it may take and how often it may be interrupted: the same play over many markets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from broker.core.offer import SPOT_PRIOR_LIFE_S, Market
from broker.core.time import DAY_S, HOUR_S, MS
from broker.paper.history import HistoryMarket
from broker.paper.resample import Asking, Days, Resampled, cheapest_of, cut, percentiles
from broker.paper.run import Terms, play
from broker.paper.shadow import Plan, Way

_DAY_MS = DAY_S * MS
# Offers of one market and speed that are weighed at a time: each takes its time. More where a line of a policy may refuse some.
_CHEAPEST, _CHEAPEST_OF_SOME = 2, 10
_SLOTS_S = (900, 1800, 3600, 7200, 14_400)


@dataclass(frozen=True)
class Fate:
    """What became of one run.

    Attributes:
        cost_micro_usd: Until it finished, or until the end of its time.
        hours: None where it did not finish in time.
    """

    cost_micro_usd: int
    hours: float | None
    interruptions: int
    moves: int


@dataclass(frozen=True)
class Spread:
    """Of one number over all runs: the value that so many of 100 runs do not exceed."""

    p10: float
    p50: float
    p90: float


@dataclass(frozen=True)
class Forecast:
    """All runs of one way.

    Attributes:
        cost_usd: Of all runs.
        hours: Of those that finished; None when none did.
        unfinished: Share of runs that did not.
        late: Share of runs that did not finish before the job's deadline; None without one.
        costs_usd: Of each run, ascending.
    """

    name: str
    runs: int
    cost_usd: Spread
    hours: Spread | None
    interruptions: Spread
    moves: Spread
    unfinished: float
    late: float | None
    costs_usd: Sequence[float]


@dataclass(frozen=True)
class Study:
    """What is the same in all runs.

    Attributes:
        days: The history.
        cheapest: How many offers of each market and speed are weighed at a time.
        asking: When each way is asked.
        from_ms: When the job is submitted, in each run.
        until_ms: When a run is given up.
    """

    plan: Plan
    ways: Sequence[Way]
    days: Days
    cheapest: int
    asking: Sequence[Asking]
    terms: Terms
    lives_s: dict[str, float]
    from_ms: int
    until_ms: int
    seed: int

    def fates(self, run: int) -> list[Fate]:
        """One run of each way, over the same market."""
        found = []
        for way, asking in zip(self.ways, self.asking, strict=True):
            market = Resampled(
                self.days,
                self.from_ms,
                self.until_ms,
                asking=asking,
                lives_s=self.lives_s,
                seed=self.seed,
                run=run,
            )
            job = self.plan.job(self.from_ms, way.policy.name)
            outcome = play(job, way.policy, market, self.terms, self.until_ms)
            ended = outcome.finished_ms
            hours = None if ended is None else (ended - self.from_ms) / MS / HOUR_S
            found.append(Fate(outcome.cost_micro_usd, hours, outcome.interruptions, outcome.moves))
        return found


def study(
    plan: Plan,
    ways: Sequence[Way],
    market: HistoryMarket,
    terms: Terms,
    now_ms: int,
    *,
    runs: int,
    seed: int,
    asks: int,
) -> Study | None:
    """What to run; None where the history has no whole day.

    Args:
        asks: About how often policies may be asked in all runs together: slots of the history are as long as that needs.
    """
    if market.first_ms is None:
        return None
    points = {offer: market.points(offer) for offer in market.offers}
    first_ms = min(point.effective_at_ms for held in points.values() for point in held)
    count = (now_ms - max(first_ms, market.from_ms)) // _DAY_MS
    if count == 0:
        return None
    expected_days = plan.work_s / DAY_S
    some = any(way.policy.candidates.where for way in ways)
    cheapest = _CHEAPEST_OF_SOME if some else _CHEAPEST
    days, asking = None, list[Asking]()
    for slot_s in _SLOTS_S:
        days = cheapest_of(cut(points, now_ms - count * _DAY_MS, now_ms, slot_s * MS), plan.spec, cheapest)
        asking = [_asking(days, way) for way in ways]
        if sum(map(len, asking)) / count * expected_days * runs <= asks:
            break
    assert days is not None
    horizon_ms = 4 * plan.work_s * MS + 2 * _DAY_MS
    lives = {
        f"{offer.cloud}/{offer.zone}/{offer.instance_type}": SPOT_PRIOR_LIFE_S
        for offer in days.offers
        if offer.market is Market.SPOT
    } | dict(market.spot_life_s(now_ms))
    return Study(plan, ways, days, cheapest, asking, terms, lives, now_ms, now_ms + horizon_ms, seed)


def _asking(days: Days, way: Way) -> Asking:
    migrate = way.policy.migrate
    return days.asking(migrate.hold_s * MS) if migrate.enabled else days.rarely


def forecasts(study: Study, fates: Iterable[Sequence[Fate]]) -> list[Forecast]:
    """Of each way, over all runs; there must be one."""
    rows = list(fates)
    deadline_ms = study.plan.spec.deadline_ms
    in_time_h = None if deadline_ms is None else (deadline_ms - study.from_ms) / MS / HOUR_S
    return [
        _forecast(way.name, [row[number] for row in rows], in_time_h) for number, way in enumerate(study.ways)
    ]


def _forecast(name: str, fates: Sequence[Fate], in_time_h: float | None) -> Forecast:
    costs = sorted(fate.cost_micro_usd / 1_000_000 for fate in fates)
    hours = [fate.hours for fate in fates if fate.hours is not None]
    late = None
    if in_time_h is not None:
        late = sum(fate.hours is None or fate.hours > in_time_h for fate in fates) / len(fates)
    return Forecast(
        name=name,
        runs=len(fates),
        cost_usd=Spread(*percentiles(costs)),
        hours=Spread(*percentiles(hours)) if hours else None,
        interruptions=Spread(*percentiles(float(fate.interruptions) for fate in fates)),
        moves=Spread(*percentiles(float(fate.moves) for fate in fates)),
        unfinished=1 - len(hours) / len(fates),
        late=late,
        costs_usd=costs,
    )
