"""A mapping of a policy file, read key by key against the table of the keys that it may have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from broker.core.errors import PolicyError
from broker.core.yaml_text import Mapped, unknown_key_hint
from broker.policy.fields import Kind

D = TypeVar("D")

_TOLD: Final = 20  # unknown keys of one mapping; nobody reads more


@dataclass(frozen=True)
class Key:
    """One key of a mapping. The reader, the schema for editors and the page are all made from it.

    Attributes:
        kind: How its value is written; None where it can only be a mapping.
        default: As on the page, in Markdown.
        meaning: For people, in Markdown.
        inside: The keys of the mapping that it holds.
    """

    kind: Kind[Any] | None
    default: str
    meaning: str
    inside: "Mapping[str, Key]" = field(default_factory=dict)


Table = Mapping[str, Key]


class Section:
    """A mapping that is read key by key; mistakes are collected, so that a check tells of all of them.

    Attributes:
        node: The mapping.
        table: What may be in it.
    """

    def __init__(self, node: Mapped, table: Table, errors: list[PolicyError]) -> None:
        self.node = node
        self.table = table
        self._errors = errors
        self._only()

    def note(self, error: PolicyError) -> None:
        """Keep a mistake."""
        self._errors.append(error)

    def get(self, key: str, default: D) -> Any | D:
        """The value of a key as its kind reads it, or `default` where the key is absent or wrong.

        A key whose value is left empty is a mistake and no default: it was written for some reason.
        """
        if key not in self.node:
            return default
        if self.node.get(key) is None:
            hint = "write a value, or leave the key out"
            self.note(PolicyError(f"{self.name(key)} is empty", self.node.place(key), hint))
            return default
        kind = self.table[key].kind
        assert kind is not None, f"{key} is a mapping"
        try:
            return kind(self.node[key])
        except PolicyError as error:
            self.note(error)
            return default

    def section(self, key: str) -> "Section | None":
        """The mapping under a key; None when absent or no mapping."""
        if key not in self.node:
            return None
        if self.node.get(key) is None:
            hint = "write a value, or leave the key out"
            self.note(PolicyError(f"{self.name(key)} is empty", self.node.place(key), hint))
            return None
        node = self.node[key]
        kind = self.table[key].kind
        if not isinstance(node, Mapped):
            wanted = f"a mapping or {kind.words}" if kind else "a mapping (key: value)"
            self.note(PolicyError(node.wrong(wanted).message, node.at))
            return None
        return Section(node, self.table[key].inside, self._errors)

    def name(self, key: str) -> str:
        """A key with the path to it: ``migrate.hold``."""
        return f"{self.node.name}.{key}" if self.node.name else key

    def _only(self) -> None:
        """Note every key that the table does not have."""
        unknown = [key for key in self.node if key not in self.table]
        for key in unknown[:_TOLD]:
            hint = unknown_key_hint(key, self.table)
            self.note(PolicyError(f"unknown key {self.name(key)}", self.node.place(key), hint))
        if len(unknown) > _TOLD:
            more = f"{len(unknown) - _TOLD} more unknown keys"
            self.note(PolicyError(more, self.node.place(unknown[_TOLD])))
