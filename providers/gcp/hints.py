"""What the Capacity Advisor says about obtaining and keeping spot machines, zone by zone.

Obtainability is asked every half hour, the rate of preemption every twelve hours (it is counted by the day); at most
sixty calls follow one poll, the longest unasked first, and everything is told again with its date until it is asked anew.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from broker.core.availability import Availability, Signal, Unanswered, answered
from broker.core.errors import ProviderDown, ProviderError
from broker.core.ports import Clock
from broker.core.time import HOUR_S, MINUTE_S, MS
from providers.gcp.advice import CAPACITY, HISTORY, Advisor

_EVERY_MS = {
    Signal.OBTAINABILITY: 30 * MINUTE_S * MS,
    Signal.PREEMPTION_RATE: 12 * HOUR_S * MS,
}
_SOURCES = {
    Signal.OBTAINABILITY: "gcp:capacity_advice",
    Signal.PREEMPTION_RATE: "gcp:capacity_history",
}
_METHODS = {Signal.OBTAINABILITY: CAPACITY, Signal.PREEMPTION_RATE: HISTORY}
_MOST_CALLS = 60
_MOST_FAILURES = 3  # each may take a whole time-out


@dataclass(frozen=True)
class Question:
    """One signal of one spot offer."""

    signal: Signal
    offer_key: str
    zone: str
    machine_type: str


@dataclass(frozen=True)
class _Answer:
    """When we asked last, and what was answered last, and when; a value of None is no answer."""

    asked_at_ms: int
    value: float | None = None
    observed_at_ms: int = 0


_NEVER = _Answer(0)


class Hints:
    """Asks for some, tells all."""

    def __init__(self, advisor: Advisor, clock: Clock) -> None:
        self._advisor = advisor
        self._clock = clock
        self._answers: dict[Question, _Answer] = {}

    def of(self, offers: Iterable[tuple[str, str, str]]) -> list[Availability | Unanswered]:
        """Hints for spot offers, given as key, zone and machine type.

        Raises:
            ProviderError: a call failed, and there is no hint.
        """
        wanted = [Question(signal, *offer) for offer in offers for signal in _EVERY_MS]
        self._answers = {question: self._answers.get(question, _NEVER) for question in wanted}
        now_ms = self._clock.now_ms()
        due = [q for q, answer in self._answers.items() if now_ms - answer.asked_at_ms >= _EVERY_MS[q.signal]]
        due.sort(key=lambda question: self._answers[question].asked_at_ms)
        failures = self._ask_some(due, now_ms)
        hints = [
            Availability(
                q.offer_key, q.signal, answer.value, answer.value, answer.observed_at_ms, _SOURCES[q.signal]
            )
            for q, answer in self._answers.items()
            if answer.value is not None
        ]
        return answered(hints, failures)

    def _ask_some(self, due: Iterable[Question], now_ms: int) -> list[ProviderError]:
        """As many as may be asked after one poll; what is left is asked after the next one."""
        failures: list[ProviderError] = []
        calls = 0
        for question in due:
            if calls < _MOST_CALLS and not self._advisor.refusal(_METHODS[question.signal]):
                calls += 1
                try:
                    self._ask(question, now_ms)
                except ProviderError as failure:
                    failures.append(failure)
                    if not isinstance(failure, ProviderDown) or len(failures) == _MOST_FAILURES:
                        break  # the account or its quota: the others would only say the same
        return failures

    def _ask(self, question: Question, now_ms: int) -> None:
        obtains = question.signal is Signal.OBTAINABILITY
        ask = self._advisor.obtainability if obtains else self._advisor.preemption_rate
        try:
            value = ask(question.zone, question.machine_type)
        except ProviderDown:
            # One that always fails must not keep the others from being asked.
            self._answers[question] = replace(self._answers[question], asked_at_ms=now_ms)
            raise
        self._answers[question] = _Answer(now_ms, value, now_ms)
