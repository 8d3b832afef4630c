"""What a file that a person wrote may ask of the YAML reader, and what it may not contain.

The reader takes some 15 µs a token, and time by the square in what is deeply nested: within these bounds every file
is read or refused in well under a second. Characters that cannot be seen are refused wherever they stand, because a
file must not read otherwise than it looks (https://trojansource.codes); so are anchors and directives: an alias
could be expanded without end, and ``%YAML 1.1`` turns `yes` into true.
"""

import re
import unicodedata
from typing import Any, Final

from ruamel.yaml.scanner import Scanner

MAX_TOKENS: Final = 20_000
MAX_DEPTH: Final = 20
MAX_KEY: Final = 200
MAX_NUMBER: Final = 40

BOM: Final = "\ufeff"

# Controls, marks of direction, spaces without width, fillers, tags, half surrogates, and what is no character.
# The joiners U+200C and U+200D are not among them: some languages cannot be written without.
_UNSEEN: Final = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
    "\ud800-\udfff"
)
_IN_TEXT: Final = re.compile(f"[{_UNSEEN}]|\r(?!\n)")
_IN_VALUE: Final = re.compile(f"[{_UNSEEN}]")


class Refused(Exception):
    """A file asks for too much, or has what it may not have.

    Attributes:
        message, hint: For the person.
        line, column: From 0.
    """

    def __init__(self, message: str, line: int, column: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
        self.hint = hint


def refuse_unseen(text: str) -> None:
    """Raises:
    Refused: at the first character of a file that cannot be seen.
    """
    found = _IN_TEXT.search(text)
    if found is None:
        return
    before = text[: found.start()].replace("\r\n", "\n")
    line = before.count("\n")
    hint = "take it out: a file must not read otherwise than it looks"
    match found[0]:
        case "\x00":
            hint = "is this a text file, saved as UTF-8?"
        case "\r":
            hint = "save the file with line ends as on Linux"
    raise Refused(f"{naming(found[0])} cannot be seen", line, len(before) - before.rfind("\n") - 1, hint)


def unseen_in(value: str) -> str | None:
    """The first character of a value that cannot be seen, by its name; an escape may have made it."""
    found = _IN_VALUE.search(value)
    return naming(found[0]) if found else None


def wrong_key(key: str) -> str | None:
    """What is wrong with a key; two that look the same are one to every reader but the machine."""
    if not key:
        return "a key must be text"
    if len(key) > MAX_KEY:
        return f"a key of {len(key)} characters; {MAX_KEY} are allowed"
    if not key.isprintable() or unicodedata.normalize("NFC", key) != key:
        return f"the key {key!a} does not read as it looks; write it in plain letters"
    return None


def naming(character: str) -> str:
    """``U+202E (RIGHT-TO-LEFT OVERRIDE)``."""
    nameless = {"Cs": "half of a surrogate pair", "Cc": "a control character"}
    kind = nameless.get(unicodedata.category(character), "no character")
    return f"U+{ord(character):04X} ({unicodedata.name(character, kind)})"


def foreign_letter(word: str) -> str | None:
    """The first character that is not ASCII, by its name: in a key or a fact it looks like another one at best."""
    return next((f"{letter!r} is {naming(letter)}" for letter in word if not letter.isascii()), None)


class BoundedScanner(Scanner):
    """ruamel's, which stops at the bounds while it reads: behind it nothing is ever larger or deeper.

    Attributes:
        max_tokens: A subclass may have another bound.
    """

    max_tokens = MAX_TOKENS

    def fetch_more_tokens(self) -> Any:
        if self.tokens_taken + len(self.tokens) > self.max_tokens:
            raise self._refused(
                f"too many values: a file has at most {self.max_tokens} keys, values and brackets"
            )
        return super().fetch_more_tokens()

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:
        if self.flow_level >= MAX_DEPTH:
            raise self._too_deep()
        super().fetch_flow_collection_start(TokenClass, to_push)

    def add_indent(self, column: int) -> bool:
        if self.indent < column and len(self.indents) >= MAX_DEPTH:
            raise self._too_deep()
        return bool(super().add_indent(column))

    def fetch_anchor(self) -> None:
        raise self._anchor()

    def fetch_alias(self) -> None:
        raise self._anchor()

    def fetch_directive(self) -> None:
        raise self._refused("directives (%YAML, %TAG) are not supported", "take the line out")

    def _anchor(self) -> Refused:
        hint = f"text that begins with {self.reader.peek()} goes in quotes"
        return self._refused("anchors and aliases (&x, *x) are not supported; write the value out", hint)

    def _too_deep(self) -> Refused:
        return self._refused(f"nested too deeply: {MAX_DEPTH} levels are allowed")

    def _refused(self, message: str, hint: str | None = None) -> Refused:
        return Refused(message, self.reader.line, self.reader.column, hint)
