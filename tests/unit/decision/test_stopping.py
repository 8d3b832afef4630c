"""Rules that end a job by its own metrics: only on real readings, and only when they have held."""

from dataclasses import replace
from typing import Any

import pytest
from situations import ON_DEMAND_AWS, SPOT_GCP, condition, placement, policy, progress, quote, running, world

from broker.core.model import Decision, DecisionKind
from broker.decision.plan import decide
from broker.decision.subject import Subject
from broker.policy.facts import Line
from broker.policy.schema import Mode, Stop

NAN = float("nan")
RULE = "metrics.val_loss > 2.0 * metrics.best_val_loss"
MARKET = world(quote(SPOT_GCP, 1), quote(ON_DEMAND_AWS, 5))


def rule(*texts: str, **more: Any) -> Stop:
    return Stop(tuple(condition(text, Line.STOP_WHEN) for text in texts), **more)


def training(
    readings: dict[str, tuple[float, ...]], best: dict[str, float] | None = None, **more: Any
) -> Subject:
    subject = running(handles_term=True, **more)
    told = replace(subject.job.progress or progress(), generation=1, readings=readings, best=best or {})
    return replace(subject, job=replace(subject.job, progress=told))


def answer(subject: Subject, stop: Stop, mode: Mode = Mode.ACT) -> Decision:
    return decide(subject, policy(stop=stop, mode=mode), MARKET, "d-1")[0]


def told(decision: Decision, line: str) -> tuple[bool | None, str]:
    (found,) = [(r.holds, r.detail) for r in decision.reasons if r.line == line]
    return found


def test_a_line_that_holds_for_its_readings_ends_the_job() -> None:
    decision = answer(training({"val_loss": (2.0, 5.0, 6.0, 7.0)}, {"val_loss": 2.0}), rule(RULE))
    assert (decision.kind, decision.acted, decision.target) == (DecisionKind.STOP, True, None)
    assert decision.summary == (
        f"stops the job: {RULE}: metrics.val_loss is 7.0; metrics.best_val_loss is 2.0; so it was at 3 of 3 readings"
    )
    assert decision.reasons[0].place == "policies/test.yaml:14"


@pytest.mark.parametrize(
    ("readings", "detail"),
    [
        ((5.0, 6.0), "metrics.val_loss is 6.0; metrics.best_val_loss is 2.0; so it was at 2 of 3 readings"),
        ((5.0, 6.0, 1.9, 6.0, 7.0), "metrics.val_loss is 7.0; metrics.best_val_loss is 2.0; so it was at 2 of 3 readings"),
        ((9.0, 9.0, 9.0, 3.0), "metrics.val_loss is 3.0; metrics.best_val_loss is 2.0"),
    ],
)  # fmt: skip
def test_until_then_it_is_told_and_ends_nothing(readings: tuple[float, ...], detail: str) -> None:
    decision = answer(training({"val_loss": readings}, {"val_loss": 2.0}), rule(RULE))
    assert decision.kind is DecisionKind.MOVE
    assert told(decision, RULE) == (False, detail)


@pytest.mark.parametrize("readings", [{}, {"loss": (9.0,) * 5}, {"val_loss": (9.0, 9.0, 9.0, NAN)}])
def test_without_a_real_reading_a_line_is_unknown(readings: dict[str, tuple[float, ...]]) -> None:
    decision = answer(training(readings, {"val_loss": 2.0}), rule(RULE))
    assert decision.kind is DecisionKind.MOVE
    assert told(decision, RULE)[0] is None


def test_any_line_ends_the_job_and_the_answer_names_it() -> None:
    second = "metrics.grad_norm > 100.0 && job.step > 10"
    subject = training({"val_loss": (1.0,), "grad_norm": (200.0,)}, {"val_loss": 1.0})
    decision = answer(subject, rule(RULE, second, hold_readings=1))
    assert decision.kind is DecisionKind.STOP
    assert decision.summary.startswith(f"stops the job: {second}: ")
    assert told(decision, RULE)[0] is False


@pytest.mark.parametrize(
    ("losses", "holds"),
    [((NAN, NAN, NAN), True), ((float("inf"), NAN, NAN), True), ((1.0, NAN, NAN), False), ((NAN, NAN, 1.0), False), ((), None)],
)  # fmt: skip
def test_a_loss_that_is_no_number(losses: tuple[float, ...], holds: bool | None) -> None:
    decision = answer(training({"loss": losses} if losses else {}), Stop(nan_loss=True))
    assert (decision.kind is DecisionKind.STOP) is bool(holds)
    assert told(decision, "stop.nan_loss: true")[0] is holds
    off = answer(training({"loss": losses}), rule("metrics.loss > 1000.0"))
    assert off.kind is not DecisionKind.STOP, "a loss that is no number is no reading above a bound"


def test_a_policy_that_observes_records_the_stop() -> None:
    subject = training({"loss": (NAN, NAN, NAN)})
    decision = answer(subject, Stop(nan_loss=True), Mode.OBSERVE)
    assert (decision.kind, decision.acted) == (DecisionKind.STOP, False)
    assert (
        decision.summary
        == "would stop the job: stop.nan_loss: true: loss is nan; so it was at 3 of 3 readings"
    )
    assert decision.reasons[1].line == "mode: observe"


def test_a_job_is_ended_while_it_moves_and_not_while_it_waits() -> None:
    moving = training({"loss": (NAN, NAN, NAN)}, landing=(placement(SPOT_GCP),))
    assert answer(moving, Stop(nan_loss=True)).kind is DecisionKind.STOP
    waiting = replace(training({"loss": (NAN, NAN, NAN)}), active=None)
    assert answer(waiting, Stop(nan_loss=True)).kind is DecisionKind.PLACE, "it may do better elsewhere"


def test_names_with_slashes_are_written_with_underscores() -> None:
    subject = training({"eval/loss": (9.0,)}, {"eval/loss": 1.0})
    line = "metrics.eval_loss > 2.0 * metrics.best_eval_loss"
    assert answer(subject, rule(line, hold_readings=1)).kind is DecisionKind.STOP
