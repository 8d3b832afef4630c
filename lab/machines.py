"""A machine of a simulated cloud, as values, and the errors of asking for one.

pending ──> running ──> stopping ──> terminated
   └────────────────────────^
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class MachineState(StrEnum):
    """See the drawing."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    TERMINATED = "terminated"


class EndedBy(StrEnum):
    """Who asked for the end."""

    USER = "user"  # through the API
    CLOUD = "cloud"  # an interruption
    NODE = "node"  # shut down from inside
    LIFETIME = "lifetime"  # the maximum run duration that the user asked for


@dataclass(frozen=True)
class Interruption:
    """The cloud has announced the end.

    Attributes:
        noticed_s: When.
        deadline_s: When the machine ends.
    """

    noticed_s: int
    deadline_s: int


@dataclass(frozen=True)
class CreateRequest:
    """What a face asks of the world.

    Attributes:
        offer_key: The pool.
        token: AWS ClientToken, GCP requestId; None when the caller gave none (then every call is a new machine).
        name: Unique within a zone where the cloud has names; empty where it has none.
        labels: Tags or labels.
        user_data: Script that the machine runs when it has booted; empty for none.
        fingerprint: Of every parameter as the face saw it; another one under the same token is an error.
        max_price_micro_usd_h: Spot bid cap, or None.
        max_life_s: The cloud ends the machine this long after it runs, or None.
        notice_s: Interruption notice that the user asked for, or None for the cloud's own.
        never_boots: A fault: it runs and is billed, and nothing happens inside.
    """

    offer_key: str
    token: str | None = None
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    user_data: str = ""
    fingerprint: str = ""
    max_price_micro_usd_h: int | None = None
    max_life_s: int | None = None
    notice_s: int | None = None
    never_boots: bool = False


@dataclass(frozen=True)
class Machine:
    """One machine at one moment. All times are whole seconds since 1970 on the lab's clock.

    Attributes:
        id: ``i-…`` on AWS, digits on GCP.
        request: What was asked for.
        labels: Tags or labels, as they are now.
        created_s: When the request came; what APIs call launch or creation time.
        running_s: When it ran: the meter's start. None while pending, or when it never ran.
        stopping_s: When its end began: the meter's end.
        ended_s: When it was gone.
    """

    id: str
    cloud: str
    region: str
    zone: str
    instance_type: str
    market: str
    address: str
    request: CreateRequest
    labels: Mapping[str, str]
    created_s: int
    state: MachineState = MachineState.PENDING
    running_s: int | None = None
    stopping_s: int | None = None
    ended_s: int | None = None
    ended_by: EndedBy | None = None
    interruption: Interruption | None = None

    @property
    def offer_key(self) -> str:
        """The pool it came from."""
        return self.request.offer_key

    @property
    def name(self) -> str:
        """Its name, where the cloud has names."""
        return self.request.name

    @property
    def token(self) -> str | None:
        """The client token or request id it was made with."""
        return self.request.token

    @property
    def holds_stock(self) -> bool:
        """Whether it takes a place in its pool."""
        return self.state in (MachineState.PENDING, MachineState.RUNNING)


class Happening(StrEnum):
    """What the log and the listeners tell of."""

    CREATED = "machine.created"
    RUNNING = "machine.running"
    NOTICED = "machine.noticed"
    STOPPING = "machine.stopping"
    TERMINATED = "machine.terminated"
    REFUSED = "create.refused"
    PRICE = "price.changed"
    STOCK = "stock.changed"


@dataclass(frozen=True)
class LogEntry:
    """One line of the append-only log."""

    seq: int
    at_s: int
    what: Happening
    data: Mapping[str, Any] = field(default_factory=dict)


class WorldError(Exception):
    """The simulated cloud says no."""


class UnknownPool(WorldError):
    """That type is not sold in that zone on that market."""


class OutOfStock(WorldError):
    """The pool is empty."""


class PriceTooLow(WorldError):
    """The bid is below the spot price."""


class TokenMismatch(WorldError):
    """The token was used before with other parameters."""


class NameTaken(WorldError):
    """A machine of that name exists in the zone."""


class NoSuchMachine(WorldError):
    """The world has never known it."""
