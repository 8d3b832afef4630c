"""A broker that is wrong in one line. Production code has no switches: one function is replaced while seeds run."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from unittest.mock import patch

from tests.sim.faults import Kind
from tests.sim.settings import Settings

Break = Callable[[Any], Any]


@dataclass(frozen=True)
class Mutant:
    """One break.

    Attributes:
        what: What is wrong, in words.
        where: Dotted name of the function.
        broken: From the real function to the broken one.
        faults: Kinds that it takes; they are on in every seed, and strike `eager` times as often.
        seeds: Seeds that are known to find it, tried first; a change of the code may make others of them.
        hours: Of faults, where less than an hour does.
        also: A second line to break, where either alone holds.
    """

    what: str
    where: str
    broken: Break
    faults: frozenset[Kind] = frozenset()
    seeds: tuple[int, ...] = ()
    hours: float = 1.0
    eager: float = 1.0
    also: tuple[tuple[str, Break], ...] = ()

    def settings(self, seed: int, hours: float | None = None) -> Settings:
        """Of a seed that has what it takes."""
        return Settings(seed, hours or self.hours, also=self.faults, eager=self.eager)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While this lasts, the broker is broken."""
        with ExitStack() as stack:
            for where, broken in ((self.where, self.broken), *self.also):
                owner, name = owner_of(where)
                stack.enter_context(patch.object(owner, name, broken(getattr(owner, name))))
            yield


def owner_of(where: str) -> tuple[Any, str]:
    """What holds the function of this dotted name, and its name there."""
    parts = where.split(".")
    for size in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for name in parts[size:-1]:
            owner = getattr(owner, name)
        return owner, parts[-1]
    raise AssertionError(where)


def returns(value: Any) -> Break:
    """A function that always says the same."""
    return lambda real: lambda *args, **more: value
