"""The sockets in the wall: what the outside must offer. Implementations live in other rooms.

Provider methods block; the shell runs them in a bounded thread pool with hard time-outs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from broker.core.availability import Availability, Unanswered
from broker.core.model import EndedBy
from broker.core.offer import Market, Offer, RawQuote
from broker.core.tariff import BillingRule


class Clock(Protocol):
    """Time, injected. `rate` 1 is the world; a rehearsal may run faster."""

    @property
    def rate(self) -> float:
        """Our seconds per real second."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 on our clock."""

    async def sleep(self, seconds: float) -> None:
        """Sleep that many seconds of *our* clock."""


class Ids(Protocol):
    """Randomness for names, injected."""

    def base32(self, length: int) -> str:
        """Lower-case base32 characters."""


class CloudState(StrEnum):
    """A machine as its cloud tells it, in our words."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    TERMINATED = "terminated"


@dataclass(frozen=True)
class CloudNode:
    """A machine as its cloud tells it.

    Attributes:
        token: From our tag or name.
        provider_id: The cloud's id: what `delete` wants.
        installation_id: From our tag: which broker made it.
        event_seq: From our tag.
        billed_from_ms: Start of the meter, by the cloud's word.
        ended_at_ms: End of the meter, by the cloud's word.
        ended_by: Who ended it, by the cloud's word.
        created_at_ms: When the cloud says it was made; the collector's grace counts from here.
    """

    token: str
    provider_id: str
    cloud: str
    region: str
    zone: str
    state: CloudState
    installation_id: str = ""
    event_seq: int = 0
    address: str | None = None
    created_at_ms: int = 0
    billed_from_ms: int | None = None
    ended_at_ms: int | None = None
    ended_by: EndedBy | None = None


@dataclass(frozen=True)
class LaunchRequest:
    """Everything a cloud needs for one node. Resent after a lost reply, it must be equal to the byte.

    Attributes:
        token: Client token, name, and source of the request id.
        offer: What to rent.
        user_data: Script that boots the agent.
        installation_id: Our tag.
        event_seq: Our tag.
        max_price_micro_usd_h: Bid cap for spot, or None for the market's own.
        notice_s: Interruption notice to ask for, in seconds of the cloud's clock, where a cloud lets us.
        max_life_s: The cloud ends the node after this by itself, where it can. None for no bound.
        disk_gib: Boot disk.
    """

    token: str
    offer: Offer
    user_data: str
    installation_id: str
    event_seq: int
    max_price_micro_usd_h: int | None = None
    notice_s: int | None = None
    max_life_s: int | None = None
    disk_gib: int = 100
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One line of `broker doctor`.

    Attributes:
        name: What was checked.
        ok: True, False, or None when it could not be checked.
        detail: What was found, and what to do if it is not well.
    """

    name: str
    ok: bool | None
    detail: str


class PriceSource(Protocol):
    """What one cloud costs. Errors are those of `broker.core.errors.ProviderError` and no others."""

    @property
    def cloud(self) -> str:
        """``aws``, ``gcp`` ..."""

    def quotes(self) -> Iterable[RawQuote]:
        """Every price of the configured regions. All or nothing: a page that fails fails the poll."""

    def price_history(self, from_ms: int) -> Iterable[RawQuote]:
        """Changes of price since then, where the cloud keeps them, oldest first; nothing where it does not."""

    def availability(self) -> Iterable[Availability | Unanswered]:
        """What the cloud says about obtaining its offers; nothing where it says nothing.

        Called after each poll. A cloud that limits how often it may be asked is asked less often, and what it said
        last is told again with its date. One call that fails takes no hint away: it is told beside the others.

        Raises:
            ProviderError: there is nothing to tell, for a call failed.
        """

    def egress_micro_usd_per_gib(self, from_offer: Offer, to_offer: Offer | None) -> int:
        """Price of one GiB leaving `from_offer` for `to_offer`'s place; None is the checkpoint store elsewhere."""

    def billing_rule(self, market: Market) -> BillingRule:
        """How a segment becomes money."""

    def disk_micro_usd_per_gib_month(self, region: str) -> int:
        """Price of boot disk, while it exists; 0 where it is part of the machine's price."""

    def check(self) -> Sequence[Check]:
        """Credentials, rights and reach, for `broker doctor`. Never raises."""


@runtime_checkable
class Provider(PriceSource, Protocol):
    """One cloud that we can rent from.

    No SDK retry hides a failed launch. `create` is idempotent by token: the same request twice is one node.
    """

    def create(self, request: LaunchRequest) -> CloudNode:
        """Rent one node.

        Raises:
            OutOfCapacity: the pool is empty.
            OutOfQuota: our quota is used up.
            UnknownOutcome: the reply was lost; look the token up, then resend the same request.
        """

    def find(self, token: str, region: str, zone: str) -> CloudNode | None:
        """The node with that token, also after its end where the cloud still knows; None when it knows of none."""

    def list_owned(self) -> Sequence[CloudNode]:
        """Every machine that carries our installation tag and may still be billed, in every configured region."""

    def list_tagged(self) -> Sequence[CloudNode]:
        """The same for the tag of *any* installation: strangers are counted by the audit, and never touched."""

    def delete(self, node: CloudNode) -> None:
        """Ask for its end, with disks and addresses. No error when it is already gone."""
