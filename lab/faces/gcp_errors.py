"""A call of Google's APIs, how they word their refusals, and how they page and filter lists."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from lab.faults import FaultKind

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class GcpError(Exception):
    """An error as Google sends it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.headers: dict[str, str] = {}  # beside those of every reply

    def document(self) -> dict[str, Any]:
        """The body."""
        entry = {"message": self.message, "domain": "global", "reason": self.reason}
        return {
            "error": {
                "code": self.status,
                "message": self.message,
                "errors": [entry],
                "status": _STATUS[self.status],
            }
        }


@dataclass
class Call:
    """One call, parsed.

    Attributes:
        path: Path parameters; query: the others.
        body: The JSON document, or None.
        user: Who calls.
        fault: One that the operation itself must act out.
    """

    operation: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    user: str
    fault: FaultKind | None = None


Row = Callable[[str], str | None]


def refusal(operation: str, kind: FaultKind) -> GcpError | None:
    """How a fault is worded; None for what is no refusal of the whole call."""
    compute = not operation.startswith("skus.")
    if kind is FaultKind.EXPIRED:
        return unauthenticated()
    if kind is FaultKind.DENIED:
        return GcpError(403, "forbidden", f"Required permission for '{operation}' is missing")
    if kind is FaultKind.THROTTLE:
        text = "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute'."
        return GcpError(403 if compute else 429, "rateLimitExceeded", text)
    if kind is FaultKind.HTTP_500:
        return GcpError(503, "backendError", "Internal error. Please try again.")
    return None


def unauthenticated() -> GcpError:
    """No token, an expired one, or one that is not ours."""
    text = "Request had invalid authentication credentials. Expected OAuth 2 access token."
    return GcpError(401, "authError", text)


def page(
    call: Call, rows: Sequence[Any], largest: int = 500, size_name: str = "maxResults"
) -> tuple[list[Any], str]:
    """One page of rows and the token of the next, empty for the last.

    Acts out `FaultKind.PARTIAL_PAGE`: the first page is right and short, the one it points to fails; and ``link_lost``:
    a short first page that says that it is the last.
    """
    token = call.query.get("pageToken", "")
    if token == _BROKEN:
        raise GcpError(503, "backendError", "Backend Error")
    if not re.fullmatch(r"|after-\d+", token):
        raise GcpError(400, "invalid", f"Invalid value for field 'pageToken': '{token}'.")
    size = int(call.query.get(size_name) or largest)
    if not 0 < size <= largest:
        raise GcpError(400, "invalid", f"Invalid value for field '{size_name}': '{size}'.")
    start = int(token.removeprefix("after-") or 0)
    if call.fault in (FaultKind.PARTIAL_PAGE, FaultKind.LINK_LOST):
        return list(rows[: max(1, len(rows) // 2)]), _BROKEN if call.fault is FaultKind.PARTIAL_PAGE else ""
    end = start + size
    return list(rows[start:end]), f"after-{end}" if end < len(rows) else ""


_BROKEN = "after-half"
_TERM = re.compile(r"""\(?\s*([\w.-]+)\s*(!=|=|:|\beq\b|\bne\b)\s*("[^"]*"|'[^']*'|[^\s()]+)\s*\)?""")


def accepts(expression: str, row: Row) -> bool:
    """Whether a filter accepts a row: terms joined by AND, of ``=``, ``!=``, ``:`` and the older ``eq`` and ``ne``.

    ``eq`` and ``ne`` take a regular expression for the whole field. ``:`` finds words, and never a part of a URL.
    """
    for term in filter(None, re.split(r"\s+AND\s+", expression.strip())):
        match = _TERM.fullmatch(term)
        if match is None:
            raise GcpError(400, "invalid", f"Invalid value for field 'filter': '{expression}'.")
        field, operator, wanted = match.group(1), match.group(2), match.group(3).strip("\"'")
        value = row(field)
        if operator in ("=", "!="):
            held = value is not None and fnmatchcase(value, wanted.replace("[", "[[]"))
        elif operator == ":":
            held = value is not None and not value.startswith("https://") and fnmatchcase(value, wanted)
        else:
            held = value is not None and re.fullmatch(wanted, value) is not None
        if held is (operator in ("!=", "ne")):
            return False
    return True
