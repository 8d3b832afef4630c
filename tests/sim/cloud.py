"""One cloud without HTTP, for one process: the lab's world behind a network that loses, delays and doubles requests."""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TypeVar

from broker.core.errors import (
    Denied,
    Invalid,
    OutOfCapacity,
    OutOfQuota,
    ProviderDown,
    ProviderError,
    Throttled,
    UnknownOutcome,
)
from broker.core.offer import Offer, RawQuote
from broker.core.ports import Check, CloudNode, LaunchRequest
from broker.migration.reconcile import CALL_TIMEOUT_S
from lab import machines as lab
from lab.pools import PriceChange
from lab.world import World
from tests.sim.faults import Chaos, Kind
from tests.sim.history import History
from tests.sim.loop import START_MS, SimClock, SimLoop
from tests.world_provider import WorldProvider

T = TypeVar("T")
# Yields the seconds to wait; its value is the answer. `tests.sim.daemon.SimBlocking` runs it.
Steps = Generator[float, None, T]
# Hardly a request arrives later than this after its caller gave up; `Rules.forget_after_s` and the grace are longer.
LATEST_S = 90.0
# Some do all the same, when nobody waits for them any more: then only the collector is left.
FAR_TOO_LATE_S = 600.0
# A cloud shows a new machine within this; `Rules.resend_after_s` is at least that long.
LIST_LAG_S = 25.0
_HISTORY_S = 3 * 3600
_SCOPES = ("zone", "region", "cloud")


class SimWorld(World):
    """The lab's world, driven by the loop instead of by whoever looks."""

    def __init__(self, clock: object, scenario: object, loop: SimLoop) -> None:
        self._sim_loop = loop
        super().__init__(clock, scenario)  # type: ignore[arg-type]
        keep = ("/p5.4xlarge/", "/a3-highgpu-1g/")
        self.pools = {key: pool for key, pool in self.pools.items() if any(name in key for name in keep)}

    def _at(self, at_s: int, act: Callable[[int], None]) -> None:
        super()._at(at_s, act)
        self._sim_loop.call_at(at_s - START_MS / 1000 + 1e-6, self.advance)


@dataclass
class CloudTruth:
    """What only the world knows of one cloud.

    Attributes:
        visible_at_s: By machine id: from when on listings show it.
        denied: By machine id: how often in a row the cloud was heard to deny a machine that was there.
        expired_until_s: Credentials do not work until then; feed_until_s: the price list does not answer until then.
        cut_until_s: Nothing reaches the cloud until then.
        odd: Offers whose newest reading that was handed out is a glitch.
        shown: Tokens of machines that the answer to a create or a look-up has shown to one of our processes.
        late: Tokens of requests that are on their way although their callers have given up.
    """

    visible_at_s: dict[str, float] = field(default_factory=dict)
    denied: dict[str, int] = field(default_factory=dict)
    expired_until_s: float = 0.0
    feed_until_s: float = 0.0
    cut_until_s: float = 0.0
    odd: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Deed:
    """Something that a process of ours does to the world, told to the checkers at that very moment."""

    what: str
    token: str
    who: str
    late: bool
    machine: lab.Machine | None = None


