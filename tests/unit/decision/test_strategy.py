"""The rules of the strategies, one by one. Hours are the unit of everything here: of moments, work and start-ups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import pytest

from broker.decision.strategy import Answer, Option, Rule, Standing, last_gamble_s, with_safety_net
from broker.decision.strategy_cheapest import Cheapest
from broker.decision.strategy_progress import UniformProgress, may_return_to_spot

SPOT = Option("aws/z1/box/spot", "aws/east", True)
OTHER = Option("aws/z2/box/spot", "aws/west", True)
STEADY = Option("aws/z1/box/on_demand", "aws/east", False)


@dataclass(frozen=True)
class Sold:
    """What can be had, dearest last; costs are to finish there."""

    costs: Mapping[Option, float] = field(default_factory=dict)
    held: Option | None = None
    start_h: float = 1.0
    longest_h: float = 1.0

    def options(self) -> Sequence[Option]:
        return [option for option in self.costs if option != self.held]

    def spot(self, outside: str = "") -> Option | None:
        return next((o for o in self.options() if o.interruptible and o.region != outside), None)

    def steady(self) -> Option | None:
        return next((o for o in self.options() if not o.interruptible), None)

    def cost_micro_usd(self, option: Option) -> float:
        return self.costs[option]

    def rate_micro_usd_h(self, option: Option) -> float:
        return self.costs[option]

    def life_s(self, option: Option) -> float:
        return inf

    def start_up_s(self, option: Option) -> float:
        return self.start_h

    def egress_micro_usd(self, option: Option) -> float:
        return 0.0

    def longest_start_s(self) -> float:
        return self.longest_h


def job(elapsed: float, done: float, held: Option | None = None, **more: float | Option | None) -> Standing:
    """Of forty hours of work in sixty; an answer binds for a tenth of an hour."""
    base = Standing(elapsed, 60 - elapsed, done, 40 - done, held=held, binds_s=0.1)
    return replace(base, **more)  # type: ignore[arg-type]


BOTH = Sold({SPOT: 1, STEADY: 3})
NO_SPOT = Sold({STEADY: 3})
UP = UniformProgress()


class TestUniformProgress:
    def test_thrifty(self) -> None:
        assert UP.answer(job(50, 40, STEADY), BOTH) == Answer(None, Rule.THRIFTY)

    def test_takes_spot_whenever_it_can_be_had(self) -> None:
        for elapsed, done in ((0, 0), (30, 15), (30, 30)):
            answer = UP.answer(job(elapsed, done), BOTH)
            assert (answer.hold, answer.rule) == (SPOT, Rule.TAKE_RISK)

    def test_waits_without_spot_while_the_line_is_kept(self) -> None:
        # After 24 of 60 hours the line is at 16 of 40.
        answer = UP.answer(job(24, 16), NO_SPOT)
        assert (answer.hold, answer.rule, answer.on_change) == (None, Rule.WAIT, True)
        assert answer.ask_at_s == 24
        assert UP.answer(job(24, 20), NO_SPOT).ask_at_s == 30

    def test_behind_the_line_takes_a_steady_place(self) -> None:
        answer = UP.answer(job(24, 15.9), NO_SPOT)
        assert (answer.hold, answer.rule) == (STEADY, Rule.BEHIND)

    def test_behind_the_line_with_nothing_to_be_had_asks_again(self) -> None:
        assert UP.answer(job(24, 15.9), Sold()) == Answer(
            None, Rule.NOTHING, on_change=True, ask_at_s=60 - 24.1 - 1 - 0.1
        )

    def test_stays_on_spot_for_as_long_as_it_lasts(self) -> None:
        cheaper = Sold({OTHER: 0.1, STEADY: 3}, held=SPOT)
        for elapsed, done in ((1, 0), (30, 15), (48, 30)):
            assert UP.answer(job(elapsed, done, SPOT), cheaper) == Answer(SPOT, Rule.EXPLOITATION)

    def test_a_deadline_before_the_submission_is_overdue(self) -> None:
        assert UP.answer(replace(job(10, 5), left_s=-20), BOTH) == Answer(STEADY, Rule.SAFETY_NET)

    @pytest.mark.parametrize(("done", "back"), [(17.3, False), (17.4, True)])
    def test_hysteresis(self, done: float, back: bool) -> None:
        # Two starts of an hour are 2 x 40 / 60 of work ahead of the line at 16.
        assert may_return_to_spot(job(24, done), 1.0) is back
        answer = UP.answer(job(24, done, STEADY), replace(BOTH, held=STEADY))
        assert (answer.hold, answer.rule) == ((SPOT, Rule.HYSTERESIS) if back else (STEADY, Rule.CATCH_UP))

    def test_asks_again_when_hysteresis_lets_go(self) -> None:
        market = replace(BOTH, held=STEADY)
        answer = UP.answer(job(24, 16, STEADY, starting_s=0.5), market)
        assert not answer.on_change
        # An answer binds for 0.1: that much too early is soon enough.
        then = answer.ask_at_s + 0.1
        assert may_return_to_spot(job(then, 16 + then - 24 - 0.5 + 1e-6), 1.0)
        assert not may_return_to_spot(job(then - 0.1, 16 + then - 0.1 - 24 - 0.5), 1.0)

    def test_ahead_without_spot_asks_when_something_changes(self) -> None:
        answer = UP.answer(job(24, 20, STEADY), Sold({STEADY: 3}, held=STEADY))
        assert (answer.hold, answer.on_change, answer.ask_at_s) == (STEADY, True, inf)

    def test_no_time_to_spare_never_returns(self) -> None:
        tight, lost = (replace(job(24, 16, STEADY), left_s=left) for left in (25.0, 10.0))
        market = replace(BOTH, held=STEADY)
        assert UP.answer(tight, market).ask_at_s > 24 + 25
        assert UP.answer(lost, market).ask_at_s == inf


class TestSafetyNet:
    def test_the_last_moment(self) -> None:
        # 60 less 20 of work, one start, and the tenth for which an answer binds.
        assert last_gamble_s(job(30, 20), BOTH) == pytest.approx(60 - 20 - 1 - 0.1)
        assert last_gamble_s(job(30, 20), BOTH, margin=1.1) == pytest.approx(60 - 22 - 1 - 0.1)
        assert last_gamble_s(job(30, 20), replace(BOTH, longest_h=3)) == pytest.approx(60 - 20 - 3 - 0.1)

    @pytest.mark.parametrize("held", [None, OTHER])
    def test_who_does_not_train_takes_a_steady_place_in_time(self, held: Option | None) -> None:
        early, late = (job(at, 20, held, starting_s=0.5 if held else 0.0) for at in (38.8, 39.0))
        assert UP.answer(early, BOTH).hold in (SPOT, OTHER)
        assert UP.answer(early, BOTH).ask_at_s == pytest.approx(38.9)
        assert UP.answer(late, BOTH) == Answer(STEADY, Rule.SAFETY_NET)

    def test_who_trains_on_spot_is_left_alone_while_a_start_still_fits(self) -> None:
        assert UP.answer(job(39.0, 20, SPOT), BOTH).hold == SPOT
        assert UP.answer(job(39.1, 20, SPOT), BOTH) == Answer(STEADY, Rule.SAFETY_NET)
        # With a margin of a tenth, twenty hours of work are twenty-two.
        careful = UniformProgress(margin=1.1)
        assert careful.answer(job(37.0, 20, SPOT), BOTH).hold == SPOT
        assert careful.answer(job(37.1, 20, SPOT), BOTH) == Answer(STEADY, Rule.SAFETY_NET)

    def test_who_waits_is_woken(self) -> None:
        wait = Answer(None, Rule.WAIT)
        assert with_safety_net(job(30, 20), NO_SPOT, wait).ask_at_s == pytest.approx(38.9)

    def test_who_is_on_a_steady_place_stays_there(self) -> None:
        back = Answer(SPOT, Rule.HYSTERESIS)
        found = with_safety_net(job(39, 20, STEADY), replace(BOTH, held=STEADY), back)
        assert found == Answer(STEADY, Rule.SAFETY_NET)

    def test_without_a_steady_place_the_gamble_goes_on(self) -> None:
        assert UP.answer(job(50, 20), Sold({SPOT: 1})).hold == SPOT


class TestCheapest:
    strategy = Cheapest(min_saving=0.2, hold_s=2, cooldown_s=5)
    market = Sold({SPOT: 79, STEADY: 100}, held=STEADY)

    def test_starts_on_the_first(self) -> None:
        assert self.strategy.answer(job(0, 0), BOTH).hold == SPOT
        assert self.strategy.answer(job(0, 0), Sold()).rule is Rule.NOTHING

    def test_a_wish_must_last(self) -> None:
        first = self.strategy.answer(job(10, 5, STEADY), self.market)
        assert (first.hold, first.wish, first.ask_at_s) == (STEADY, True, 12)
        held = self.strategy.answer(job(11, 6, STEADY, wished_s=10), self.market)
        assert held.hold == STEADY
        assert self.strategy.answer(job(12, 7, STEADY, wished_s=10), self.market).hold == SPOT

    def test_too_small_a_saving_is_no_wish(self) -> None:
        answer = self.strategy.answer(
            job(12, 7, STEADY, wished_s=0), Sold({SPOT: 81, STEADY: 100}, held=STEADY)
        )
        assert (answer.hold, answer.wish) == (STEADY, False)

    def test_cooldown(self) -> None:
        answer = self.strategy.answer(job(12, 7, STEADY, wished_s=0, moved_s=9), self.market)
        assert (answer.hold, answer.wish, answer.ask_at_s) == (STEADY, True, 14)
        assert self.strategy.answer(job(14, 9, STEADY, wished_s=0, moved_s=9), self.market).hold == SPOT

    def test_without_a_threshold_equal_is_not_cheaper(self) -> None:
        assert (
            Cheapest().answer(job(5, 5, STEADY), Sold({SPOT: 100, STEADY: 100}, held=STEADY)).hold == STEADY
        )

    def test_thrifty(self) -> None:
        assert Cheapest().answer(job(50, 40, STEADY), self.market).hold is None
