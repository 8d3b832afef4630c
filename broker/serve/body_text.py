"""Texts of a JSON body that no database column and no answer can hold, found before any route acts on them.

JSON can write half of a surrogate pair (``"\\ud800"``), which is no character: it cannot be sent as UTF-8, so that a
row with it would fail every listing it is in. And it can write NUL, at which an environment or a file name ends.
"""

import json
from collections.abc import Iterator
from typing import Any

from broker.wire.bounds import is_legible


def why_illegible(body: bytes) -> str:
    """What is wrong with the first text that cannot be kept, and where; empty when nothing is, or when it is no JSON.

    What is no JSON is left to the route, which says so.
    """
    try:
        where = next(_illegible(json.loads(body)), None) if body else None
    except ValueError:
        return ""
    except RecursionError:
        return "the body is nested too deeply"
    if where is None:
        return ""
    return f"{'.'.join(where) or 'the body'}: a text may have no NUL and no half of a surrogate pair"


def _illegible(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths to the texts that cannot be kept."""
    if isinstance(value, str) and not is_legible(value):
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            if is_legible(key):
                yield from _illegible(item, (*path, key))
            else:
                yield path
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _illegible(item, (*path, str(index)))
