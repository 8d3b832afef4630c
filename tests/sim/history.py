"""What happened in one seed, line by line; equal seeds give equal bytes."""

import hashlib
from collections.abc import Callable


def short(name: str) -> str:
    """A node's token as lines show it: its first fourteen characters, which a gang shares, and its rank."""
    stem, dash, rank = name.rpartition("-")
    return f"{stem[:14]}-{rank}" if dash and name.startswith("bk-") and rank.isdigit() else name


class Violation(AssertionError):
    """An invariant does not hold. `rule` names it."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class History:
    """Lines with their second. Keeps all of them: an hour is some thousand lines."""

    def __init__(self, now_s: Callable[[], float], echo: bool = False) -> None:
        self._now_s = now_s
        self._echo = echo
        self.lines: list[str] = []

    def note(self, what: str, **data: object) -> None:
        """Append a line."""
        told = " ".join(f"{name}={value}" for name, value in data.items())
        line = f"{self._now_s():10.3f} {what} {told}".rstrip()
        self.lines.append(line)
        if self._echo:
            print(line)

    @property
    def sha256(self) -> str:
        """Of all lines."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()
