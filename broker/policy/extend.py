"""`extends:` what a policy inherits from a file of its folder.

A key that the policy does not have is the parent's: mappings are laid over each other key by key, at every depth; any
other value replaces the parent's, lists too. `policy`, `description` and `extends` are a file's own. The parent has to
be well by itself; its mistake is the child's as well, told with both places.

A file named ``*.defaults.yaml`` is there to be extended: it has no name and never decides for a job.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from broker.core.errors import PolicyError
from broker.core.yaml_text import Mapped, Node, parse
from broker.policy import fields
from broker.policy.sections import read_policy

MOST_PARENTS: Final = 5
_OWN: Final = ("policy", "description", "extends")

Read = Callable[[Path], str]


def is_defaults(file: str) -> bool:
    """Whether a file is there to be extended, and is no policy itself."""
    return file.endswith(".defaults.yaml")


class Family:
    """Reads the parents of one file.

    Attributes:
        texts: By file, what was read of each parent; None where it could not be. Whoever keeps the policy looks at these
            again to know whether it is still the newest.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self.texts: dict[str, str | None] = {}

    def whole(self, text: str, file: str, children: tuple[str, ...] = ()) -> tuple[Mapped, str]:
        """A file's document with what it inherits, and the hash of all of it: of the file alone where it extends none.

        Args:
            children: Files that extend this one, the first of them first.

        Raises:
            PolicyError: no YAML, or something is wrong with a parent.
        """
        own = parse(text, file, PolicyError)
        sha256 = _sha256(text)
        named = own.get("extends")
        if named is None:
            return own, sha256
        parent, parent_sha256 = self._parent(named, file, (*children, file))
        return _over(own, parent, without=_OWN), _sha256(f"{sha256} {parent_sha256}")

    def _parent(self, named: Node, file: str, family: tuple[str, ...]) -> tuple[Mapped, str]:
        path = Path(file).parent / fields.file_name(named)
        if str(path) in family:
            circle = ", ".join(Path(f).name for f in (*family[family.index(str(path)) :], str(path)))
            raise named.fail(f"extends goes in a circle: {circle}")
        if len(family) > MOST_PARENTS:
            raise named.fail(f"extends goes on for more than {MOST_PARENTS} files")
        self.texts[str(path)] = None
        try:
            text = self._read(path)
        except PolicyError as error:
            hint = "it is a file in the same folder, as in team.defaults.yaml"
            raise named.fail(f"extends: {error.message}", error.hint or hint) from None
        self.texts[str(path)] = text
        try:
            document, sha256 = self.whole(text, str(path), family)
            errors = read_policy(document, str(path), sha256, is_defaults=is_defaults(path.name))[1]
        except PolicyError as error:
            errors = [error]
        if errors:
            first = errors[0]
            count = "a mistake" if len(errors) == 1 else f"{len(errors)} mistakes"
            told = f"{first.place}: {first.message}" if first.place else first.message
            raise named.fail(f"extends: {path.name} has {count}: {told}", first.hint)
        return document, sha256


def _over(child: Mapped, parent: Mapped, without: tuple[str, ...] = ()) -> Mapped:
    """The child's keys, and those of the parent that it does not have; each with its own place."""
    entries: dict[str, Node] = {}
    keys = {}
    for key, node in parent.items():
        if key not in without:
            entries[key], keys[key] = node, parent.place(key)
    for key, node in child.items():
        below = entries.get(key)
        if isinstance(node, Mapped) and isinstance(below, Mapped):
            node = _over(node, below)
        entries[key], keys[key] = node, child.place(key)
    return Mapped(entries, keys, child.at, child.name, PolicyError)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def same(texts: Mapping[str, str | None], read: Read) -> bool:
    """Whether every one of these files still has that text."""
    for file, text in texts.items():
        try:
            now: str | None = read(Path(file))
        except PolicyError:
            now = None
        if now != text:
            return False
    return True
