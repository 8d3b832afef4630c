"""Conditions that are evaluated once for the same facts: between two polls that saw the same prices nothing is new."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Final

from broker.core.errors import Place
from broker.policy.conditions import CelCondition
from broker.policy.schema import Condition, Fact, Policy

# A condition over the time that is left has another value at each poll; there is no use in keeping them all.
_MOST: Final = 4096


@dataclass(frozen=True)
class Remembered:
    """A condition and what it has answered. Satisfies `broker.policy.schema.Condition`."""

    condition: Condition
    needs: tuple[str, ...]
    _answers: dict[tuple[Fact | None, ...], bool | None] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def text(self) -> str:
        """As the author wrote it."""
        return self.condition.text

    @property
    def place(self) -> str:
        """``policies/night.yaml:14``."""
        return self.condition.place

    @property
    def at(self) -> Place:
        """Where it starts."""
        return self.condition.at

    def evaluate(self, facts: Mapping[str, Fact]) -> bool | None:
        """The condition's own answer. It depends on the facts that it needs and on nothing else."""
        asked = tuple(facts.get(name) for name in self.needs)
        if asked not in self._answers:
            if len(self._answers) >= _MOST:
                self._answers.clear()
            self._answers[asked] = self.condition.evaluate(facts)
        return self._answers[asked]


def remembering(policy: Policy) -> Policy:
    """The same policy, with every condition in it remembered."""
    remembered = _with_memory(policy)
    assert isinstance(remembered, Policy)
    return remembered


def _with_memory(value: Any) -> Any:
    if isinstance(value, CelCondition):
        return Remembered(value, value.needs)
    if isinstance(value, tuple):
        return tuple(_with_memory(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: _with_memory(getattr(value, f.name)) for f in fields(value) if f.init}
        return replace(value, **changed)
    return value
