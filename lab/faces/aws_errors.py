"""A call of AWS, and how each service words its refusals."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from lab.faults import FaultKind

CALLER = "caller"  # a refusal that is no fault: the wrong key


class AwsError(Exception):
    """An error as AWS sends it; moto's serialiser reads the three attributes."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status_code = status
        self.headers: dict[str, str] = {}  # beside those of the protocol


@dataclass
class Call:
    """One call, parsed.

    Attributes:
        region: That the caller signed for.
        given: Parameters under their API names; times are naive UTC.
        fault: One that the operation itself must act out.
    """

    operation: str
    region: str
    given: Mapping[str, Any]
    fault: FaultKind | None = None

    def filters(self) -> dict[str, list[str]]:
        """EC2's ``Filters`` as name -> accepted values (with ``*`` and ``?``)."""
        return {entry["Name"]: entry.get("Values", []) for entry in self.given.get("Filters") or []}


_INVALID_KEY = "AWS was not able to validate the provided access credentials"
_INVALID_TOKEN = "The security token included in the request is invalid."
_WORDS: dict[tuple[str, str], tuple[str, str, int]] = {
    ("ec2", CALLER): ("AuthFailure", _INVALID_KEY, 401),
    ("pricing", CALLER): (
        "UnrecognizedClientException",
        "The security token included in the request is invalid.",
        400,
    ),
    ("sts", CALLER): ("InvalidClientTokenId", "The security token included in the request is invalid.", 403),
    ("ec2", FaultKind.EXPIRED): ("RequestExpired", "Request has expired.", 400),
    ("pricing", FaultKind.EXPIRED): (
        "ExpiredTokenException",
        "The security token included in the request is expired",
        400,
    ),
    ("sts", FaultKind.EXPIRED): (
        "ExpiredToken",
        "The security token included in the request is expired",
        403,
    ),
    ("ec2", FaultKind.DENIED): (
        "UnauthorizedOperation",
        "You are not authorized to perform this operation.",
        403,
    ),
    ("pricing", FaultKind.DENIED): (
        "AccessDeniedException",
        "User is not authorized to perform this action",
        400,
    ),
    ("sts", FaultKind.DENIED): ("AccessDenied", "User is not authorized to perform this action", 403),
    ("ec2", FaultKind.THROTTLE): ("RequestLimitExceeded", "Request limit exceeded.", 503),
    ("pricing", FaultKind.THROTTLE): ("ThrottlingException", "Rate exceeded", 400),
    ("sts", FaultKind.THROTTLE): ("Throttling", "Rate exceeded", 400),
    ("ec2", FaultKind.HTTP_500): ("InternalError", "An internal error has occurred", 500),
    ("pricing", FaultKind.HTTP_500): ("InternalErrorException", "An error on the server occurred.", 500),
    ("servicequotas", CALLER): ("UnrecognizedClientException", _INVALID_TOKEN, 400),
    ("servicequotas", FaultKind.EXPIRED): ("ExpiredTokenException", _INVALID_TOKEN, 400),
    ("servicequotas", FaultKind.DENIED): ("AccessDeniedException", "User is not authorized", 400),
    ("servicequotas", FaultKind.THROTTLE): ("TooManyRequestsException", "Rate exceeded", 400),
    ("servicequotas", FaultKind.HTTP_500): ("ServiceException", "An error on the server occurred.", 500),
    ("sts", FaultKind.HTTP_500): ("InternalFailure", "An internal error has occurred", 500),
}


def refusal(service: str, kind: str) -> AwsError | None:
    """How that service words it; None for what is no refusal of the whole call."""
    words = _WORDS.get((service, kind))
    return None if words is None else AwsError(*words)


def dry_run() -> AwsError:
    """The answer to a dry run that would have been let through."""
    return AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)


def matches(values: Sequence[str], text: str | None) -> bool:
    """Whether a filter with these values accepts a field: any of them, with EC2's wildcards."""
    return text is not None and any(fnmatchcase(text, re.sub(r"\[", "[[]", value)) for value in values)


def page(rows: Sequence[Any], call: Call, smallest: int = 5, largest: int = 1000) -> tuple[list[Any], str]:
    """One page of rows and the token of the next; the last token is empty, as EC2's are.

    Acts out `FaultKind.PARTIAL_PAGE`: the first page is right and short, the one it points to fails; and ``link_lost``:
    a short first page that says that it is the last.
    """
    token, size = call.given.get("NextToken") or "", call.given.get("MaxResults")
    if size is not None and not smallest <= size <= largest:
        raise AwsError("InvalidParameterValue", f"Value ( {size} ) for parameter maxResults is invalid.")
    if token == _BROKEN:
        raise AwsError("Unavailable", "The service is unavailable. Please try again shortly.", 503)
    if not re.fullmatch(r"|after-\d+", token):
        raise AwsError("InvalidPaginationToken", "The pagination token is invalid.")
    start = int(token.removeprefix("after-") or 0)
    if call.fault in (FaultKind.PARTIAL_PAGE, FaultKind.LINK_LOST):
        return list(rows[: max(1, len(rows) // 2)]), _BROKEN if call.fault is FaultKind.PARTIAL_PAGE else ""
    end = start + (size or largest)
    return list(rows[start:end]), f"after-{end}" if end < len(rows) else ""


BEGINNING = "after-0"
_BROKEN = "after-half"
