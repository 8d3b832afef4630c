"""Broken brokers: each one line wrong, switched on in tests only. A checker that lets one live is no checker."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch


@dataclass(frozen=True)
class Mutant:
    """One break.

    Attributes:
        what: What is wrong, in words.
        patches: Dotted name to its replacement; `wrap` is given the original.
        seeds: Seeds that are known to find it, tried first.
    """

    what: str
    patches: dict[str, Callable[[Any], Any]]
    seeds: tuple[int, ...] = ()
    hours: float = 1.0

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While this lasts, the broker is broken."""
        with ExitStack() as stack:
            for name, wrap in self.patches.items():
                stack.enter_context(patch(name, wrap(_find(name))))
            yield


def _find(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(__import__(module, fromlist=[attribute]), attribute)
    except ModuleNotFoundError:
        return getattr(_find(module), attribute)


MUTANTS: dict[str, Mutant] = {}