class SimCloud(WorldProvider):
    """`Provider` of one cloud for one part of one daemon (`who`: ``reconciler-3``, ``collector-3``)."""

    def __init__(
        self,
        world: SimWorld,
        cloud: str,
        installation_id: str,
        truth: CloudTruth,
        chaos: Chaos,
        history: History,
        loop: SimLoop,
        who: str,
        crash_point: Callable[[str], None],
        crash_soon: Callable[[str], None],
        deed: Callable[[Deed], None],
        whole_polls: dict[int, tuple[float, float]],
        clock: SimClock,
    ) -> None:
        super().__init__(world, cloud, installation_id)
        self._truth = truth
        self._chaos = chaos
        self._history = history
        self._loop = loop
        self._who = who
        self._crash_point = crash_point
        self._crash_soon = crash_soon
        self._deed = deed
        self._whole_polls = whole_polls
        self._clock = clock
        self.odd: set[str] = set()
        self._random = chaos.random(f"cloud/{cloud}/{who.split('-')[0]}")

    # -- Provider -----------------------------------------------------------------------------------------------------

    def create(self, request: LaunchRequest) -> Steps[CloudNode]:  # type: ignore[override]
        if self._chaos.strikes(Kind.CAPACITY) or self._outrun(request.token):
            yield from self._exchange("create", request.token, lambda late: None)
            raise OutOfCapacity("the pool is empty", self._random.choice(_SCOPES))
        if self._chaos.strikes(Kind.QUOTA):
            yield from self._exchange("create", request.token, lambda late: None)
            raise OutOfQuota("the quota is used up", self._random.choice(_SCOPES))
        dead = self._chaos.strikes(Kind.NEVER_BOOTS)
        asked_s = self._loop.now_s
        try:
            machine = yield from self._exchange(
                "create", request.token, lambda late: self._create(request, dead, late)
            )
        except lab.OutOfStock as error:
            raise OutOfCapacity(str(error)) from error
        except lab.TokenMismatch as error:
            raise Invalid(str(error)) from error
        except lab.NameTaken as error:
            raise UnknownOutcome(str(error)) from error
        if self._heard(asked_s):
            self._truth.shown.add(request.token)
        return self._node(machine)

    def find(self, token: str, region: str, zone: str) -> Steps[CloudNode | None]:  # type: ignore[override]
        asked_s = self._loop.now_s
        found, machine_id = yield from self._exchange("find", token, lambda late: self._find(token))
        if found is not None and self._heard(asked_s):
            self._truth.shown.add(token)
        if machine_id is not None and self._heard(asked_s):
            denied = self._truth.denied
            denied[machine_id] = denied.get(machine_id, 0) + 1 if found is None else 0
        return found

    def _heard(self, asked_s: float) -> bool:
        """An answer that comes after the caller has given up shows nothing and denies nothing."""
        return self._loop.now_s - asked_s <= CALL_TIMEOUT_S

    def list_owned(self) -> Steps[list[CloudNode]]:  # type: ignore[override]
        listed = yield from self.list_tagged()
        return [node for node in listed if node.installation_id == self.installation_id]

    def list_tagged(self) -> Steps[list[CloudNode]]:  # type: ignore[override]
        return (yield from self._exchange("list", "", lambda late: self._list()))

    def delete(self, node: CloudNode) -> Steps[None]:  # type: ignore[override]
        yield from self._exchange("delete", node.token, lambda late: self._delete(node, late))

    def quotes(self) -> Iterable[RawQuote]:
        """At one moment: whoever asks has waited already."""
        began_ms, began_s = self._clock.now_ms(), self._loop.now_s
        self._crash_point("before quotes")
        self._reach("quotes", "")
        if self._loop.now_s < self._truth.feed_until_s and not self._chaos.calm:
            raise ProviderDown("the price list does not answer")
        quotes = self._quotes()
        if self._chaos.strikes(Kind.PARTIAL_PAGE):
            self._chaos.reached("partial poll")
            yield from quotes[: len(quotes) // 2]
            raise ProviderDown("the second page failed")
        odd = set()
        if self._chaos.strikes(Kind.GLITCH):
            for number in self._random.sample(range(len(quotes)), k=min(3, len(quotes))):
                quotes[number] = self._glitch(quotes[number])
                odd.add(id(quotes[number]))
        newest = {quote.offer.key: quote for quote in quotes}
        self.odd = {key for key, quote in newest.items() if id(quote) in odd}
        self._whole_polls[began_ms] = (began_s, self._loop.now_s)
        yield from quotes

    def check(self) -> Sequence[Check]:
        return [Check("world", True, "it turns")]

    # -- the network --------------------------------------------------------------------------------------------------

    def _exchange(self, operation: str, token: str, effect: Callable[[bool], T]) -> Steps[T]:
        """One request and its reply."""
        self._deed(Deed(f"ask {operation}", token, self._who, late=False))
        self._crash_point(f"before {operation}")
        try:
            yield self._random.expovariate(1 / 1.5)
        except GeneratorExit:
            # The process is dead, and its request may be on its way all the same.
            if not self._chaos.calm and operation in ("create", "delete") and self._random.random() < 0.5:
                self._arrive_late(operation, token, effect)
            raise
        yield from self._lose(operation, token, effect)
        result = effect(False)
        if operation in ("create", "delete") and self._chaos.strikes(Kind.DUPLICATE):
            self._history.note("fault.duplicate", operation=operation, token=token)
            self._arrive_late(operation, token, effect)
        self._crash_point(f"after {operation}")
        if self._chaos.strikes(Kind.REPLY_LOST):
            self._history.note("fault.reply_lost", operation=operation, token=token)
            self._chaos.reached(f"reply lost after {operation}")
            yield 30.0
            raise UnknownOutcome(f"{operation}: the connection broke")
        self._crash_soon(f"during {operation}")
        try:
            yield self._random.expovariate(1 / 1.5)
        except GeneratorExit:
            self._chaos.reached(f"crash between {operation} and its result")
            raise
        return result

    def _reach(self, operation: str, token: str) -> None:
        """Refusals that leave nothing behind."""
        if self._chaos.calm:
            return
        now_s = self._loop.now_s
        if now_s < self._truth.cut_until_s:
            raise ProviderDown("no route")
        if now_s < self._truth.expired_until_s:
            raise Denied("the credentials have expired")
        if self._chaos.strikes(Kind.THROTTLED):
            raise Throttled("too many calls", 5.0)
        if operation == "list" and self._chaos.strikes(Kind.PARTIAL_PAGE):
            raise ProviderDown("the second page failed")

    def _lose(self, operation: str, token: str, effect: Callable[[bool], T]) -> Steps[None]:
        """What may have happened, or happens later."""
        self._reach(operation, token)
        if self._chaos.strikes(Kind.HTTP_500):
            if operation == "create" and self._random.random() < 0.5:
                effect(False)
            raise UnknownOutcome(f"{operation}: HTTP 500")
        if self._chaos.strikes(Kind.REQUEST_LOST):
            self._history.note("fault.request_lost", operation=operation, token=token)
            yield 30.0
            raise UnknownOutcome(f"{operation}: the connection broke")
        if self._chaos.strikes(Kind.LATE):
            # Longer than the caller waits: it gives up after 60 s, and the request arrives all the same.
            self._truth.late.add(token)
            if operation == "create" and self._random.random() < 0.3:
                self._arrive_late(operation, token, effect)
                yield 300.0
            # A list of many pages may be slow and still in time; what was made meanwhile is on its last one.
            yield self._random.uniform(5 if operation == "list" else 61, 60 + LATEST_S)
            self._chaos.reached(f"late {operation} arrived")

    def _outrun(self, token: str) -> bool:
        """The pool ran empty between a request that is still on its way and the one that repeats it."""
        if token not in self._truth.late or self._chaos.calm or self._random.random() < 0.5:
            return False
        self._chaos.struck(Kind.CAPACITY)
        return True

    def _arrive_late(self, operation: str, token: str, effect: Callable[[bool], object]) -> None:
        def arrive() -> None:
            self._history.note("fault.arrives_late", operation=operation, token=token)
            try:
                effect(True)
            except (lab.WorldError, ProviderError):
                pass

        far = self._random.random() < 0.2
        self._loop.call_later(self._random.uniform(0, FAR_TOO_LATE_S if far else LATEST_S), arrive)

    # -- the cloud's side ---------------------------------------------------------------------------------------------

    def _create(self, request: LaunchRequest, dead: bool, late: bool) -> lab.Machine:
        known = len(self.world.machines())
        labels = {
            "installation": request.installation_id,
            "seq": str(request.event_seq),
            "token": request.token,
        }
        machine = self.world.create(
            lab.CreateRequest(
                request.offer.key,
                request.token,
                request.token,
                labels,
                fingerprint=repr(replace(request, user_data="")),
                notice_s=request.notice_s,
                never_boots=dead,
            )
        )
        new = len(self.world.machines()) > known
        if new:
            lag = self._random.uniform(2, LIST_LAG_S) if self._chaos.strikes(Kind.LIST_LAG) else 0.0
            self._truth.visible_at_s[machine.id] = self._loop.now_s + lag
        self._history.note("cloud.create", token=request.token, machine=machine.id, new=new, who=self._who)
        self._deed(Deed("create", request.token, self._who, late, machine if new else None))
        return machine

    def _find(self, token: str) -> tuple[CloudNode | None, str | None]:
        """What the cloud says of a token, and the machine that it is about, shown or denied though it is there."""
        for machine in reversed(self.world.machines(self.cloud)):
            if machine.labels["token"] != token:
                continue
            there = machine.state is not lab.MachineState.TERMINATED
            if not there and (self.cloud == "gcp" or self._old(machine)):
                return None, None  # deleted is deleted there; the other cloud shows the dead for an hour
            if self._hidden(machine):
                return None, machine.id if there else None
            return self._node(machine), machine.id
        return None, None

    def _list(self) -> list[CloudNode]:
        return [
            self._node(m)
            for m in self.world.machines(self.cloud)
            if m.state is not lab.MachineState.TERMINATED and not self._hidden(m)
        ]

    def _hidden(self, machine: lab.Machine) -> bool:
        if self._loop.now_s < self._truth.visible_at_s.get(machine.id, 0.0):
            self._chaos.reached("look-up before the listing shows it")
            return True
        return self._chaos.strikes(Kind.OMITTED)

    def _old(self, machine: lab.Machine) -> bool:
        return machine.ended_s is not None and self.world.now_s() - machine.ended_s > 3600

    def _delete(self, node: CloudNode, late: bool) -> None:
        for machine in self.world.machines(self.cloud):
            if self._loop.now_s < self._truth.visible_at_s.get(machine.id, 0.0):
                continue  # not found, says the cloud, which is no error
            if machine.labels["token"] == node.token and machine.holds_stock:
                self._deed(Deed("delete", node.token, self._who, late, machine))
                self._history.note("cloud.delete", token=node.token, machine=machine.id, who=self._who)
                self.world.terminate(machine.id)

    def _quotes(self) -> list[RawQuote]:
        """The price now, and those of the last hours, as a cloud with a price history tells them."""
        since_s = self.world.now_s() - _HISTORY_S
        found: list[RawQuote] = []
        for key, pool in self.world.pools.items():
            if not key.startswith(f"{self.cloud}/"):
                continue
            first = pool.at(since_s)
            changes = [first, *(c for c in pool.changes if c.at_s > max(since_s, first.at_s))]
            offer = self.offer(key)
            found += [_raw(offer, change) for change in changes]
        return found

    def _glitch(self, quote: RawQuote) -> RawQuote:
        price = Decimal(quote.price_text)
        wrong = self._random.choice(["0", "NaN", "-1.5", str(price / 97), str(price * 83), "EUR", "1e400"])
        if wrong == "EUR":
            return replace(quote, currency="EUR")
        return replace(quote, price_text=wrong)


def _raw(offer: Offer, change: PriceChange) -> RawQuote:
    price = str(Decimal(change.price_micro_usd_h) / 1_000_000)
    return RawQuote(offer, price, "USD", change.at_s * 1000, "world")
