"""Deciding: limits and prices."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from broker.core.errors import ProviderError
from broker.core.model import Reason
from tests.sim.faults import Kind
from tests.sim.mutants.mutant import Mutant, returns


def _whatever_came(real: Any) -> Any:
    def run(call: Any, result: Any, reading: Any) -> None:
        quotes: list[Any] = []
        try:
            for quote in call():
                quotes.append(quote)
        except ProviderError:
            if not quotes:
                return real(call, result, reading)
        result.set_result(quotes)
        return None

    return run


def _overtaken(real: Any) -> Any:
    """A decision is written over whatever has become of its job meanwhile."""

    class AsItWas:
        def __init__(self, store: Any, job: Any) -> None:
            self._store, self._job = store, job

        @contextmanager
        def write(self) -> Iterator[Any]:
            with self._store.write() as tx:
                tx.job = lambda job_id: self._job
                yield tx

    def keep(self: Any, subject: Any, *answer: Any, **more: Any) -> Any:
        return real(replace(self, store=AsItWas(self.store, subject.job)), subject, *answer, **more)

    return keep


def _no_cooldown(real: Any) -> Any:
    return lambda situation: Reason("migrate.cooldown", True, "ignored")


def _limits_ignored(real: Any) -> Any:
    return lambda situation, by_choice=True: ()


DECIDING: dict[str, Mutant] = {
    "overtaken_decision": Mutant(
        "a decision is kept although its job has moved on",
        "broker.migration.decide.Decider._keep",
        _overtaken,
        frozenset({Kind.OVERTAKEN}),
        seeds=(1,),
    ),
    "no_recovery_cap": Mutant(
        "recoveries are not capped",
        "broker.migration.decide.Decider._too_many_recoveries",
        returns(None),
        frozenset({Kind.STORM, Kind.RECLAIM}),
        eager=4,
    ),
    "no_cooldown": Mutant(
        "the cooldown is ignored",
        "broker.decision.limits._cooldown",
        _no_cooldown,
        faults=frozenset({Kind.PRICE_JUMP}),
        eager=3,
        seeds=(8,),
    ),
    "no_move_limits": Mutant(
        "moves are not limited",
        "broker.decision.plan.move_limits",
        _limits_ignored,
        faults=frozenset({Kind.PRICE_JUMP}),
        eager=3,
    ),
    "no_caps": Mutant(
        "the caps of the deployment are ignored",
        "broker.decision.choose.refuse_rate",
        returns(""),
        frozenset({Kind.PRICE_JUMP}),
        eager=3,
        seeds=(1,),
    ),
    "partial_poll": Mutant(
        "a poll that broke off is believed",
        "broker.market.reader._run",
        _whatever_came,
        frozenset({Kind.PARTIAL_PAGE, Kind.PRICE_JUMP}),
        eager=3,
        seeds=(1,),
    ),
    "no_quarantine": Mutant(
        "every price is believed",
        "broker.market.quarantine.waits_for",
        returns(None),
        frozenset({Kind.GLITCH}),
        eager=3,
    ),
    "stale_prices": Mutant(
        "neither the age of a price nor the hold matters; either alone keeps stale prices from moving a job",
        "broker.decision.moving.refuse_quote",
        returns(""),
        faults=frozenset({Kind.FEED_STOPS, Kind.PRICE_JUMP}),
        also=(("broker.decision.plan.hold_reason", returns(Reason("migrate.hold", True, "ignored"))),),
        eager=3,
        seeds=(3,),
    ),
}
