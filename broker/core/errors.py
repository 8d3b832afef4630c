"""Every error, with the exit code of the command that ends in it.

    BrokerError                      1   something failed; the text says what and what to do
    ├── UsageError                   2   a file or an option that a person wrote is wrong (place, suggestion)
    │   ├── SpecError                2   ... in a job file
    │   ├── PolicyError              2   ... in a policy file
    │   └── SettingsError            2   ... in the configuration
    ├── NotFound                     3   no such job, node, policy
    ├── AuthError                    4   no token, or a role that may not do this
    ├── Conflict                     5   somebody else changed it, or it is not in a state for that
    │   ├── AlreadyRunning           5   another daemon holds this state database
    │   └── LeaseLost                5   another daemon has taken over; nothing was written
    ├── Refused                      6   a policy, a cap or the pause switch says no
    ├── DiskFull                     1   no room is left for our state; nothing was written
    ├── StoreError                   1   the checkpoint store failed
    │   ├── CasFailed                1   compare-and-swap lost: somebody else wrote first
    │   └── Corrupt                  1   bytes do not match their hash
    └── ProviderError                7   a cloud said no
        ├── OutOfCapacity(scope)     7   the pool is empty
        ├── OutOfQuota(scope)        7   our quota is used up
        ├── Throttled(retry_after)   7   too many calls
        ├── Denied                   7   credentials missing, expired or not allowed
        ├── Invalid                  7   the cloud will never accept this request
        ├── UnknownOutcome           7   the request may or may not have happened
        └── ProviderDown             7   the cloud did not answer, and nothing happened

8 is no error: `broker audit` has found something.

`UnknownOutcome` is not a failure: it is answered by looking the token up, never by a new token.
"""

from dataclasses import dataclass


class BrokerError(Exception):
    """Something failed; the text says what and what to do."""

    exit_code = 1
    code = "error"


@dataclass(frozen=True)
class Place:
    """Where in a file something is wrong.

    Attributes:
        file: Path as the person gave it.
        line: From 1.
        column: From 1.
        source: The source line, without its newline.
    """

    file: str
    line: int
    column: int
    source: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class UsageError(BrokerError):
    """A file or an option that a person wrote is wrong."""

    exit_code = 2
    code = "usage"

    def __init__(self, message: str, place: Place | None = None, hint: str | None = None) -> None:
        message = _clipped(message)
        super().__init__(message)
        self.message = message
        self.place = place
        self.hint = hint and _clipped(hint)

    def __str__(self) -> str:
        lines = [f"{self.place}: {self.message}" if self.place else self.message]
        if self.place and self.place.source:
            lines += _excerpt(self.place)
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


_LONGEST = 600  # of a message: it may quote what the person wrote, which may be a page
_SHOWN = 160  # of a source line; four fifths of it before the caret when it is longer


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 100]} ... {text[-90:]}"


def _excerpt(place: Place) -> list[str]:
    """The source line, or the part of it around the column, and a caret. What a terminal would obey is escaped."""
    at = place.column - 1
    start = max(0, at - _SHOWN * 4 // 5) if len(place.source) > _SHOWN else 0
    before, after = place.source[start:at], place.source[at : start + _SHOWN]
    if start:
        before = f"...{before}"
    if start + _SHOWN < len(place.source):
        after += "..."
    shown = _visible(before)
    return [f"    {shown}{_visible(after)}", f"    {' ' * len(shown)}^"]


def _visible(text: str) -> str:
    return "".join(
        letter if letter.isprintable() else " " if letter == "\t" else ascii(letter)[1:-1] for letter in text
    )


class SpecError(UsageError):
    """A job file is wrong."""

    code = "job_file"


class PolicyError(UsageError):
    """A policy file is wrong."""

    code = "policy_file"


class SettingsError(UsageError):
    """The configuration is wrong."""

    code = "settings"


class NotFound(BrokerError):
    """No such job, node or policy."""

    exit_code = 3
    code = "not_found"


class AuthError(BrokerError):
    """No token, or a role that may not do this."""

    exit_code = 4
    code = "auth"


class Conflict(BrokerError):
    """Somebody else changed it, or it is not in a state for that."""

    exit_code = 5
    code = "conflict"


class AlreadyRunning(Conflict):
    """Another daemon holds this state database."""

    code = "already_running"


class LeaseLost(Conflict):
    """Another daemon has taken over; nothing was written."""

    code = "lease_lost"


class Refused(BrokerError):
    """A policy, a cap or the pause switch says no."""

    exit_code = 6
    code = "refused"


class DiskFull(BrokerError):
    """No room is left for our state; nothing was written."""

    code = "disk_full"


class StoreError(BrokerError):
    """The checkpoint store failed."""

    code = "store"


class CasFailed(StoreError):
    """Compare-and-swap lost: somebody else wrote first."""

    code = "cas_failed"


class Corrupt(StoreError):
    """Bytes do not match their hash."""

    code = "corrupt"


class ProviderError(BrokerError):
    """A cloud said no."""

    exit_code = 7
    code = "provider"


class Scoped(ProviderError):
    """An error that holds for a part of a cloud.

    Attributes:
        scope: ``zone``, ``region`` or ``cloud``: how far the refusal reaches.
    """

    def __init__(self, message: str, scope: str = "zone") -> None:
        super().__init__(message)
        assert scope in ("zone", "region", "cloud"), scope
        self.scope = scope


class OutOfCapacity(Scoped):
    """The pool is empty."""

    code = "out_of_capacity"


class OutOfQuota(Scoped):
    """Our quota is used up."""

    code = "out_of_quota"


class Throttled(ProviderError):
    """Too many calls.

    Attributes:
        retry_after_s: When the cloud says to come back, if it does.
    """

    code = "throttled"

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Denied(ProviderError):
    """Credentials are missing, expired or not allowed."""

    code = "denied"


class Invalid(ProviderError):
    """The cloud will never accept this request."""

    code = "invalid"


class UnknownOutcome(ProviderError):
    """The request may or may not have happened; look its token up."""

    code = "unknown_outcome"


class ProviderDown(ProviderError):
    """The cloud did not answer, and nothing happened."""

    code = "provider_down"
