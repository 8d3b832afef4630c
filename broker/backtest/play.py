"""Plays a strategy through one window of a grid, and counts what it costs.

A strategy is asked at the window's first tick, when its place is lost, and when its last answer says so; between two
questions the whole stretch is billed at once.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from broker.backtest.grid import Window
from broker.backtest.outlook import GridOutlook, Lives
from broker.decision.strategy import Answer, Option, Standing, Strategy


class Action(StrEnum):
    """What is done at a tick."""

    LAUNCH = "launch"
    STOP = "stop"


@dataclass(frozen=True)
class Act:
    """One change of what is held.

    Attributes:
        tick: Of the window.
        option: What is launched, or stopped; a launch replaces whatever was held.
    """

    tick: int
    action: Action
    option: Option


@dataclass(frozen=True)
class Run:
    """What became of one job.

    Attributes:
        usd: Everything: what was held, egress, and finishing late on on-demand.
        egress_usd: Of it, egress.
        done_tick: Ticks until the work was done; None when the deadline was missed.
        moves: Launches that replaced something held.
        losses: Places that the cloud took.
        held_ticks, on_demand_ticks, start_ticks: Billed; of them on on-demand; of them starting up.
        asked: How often the strategy was asked.
    """

    acts: tuple[Act, ...]
    usd: float
    egress_usd: float
    done_tick: int | None
    launches: int
    moves: int
    losses: int
    held_ticks: int
    on_demand_ticks: int
    start_ticks: int
    asked: int

    @property
    def missed(self) -> bool:
        """Whether work was left at the deadline."""
        return self.done_tick is None


def play(strategy: Strategy, window: Window, lives: Lives) -> Run:
    """One job under a strategy."""
    job = Holding(window, lives)
    wished_s: float | None = None
    moved_s: float | None = None
    asked = 0
    while job.running:
        job.lose_what_is_gone()
        standing = job.standing(wished_s, moved_s)
        answer = strategy.answer(standing, job.outlook)
        asked += 1
        if answer.hold is not None and standing.held is not None and answer.hold != standing.held:
            moved_s = standing.elapsed_s
        job.hold(answer.hold)
        stays = answer.wish and answer.hold == standing.held
        wished_s = (standing.elapsed_s if wished_s is None else wished_s) if stays else None
        job.advance(job.next_question(answer))
    return job.run(asked)


class Holding:
    """A job on a grid: what it holds, what is left, what it has cost. `outlook` is kept at its tick."""

    def __init__(self, window: Window, lives: Lives) -> None:
        grid = window.grid
        self.window, self.grid, self.outlook = window, grid, GridOutlook(window, lives)
        self.tick, self.left, self.wait = 0, grid.ticks.work, 0
        self.held: int | None = None
        self.lost: Option | None = None
        self.done_tick: int | None = None
        self._pools = len(grid.region)
        self._acts: list[Act] = []
        self._usd = self._egress_usd = 0.0
        self._launches = self._moves = self._losses = 0
        self._held_ticks = self._on_demand_ticks = self._start_ticks = 0

    @property
    def running(self) -> bool:
        """Whether there is work left, and time."""
        return self.left > 0 and self.tick < self.grid.ticks.deadline

    @property
    def holds(self) -> Option | None:
        """What is held."""
        return None if self.held is None else self.grid.options[self.held]

    def standing(self, wished_s: float | None = None, moved_s: float | None = None) -> Standing:
        """The job, as a strategy is told of it."""
        step_s, ticks = self.grid.step_s, self.grid.ticks
        return Standing(
            elapsed_s=self.tick * step_s,
            left_s=(ticks.deadline - self.tick) * step_s,
            done_s=(ticks.work - self.left) * step_s,
            work_s=self.left * step_s,
            held=self.holds,
            starting_s=self.wait * step_s,
            lost=self.lost,
            binds_s=step_s,
            wished_s=wished_s,
            moved_s=moved_s,
        )

    def lose_what_is_gone(self) -> bool:
        """Held spot that cannot be had any more is lost; whether that is so."""
        if self.held is None or self.held >= self._pools or self.outlook.has_spot(self.held):
            return False
        self.lost = self.grid.options[self.held]
        self._acts.append(Act(self.tick, Action.STOP, self.lost))
        self._losses += 1
        self._put(None)
        return True

    def hold(self, option: Option | None) -> None:
        """Launch it, keep it, or stop what is held."""
        number = None if option is None else self.outlook.index(option)
        if number == self.held:
            return
        if number is None or option is None:
            assert self.held is not None
            self._acts.append(Act(self.tick, Action.STOP, self.grid.options[self.held]))
            self._put(None)
            return
        pool = number % self._pools
        if option.interruptible and not self.outlook.has_spot(pool):
            raise ValueError(f"{option.key} cannot be had at tick {self.tick}: the strategy is wrong")
        if self.held is not None:
            self._moves += 1
        elif self._acts and self._acts[-1].tick == self.tick:
            self._acts.pop()  # the loss is replaced in the same tick: one change, one row
        self._acts.append(Act(self.tick, Action.LAUNCH, option))
        self._launches += 1
        self.wait = self.outlook.start_ticks(pool)
        egress = self.outlook.egress_usd(pool)
        self._usd += egress
        self._egress_usd += egress
        self.outlook.here = int(self.grid.region[pool])
        self._put(number)

    def next_question(self, answer: Answer) -> int:
        """The tick at which a strategy wants to be asked again, if its place is not lost before."""
        deadline = self.grid.ticks.deadline
        tick = deadline
        if answer.ask_at_s < math.inf:
            tick = min(tick, max(self.tick + 1, math.ceil(answer.ask_at_s / self.grid.step_s - 1e-9)))
        if answer.on_change:
            tick = min(tick, self.window.change_at[self.tick])
        return tick

    def advance(self, tick: int) -> None:
        """Bill and work until `tick`, the loss of what is held, or the end of the work, whichever comes first."""
        if self.held is not None:
            pool, spot = self.held % self._pools, self.held < self._pools
            tick = min(tick, self.tick + self.wait + self.left)
            if spot:
                tick = min(tick, self.window.down_at[pool][self.tick])
                bill = self.window.bill_usd[pool]
                self._usd += bill[tick] - bill[self.tick]
            else:
                self._usd += float(self.grid.on_demand_usd[pool]) * (tick - self.tick)
                self._on_demand_ticks += tick - self.tick
            self._work(tick - self.tick)
        self.tick = self.outlook.tick = tick
        if self.left == 0:
            self.done_tick = tick
            self._acts.append(Act(tick, Action.STOP, self.grid.options[self.held or 0]))

    def run(self, asked: int) -> Run:
        """What has become of it; what is left is finished on on-demand."""
        return Run(
            acts=tuple(self._acts),
            usd=self._usd + (self._finish_late_usd() if self.left else 0.0),
            egress_usd=self._egress_usd,
            done_tick=self.done_tick,
            launches=self._launches,
            moves=self._moves,
            losses=self._losses,
            held_ticks=self._held_ticks,
            on_demand_ticks=self._on_demand_ticks,
            start_ticks=self._start_ticks,
            asked=asked,
        )

    def _work(self, ticks: int) -> None:
        starting = min(self.wait, ticks)
        self.wait -= starting
        self.left -= ticks - starting
        self.outlook.left = self.left
        self._held_ticks += ticks
        self._start_ticks += starting

    def _put(self, number: int | None) -> None:
        self.held = self.outlook.held = number

    def _finish_late_usd(self) -> float:
        if self.held is not None and self.held >= self._pools:
            return float(self.grid.on_demand_usd[self.held - self._pools]) * (self.wait + self.left)
        return min(
            float(self.grid.on_demand_usd[pool]) * (self.left + self.outlook.start_ticks(pool))
            + self.outlook.egress_usd(pool)
            for pool in range(self._pools)
        )
