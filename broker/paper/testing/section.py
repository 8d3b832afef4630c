"""A mapping of a test file, read key by key; mistakes are collected, so that one run tells of all of them."""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from broker.core.errors import PolicyError
from broker.core.yaml_text import Mapped, Node, Scalar, unknown_key_hint

T = TypeVar("T")
D = TypeVar("D")

_MOST_TEXTS: Final = 200
_TOLD: Final = 20  # unknown keys of one mapping; nobody reads more


class Section:
    """A mapping.

    Attributes:
        node: It, with its places.
        errors: Of the whole file so far.
    """

    def __init__(self, node: Mapped, errors: list[PolicyError]) -> None:
        self.node = node
        self.errors = errors

    def note(self, error: PolicyError) -> None:
        """Keep a mistake."""
        self.errors.append(error)

    def read(self, key: str, reader: Callable[[Node], T], default: D) -> T | D:
        """The value of a key, or its default where the key is absent or wrong; one that is left empty is wrong."""
        if key not in self.node:
            return default
        if self.node.get(key) is None:
            hint = "write a value, or leave the key out"
            self.note(PolicyError(f"{self._name(key)} is empty", self.node.place(key), hint))
            return default
        try:
            return reader(self.node[key])
        except PolicyError as error:
            self.note(error)
            return default

    def section(self, key: str) -> "Section | None":
        """A mapping inside this one; None when absent or no mapping."""
        node = self.read(key, Node.as_mapped, None)
        return Section(node, self.errors) if node is not None else None

    def sections(self) -> "list[tuple[str, Section]]":
        """Every value that is a mapping; of the others a mistake is noted."""
        found = []
        for key in self.node:
            inside = self.section(key)
            if inside is not None:
                found.append((key, inside))
        return found

    def listed(self, key: str, most: int) -> "list[Section]":
        """A list of 1 to `most` mappings; empty when absent or wrong."""
        node = self.read(key, Node.as_sequence, None)
        if node is None:
            return []
        if not 1 <= len(node) <= most:
            at = node[most].at if len(node) else node.at
            self.note(PolicyError(f"{self._name(key)} has {len(node)} entries; 1 to {most} are allowed", at))
            return []
        found = []
        for item in node:
            try:
                found.append(Section(item.as_mapped(), self.errors))
            except PolicyError as error:
                self.note(error)
        return found

    def only(self, known: Iterable[str]) -> None:
        """Note every key that may not be here."""
        options = list(known)
        unknown = [key for key in self.node if key not in options]
        for key in unknown[:_TOLD]:
            hint = unknown_key_hint(key, options)
            self.note(PolicyError(f"unknown key {self._name(key)}", self.node.place(key), hint))
        if len(unknown) > _TOLD:
            self.note(
                PolicyError(f"{len(unknown) - _TOLD} more unknown keys", self.node.place(unknown[_TOLD]))
            )

    def _name(self, key: str) -> str:
        return f"{self.node.name}.{key}" if self.node.name else key


def texts(node: Node) -> tuple[str, ...]:
    """A text, or a list of them that is not empty."""
    if isinstance(node, Scalar):
        return (node.as_str(),)
    items = node.as_sequence()
    if not 1 <= len(items) <= _MOST_TEXTS:
        raise node.fail(f"{node.name} has {len(items)} entries; 1 to {_MOST_TEXTS} are allowed")
    return tuple(item.as_str() for item in items)
