"""Plays a policy file through a window of a grid: the daemon's own `decide`, asked at every tick.

The job is one on paper (`broker.paper`): it tells its steps from the start, saves when it is stopped, and starts up on the
grid's terms. The market shows what the trace shows: every price is fresh, a pool that cannot be had has refused a moment
ago, and lives are those of the spells that were over by then. A policy acts here, whatever its `mode` says.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import inf

from broker.backtest.egress import usd_per_gb
from broker.backtest.grid import Grid, Window
from broker.backtest.outlook import Lives
from broker.backtest.play import Holding, Run
from broker.backtest.trace import Pool, Trace
from broker.core.errors import UsageError
from broker.core.gpu import GPUS
from broker.core.model import Decision, DecisionKind
from broker.core.money import MICRO_PER_USD
from broker.core.offer import Market, MarketSnapshot, Offer, Quote
from broker.core.spec import Checkpoint, GpuRequest, JobSpec, Resources
from broker.core.time import MS
from broker.decision.plan import decide
from broker.decision.subject import Timing, World
from broker.paper.job import PaperJob, Reports, submitted
from broker.paper.machines import MACHINES
from broker.paper.memo import remembering
from broker.paper.telling import subject_of
from broker.policy.schema import Mode, Policy

_GIB = 2**30


class PolicyPlayer:
    """Plays one policy; what is the same in every window is made once."""

    def __init__(self, policy: Policy, grid: Grid) -> None:
        """Raises UsageError: the trace does not say which GPUs it is about, or is about several."""
        self._grid, self._lives = grid, Lives(grid)
        self._policy = remembering(replace(policy, mode=Mode.ACT))
        offers = _offers(grid.trace)
        self._offers: tuple[Offer, ...] = tuple(
            replace(offer, market=market) for market in (Market.SPOT, Market.ON_DEMAND) for offer in offers
        )
        self._number = {offer.key: number for number, offer in enumerate(self._offers)}
        if len(self._number) != len(self._offers):
            raise UsageError(f"{grid.trace.name}: two placements have the same cloud, zone and instance type")
        start_s = (grid.ticks.start + grid.ticks.cross) * grid.step_s
        # All of a start-up is billed at the new place, and the old one is gone by then.
        self._timing = Timing(boot_s=0.0, probe_s=0.0, restore_s=start_s, transfer_gib_s=inf)

    def __call__(self, window: Window) -> Run:
        """One job under the policy."""
        holding = Holding(window, self._lives)
        paper = self._job(window)
        asked = 0
        while holding.running:
            paper = paper.until(self._now_ms(holding))
            if holding.lose_what_is_gone():
                paper = paper.lost(saved=True)
            asked += 1
            decision, hold = decide(
                subject_of(paper), self._policy, self._world(holding, paper), f"t{holding.tick}"
            )
            paper = self._do(decision, holding, paper.remembering(hold))
            holding.advance(holding.tick + 1)
        return holding.run(asked)

    def _job(self, window: Window) -> PaperJob:
        grid, start_ms = self._grid, self._grid.at_ms(window.start)
        offer = self._offers[0]
        deadline_ms = start_ms + grid.ticks.deadline * grid.trace.step_ms
        spec = JobSpec(
            "back-test",
            "train",
            Resources((GpuRequest(offer.gpu, offer.gpus),), nodes=grid.terms.gang),
            checkpoint=Checkpoint("checkpoints", every_s=max(1, round(grid.step_s))),
            deadline_ms=deadline_ms,
        )
        return submitted(
            spec,
            grid.ticks.work * grid.trace.step_ms,
            # One step a millisecond: a tick of any length is a whole number of them.
            {offer.gpu: float(MS)},
            start_ms,
            policy=self._policy.name,
            reports=Reports.FROM_THE_START,
            handles_term=True,
            checkpoint_bytes=round(grid.terms.checkpoint_gib * _GIB),
        )

    def _do(self, decision: Decision, holding: Holding, paper: PaperJob) -> PaperJob:
        if decision.kind in (DecisionKind.PAUSE, DecisionKind.STOP):
            holding.hold(None)
            return paper.released(saved=True) if paper.active else paper
        if decision.target is None:
            return paper
        number = self._number[decision.target.offer.key]
        pool = number % len(self._grid.region)
        start_ms = holding.outlook.start_ticks(pool) * self._grid.trace.step_ms
        holding.hold(self._grid.options[number])
        now_ms = self._now_ms(holding)
        price = decision.target.price_micro_usd_h
        return paper.launched(decision.target.offer, price, ready_ms=now_ms, gap_ms=start_ms).until(now_ms)

    def _world(self, holding: Holding, paper: PaperJob) -> World:
        now_ms, nodes = self._now_ms(holding), self._grid.terms.gang
        burn = paper.active.price_micro_usd_h * nodes if paper.active else 0
        return World(
            now_ms,
            self.snapshot(holding.window, holding.tick),
            _egress_micro_usd,
            timing=self._timing,
            burn_micro_usd_h=burn,
            policy_burn_micro_usd_h=burn,
            open_nodes=nodes if paper.active else 0,
        )

    def snapshot(self, window: Window, tick: int) -> MarketSnapshot:
        """The market that the policy is shown at a tick of a window."""
        now_ms = self._grid.at_ms(window.start + tick)
        pools, per_tick = len(self._grid.region), self._grid.terms.gang * self._grid.step_s / 3600
        quotes, empty, lives = {}, {}, {}
        for number, offer in enumerate(self._offers):
            pool = number % pools
            spot = number < pools
            usd = window.usd_rows[pool][tick] if spot else float(self._grid.on_demand_usd[pool])
            if usd > 0:
                micro_usd_h = max(1, round(usd / per_tick * MICRO_PER_USD))
                quotes[offer.key] = Quote(offer, micro_usd_h, now_ms, now_ms, "trace")
            if spot:
                life_s = self._lives.life_s(pool, window.start + tick)
                lives[f"{offer.cloud}/{offer.zone}/{offer.instance_type}"] = life_s
                if not window.up_rows[pool][tick]:
                    empty[offer.key] = now_ms + self._grid.trace.step_ms
        return MarketSnapshot(now_ms, quotes, empty_until_ms=empty, spot_life_s=lives)

    def _now_ms(self, holding: Holding) -> int:
        return self._grid.at_ms(holding.window.start + holding.tick)


@cache
def _rate(origin: tuple[str, str], target: tuple[str, str]) -> int:
    return round(usd_per_gb(origin, target) * MICRO_PER_USD)


def _egress_micro_usd(origin: Offer, target: Offer | None) -> int:
    if target is None:
        return 0
    return _rate((origin.cloud, origin.region), (target.cloud, target.region))


def _offers(trace: Trace) -> list[Offer]:
    known = {pool.name: _sku(pool) for pool in trace.pools}
    by_family: Mapping[str, str] = {pool.gpu: sku for pool in trace.pools if (sku := known[pool.name])}
    skus = {
        name: sku or by_family.get(pool.gpu, "")
        for pool in trace.pools
        for name, sku in [(pool.name, known[pool.name])]
    }
    unknown = sorted({pool.gpu or "no GPU at all" for pool in trace.pools if not skus[pool.name]})
    if unknown:
        raise UsageError(
            f"{trace.name}: which GPU is {', '.join(unknown)}?",
            hint="a policy is asked about exact SKUs, such as H100-SXM5-80GB; baselines need none",
        )
    kinds = {(skus[pool.name], pool.gpus) for pool in trace.pools}
    if len(kinds) > 1:
        words = ", ".join(f"{gpus} x {sku}" for sku, gpus in sorted(kinds))
        raise UsageError(
            f"{trace.name} has {words}: on the grid they would train alike", hint="keep one kind with --only"
        )
    return [
        Offer(pool.cloud, pool.region, pool.zone, pool.instance_type, Market.SPOT, skus[pool.name], pool.gpus)
        for pool in trace.pools
    ]


def _sku(pool: Pool) -> str:
    """By the instance type, where that is a common one; else what the trace says, if there is only one such GPU."""
    machine = MACHINES.get(pool.cloud, {}).get(pool.instance_type)
    if machine is not None:
        return machine.gpu
    named = [sku for sku, model in GPUS.items() if pool.gpu in (sku, model.family)]
    return named[0] if len(named) == 1 else ""
