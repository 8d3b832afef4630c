"""JSON of a vendor, in which nothing is said twice: of two prices under one key, Python would keep the last."""

import json
from typing import Any


def loads(text: str | bytes, **how: Any) -> Any:
    """As `json.loads`.

    Raises:
        ValueError: no JSON, a key twice in one object, or nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, **how)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)[:40]!r} twice")
    return found
