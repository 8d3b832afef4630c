"""The filter of the retail price list: terms of ``eq``, ``ne`` and ``contains``, joined by ``and``.

From version 2023-01-01-preview values are compared with case; before it they were not, and a client that was written
then finds nothing, without an error.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

Row = Mapping[str, Any]
Accepts = Callable[[Row], bool]

# Name in a filter -> name in a row, as the documentation has them.
_FIELDS = {
    "armRegionName": "armRegionName",
    "armSkuName": "armSkuName",
    "location": "location",
    "meterId": "meterId",
    "meterName": "meterName",
    "priceType": "type",
    "productId": "productId",
    "productName": "productName",
    "serviceFamily": "serviceFamily",
    "serviceId": "serviceId",
    "serviceName": "serviceName",
    "skuId": "skuId",
    "skuName": "skuName",
}
# Known, and matched by nothing: the currency is a parameter of its own.
_NEVER = frozenset({"currencyCode"})
_TEXT = r"'((?:[^']|'')*)'"
_COMPARED = re.compile(rf"(\w+)\s+(eq|ne)\s+{_TEXT}")
_CONTAINED = re.compile(rf"contains\(\s*(\w+)\s*,\s*{_TEXT}\s*\)(?:\s+eq\s+(true|false))?")
_AND = re.compile(r"\s+and\s+(?=(?:[^']*'[^']*')*[^']*$)")


class BadFilter(Exception):
    """A filter that the list does not understand."""


def parse(text: str, with_case: bool) -> Accepts:
    """What a filter accepts; the empty one accepts everything.

    Raises:
        BadFilter: not of this grammar, or of an unknown field.
    """
    terms = [_term(term.strip(), with_case) for term in _AND.split(text.strip())] if text.strip() else []
    return lambda row: all(term(row) for term in terms)


def _term(text: str, with_case: bool) -> Accepts:
    fold: Callable[[str], str] = str if with_case else str.lower
    if match := _COMPARED.fullmatch(text):
        field, wanted, equal = match.group(1), fold(_unquoted(match.group(3))), match.group(2) == "eq"
        if field in _NEVER:
            return lambda row: False
        name = _name(field)
        return lambda row: (fold(str(row.get(name, ""))) == wanted) is equal
    if match := _CONTAINED.fullmatch(text):
        name, wanted, held = _name(match.group(1)), fold(_unquoted(match.group(2))), match.group(3) != "false"
        return lambda row: (wanted in fold(str(row.get(name, "")))) is held
    raise BadFilter(f"Syntax error in {text!r}")


def _name(field: str) -> str:
    if field not in _FIELDS:
        raise BadFilter(f"Could not find a property named '{field}'")
    return _FIELDS[field]


def _unquoted(text: str) -> str:
    return text.replace("''", "'")
