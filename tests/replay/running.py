"""A recording through the real market: each poll judged and kept in a database, then each job's decision."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

from broker.core.gpu import GPUS
from broker.core.model import (
    Commit,
    Decision,
    DecisionKind,
    Job,
    Placement,
    PlacementState,
    Progress,
    Purpose,
)
from broker.core.offer import Market, MarketSnapshot, Offer, Quote, RawQuote
from broker.core.spec import Checkpoint, GpuRequest, JobSpec, Resources
from broker.core.time import format_duration
from broker.decision.plan import decide
from broker.decision.subject import Subject, World
from broker.market.intake import Taken, take_in
from broker.market.quarantine import Doubt, Sifted, price_of
from broker.market.snapshot import build_snapshot
from broker.policy.schema import Limits, Migrate, Mode, Place, Policy
from broker.store.history import HistoryStore, Poll
from broker.store.state import StateStore
from tests.clocks import CountingIds, ManualClock
from tests.replay.recording import Recording

# As eager as a policy can be: what a saving of a fifth says at one moment is done at once.
EAGER = Policy(
    "replay",
    "f" * 64,
    "replay.yaml",
    mode=Mode.ACT,
    place=Place((Market.SPOT, Market.ON_DEMAND)),
    migrate=Migrate(min_saving=0.20, min_saving_micro_usd=0, hold_s=0, cooldown_s=0),
    limits=Limits(migrations_per_job_per_day=None),
)
_HOURS_LEFT = 200
_EGRESS_MICRO_USD_PER_GIB = 20_000
_GIB = 2**30
_NEAR = Decimal("1.15")

TakeIn = Callable[[HistoryStore, Iterable[RawQuote], int], Taken]


@dataclass(frozen=True)
class Move:
    """A decision to move.

    Attributes:
        here_micro_usd_h, there_micro_usd_h: The prices that it was made on.
    """

    job: str
    poll: int
    here: str
    there: str
    here_micro_usd_h: int
    there_micro_usd_h: int
    decision: Decision


@dataclass
class Outcome:
    """What became of a recording.

    Attributes:
        believed: By poll, the price of every offer, in micro-USD an hour.
        doubted: By poll, the offers in quarantine.
        accepted: Changes of price that were taken in.
        quarantined: Readings that went into quarantine, each price once, by what they wait for.
        confirmed: Those of them that were believed after all.
        waiting: What is in quarantine now, by offer, in micro-USD an hour.
        moves: In order.
    """

    recording: Recording
    believed: list[dict[str, int]] = field(default_factory=list)
    doubted: list[frozenset[str]] = field(default_factory=list)
    accepted: int = 0
    quarantined: Counter[str] = field(default_factory=Counter)
    confirmed: int = 0
    waiting: dict[str, int | str] = field(default_factory=dict)
    decisions: int = 0
    moves: list[Move] = field(default_factory=list)


def believe_everything(history: HistoryStore, raws: Iterable[RawQuote], started_at_ms: int) -> Taken:
    """What a market without doubts would do, to see what they are good for."""
    quotes = tuple(
        Quote(raw.offer, price, started_at_ms, started_at_ms, raw.source)
        for raw in raws
        if raw.offer.gpu in GPUS and isinstance(price := price_of(raw), int)
    )
    return Taken(Sifted(quotes, {}, ()), history.ingest(quotes))


def replay(
    recording: Recording,
    jobs: Sequence[Subject],
    folder: Path,
    take: TakeIn = take_in,
    policy: Policy = EAGER,
) -> Outcome:
    """Run all of it.

    Args:
        jobs: Where they are when it begins; each goes where its decisions send it.
        folder: For the two databases.
    """
    clock = ManualClock(recording.polls_ms[0])
    state = StateStore.open(folder / "state.db", clock, CountingIds())
    history = HistoryStore.open(folder / "history.db")
    outcome = Outcome(recording)
    running = list(jobs)
    try:
        for poll, (at_ms, raws) in enumerate(recording.polls()):
            clock.advance((at_ms - clock.now_ms()) / 1000)
            taken = take(history, raws, at_ms)
            history.record_poll(Poll(recording.cloud, at_ms, at_ms, True, len(raws), taken.changes))
            now_ms = clock.advance(1)
            with state.read() as tx:
                snapshot = build_snapshot(history, tx, now_ms)
            _count(outcome, taken, snapshot)
            for number, subject in enumerate(running):
                running[number] = _decide(outcome, subject, policy, snapshot, poll)
    finally:
        history.close()
        state.close()
    return outcome


def job_at(offer: Offer, gpu: str, count: int, at_ms: int) -> Subject:
    """A job that trains there since long, with days to go and everything committed; it stays in its market."""
    name = f"{gpu}x{count}@{offer.key}"
    spec = JobSpec(
        name=name,
        run="python train.py",
        resources=Resources(gpus=(GpuRequest(gpu, count),), markets=(offer.market,)),
        checkpoint=Checkpoint("ckpt", every_s=600),
    )
    job = Job(
        name,
        spec,
        "default",
        "ada",
        at_ms - 3_600_000,
        commit=Commit(1, 1, "m", "0" * 64, 1, 10 * _GIB, at_ms),
    )
    return Subject(job, active=_placement(name, offer, at_ms - 3_600_000))


def ranked(recording: Recording, gpu: str, count: int, market: Market) -> list[Offer]:
    """The places of the first poll, cheapest first."""
    found = sorted(
        (Decimal(series.texts[0]), key)
        for key, series in recording.series.items()
        if series.texts[0] is not None and series.offer.market is market and series.offer.gpus == count
        and series.offer.gpu in GPUS and gpu in (series.offer.gpu, GPUS[series.offer.gpu].family)
    )  # fmt: skip
    return [recording.series[key].offer for _, key in found]


def places(recording: Recording, gpu: str, count: int, market: Market) -> list[Offer]:
    """The cheapest place of the first poll, and the dearest one that nobody would leave for it."""
    offers = ranked(recording, gpu, count, market)
    prices = [Decimal(recording.series[offer.key].texts[0] or "0") for offer in offers]
    near = [offer for offer, price in zip(offers, prices, strict=True) if price <= prices[0] * _NEAR]
    return near if len(near) < 2 else [near[0], near[-1]]


def _count(outcome: Outcome, taken: Taken, snapshot: MarketSnapshot) -> None:
    sifted = taken.sifted
    before = outcome.doubted[-1] if outcome.doubted else frozenset()
    priced = {key: quote.price_micro_usd_h for key, quote in snapshot.quotes.items()}
    held = outcome.believed[-1] if outcome.believed else {}
    news = {key for key, price in held.items() if priced[key] != price}
    outcome.accepted += len(news)
    for key, doubt in sifted.doubts.items():
        # A doubt of one poll is a new one, or has been counted then.
        if key not in before if doubt.wait is None else doubt.wait.times == 1:
            outcome.quarantined[_waits_for(doubt)] += 1
        outcome.waiting[key] = price_of(doubt.raw)
    for key in sifted.released:
        outcome.confirmed += outcome.waiting.pop(key) == priced[key] and (key in news or key not in held)
    outcome.believed.append(priced)
    outcome.doubted.append(frozenset(snapshot.quarantined))


def _waits_for(doubt: Doubt) -> str:
    if doubt.wait is None:
        return "a price"
    return "a person" if doubt.wait.needed_ms is None else format_duration(doubt.wait.needed_ms / 1000)


def _decide(
    outcome: Outcome, subject: Subject, policy: Policy, snapshot: MarketSnapshot, poll: int
) -> Subject:
    assert subject.active is not None
    now_ms = snapshot.at_ms
    step = 1_000_000
    progress = Progress(now_ms - 1, step, step + _HOURS_LEFT * 3600, 1.0)
    subject = replace(subject, job=replace(subject.job, progress=progress))
    world = World(now_ms, snapshot, lambda a, b: _EGRESS_MICRO_USD_PER_GIB)
    decision, hold = decide(subject, policy, world, f"d{poll}")
    outcome.decisions += 1
    if decision.kind is not DecisionKind.MOVE:
        return replace(subject, hold=hold)
    assert decision.target is not None
    here, there = subject.active.offer, decision.target.offer
    prices = snapshot.quotes
    outcome.moves.append(
        Move(
            subject.job.id, poll, here.key, there.key,
            prices[here.key].price_micro_usd_h, prices[there.key].price_micro_usd_h, decision,
        )
    )  # fmt: skip
    moved = replace(subject, active=_placement(subject.job.id, there, now_ms), hold=None, moved_at_ms=now_ms)
    return moved


def _placement(job_id: str, offer: Offer, at_ms: int) -> Placement:
    return Placement(
        f"pl-{offer.key}", job_id, 1, offer, 1, Purpose.PLACE, "default", "ada", at_ms,
        state=PlacementState.ACTIVE, active_at_ms=at_ms, training_at_ms=at_ms,
    )  # fmt: skip
