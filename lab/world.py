"""One simulated world: pools, machines, prices, notices and bills, on an injected clock.

No HTTP, no processes, no threads of its own: `lab.faces` give it the vendors' APIs, `lab.nodes` gives machines a life,
and simulations use it directly. Everything happens at whole seconds of the clock, in an order that only the calls
decide; ids come from the scenario's seed. Time moves lazily: each call first does what has come due (`advance`).

Thread-safe. Listeners are called outside the lock, in the order of what happened, each with the machine as it was then.
"""

import hashlib
import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from broker.core.ports import Clock
from lab import bills, catalog
from lab.bills import BillLine
from lab.catalog import Scenario
from lab.faults import Faults
from lab.machines import (
    CreateRequest,
    EndedBy,
    Happening,
    Interruption,
    LogEntry,
    Machine,
    MachineState,
    NameTaken,
    NoSuchMachine,
    OutOfStock,
    PriceTooLow,
    TokenMismatch,
    UnknownPool,
)
from lab.pools import Pool, opened

NOTICE_S = {"aws": 120, "gcp": 30}  # what each cloud promises when nothing else was asked for


Listener = Callable[[Happening, Machine], None]


class World:
    """The clouds, all of them.

    Attributes:
        clock: The lab's clock.
        scenario: What differs from the catalogue.
        pools: By offer key. Read them; change them only through `set_price` and `set_stock`.
        faults: What goes wrong on purpose; the faces take from it.
        start_s: When the world began.
    """

    def __init__(self, clock: Clock, scenario: Scenario | None = None) -> None:
        self.clock = clock
        self.scenario = scenario or Scenario.of()
        self.start_s = clock.now_ms() // 1000
        self.faults = Faults()
        self.pools: dict[str, Pool] = {}
        self._machines: dict[str, Machine] = {}
        self._tokens: dict[tuple[str, str, str], str] = {}
        self._due: list[tuple[int, int, Callable[[int], None]]] = []
        self._log: list[LogEntry] = []
        self._listeners: list[Listener] = []
        self._outbox: deque[tuple[Happening, Machine]] = deque()
        self._lock = threading.RLock()
        self._delivering = threading.Lock()
        self._order = itertools.count()
        self._depth = 0
        for listing in catalog.listings():
            price = _matching(self.scenario.prices, listing.key, listing.price_micro_usd_h)
            stock = _matching(self.scenario.stock, listing.key, listing.stock)
            assert price is not None
            self.pools[listing.key] = opened(listing, self.start_s, price, stock, self.scenario.seed)

    # Time

    def now_s(self) -> int:
        """The whole second that has begun on the lab's clock."""
        return self.clock.now_ms() // 1000

    def advance(self) -> int:
        """Do what has come due, in the order of its time, and tell the listeners. Returns the second it is now."""
        with self._turn() as now_s:
            return now_s

    @contextmanager
    def _turn(self) -> Iterator[int]:
        """One atomic step: what is due first, then the caller's own; listeners after the lock is free again."""
        with self._lock:
            now_s = self.now_s()
            self._depth += 1
            try:
                self._catch_up(now_s)
                yield now_s
                self._catch_up(now_s)  # a stop of zero seconds is due within its own turn
            finally:
                self._depth -= 1
            outermost = self._depth == 0
        if outermost:
            self._deliver()

    def _catch_up(self, now_s: int) -> None:
        while self._due and self._due[0][0] <= now_s:
            at_s, _, act = heapq.heappop(self._due)
            act(at_s)

    def _deliver(self) -> None:
        # One thread delivers at a time, or two could tell of a machine's end before its start. A thread that finds
        # the post taken leaves: the one at it re-checks the box after giving the post back.
        while self._outbox and self._delivering.acquire(blocking=False):
            try:
                while self._outbox:
                    what, machine = self._outbox.popleft()
                    for listener in self._listeners:
                        listener(what, machine)
            finally:
                self._delivering.release()

    def _at(self, at_s: int, act: Callable[[int], None]) -> None:
        heapq.heappush(self._due, (at_s, next(self._order), act))

    # Prices and stock

    def set_price(self, offer_key: str, price_micro_usd_h: int) -> None:
        """Set a pool's price from this second on, and of every pool that the cloud prices together with it.

        AWS spot has a price a zone; AWS on-demand and everything of GCP has one a region. Machines whose bid is now
        too low get the cloud's notice.

        Raises:
            UnknownPool: no such pool.
        """
        with self._turn() as now_s:
            tariff = self.pool(offer_key).listing.tariff
            for pool in self.pools.values():
                if pool.listing.tariff == tariff and pool.change(now_s, price_micro_usd_h):
                    self._note(
                        now_s, Happening.PRICE, offer_key=pool.key, price_micro_usd_h=price_micro_usd_h
                    )
                    self._outbid(pool.key, price_micro_usd_h)

    def _outbid(self, offer_key: str, price_micro_usd_h: int) -> None:
        for machine in self.machines():
            bid = machine.request.max_price_micro_usd_h
            if machine.offer_key == offer_key and bid is not None and bid < price_micro_usd_h:
                self.interrupt(machine.id)

    def set_stock(self, offer_key: str, stock: int | None) -> None:
        """How many machines may exist in a pool at once; those that exist stay.

        Raises:
            UnknownPool: no such pool.
        """
        with self._turn() as now_s:
            self.pool(offer_key).stock = stock
            self._note(now_s, Happening.STOCK, offer_key=offer_key, stock=stock)

    def pool(self, offer_key: str) -> Pool:
        """The pool of that key.

        Raises:
            UnknownPool: no such pool.
        """
        try:
            return self.pools[offer_key]
        except KeyError:
            raise UnknownPool(f"{offer_key} is not sold here") from None

    def price(self, offer_key: str) -> int:
        """Micro-USD an hour, now."""
        return self.pool(offer_key).at(self.advance()).price_micro_usd_h

    def free(self, offer_key: str) -> int | None:
        """Machines that can still be had; None is unlimited."""
        with self._turn():
            stock = self.pool(offer_key).stock
            if stock is None:
                return None
            held = sum(m.holds_stock for m in self._machines.values() if m.offer_key == offer_key)
            return max(0, stock - held)

    # Machines

    def create(self, request: CreateRequest) -> Machine:
        """Make a machine, or return the one that this token has made already.

        Raises:
            UnknownPool, OutOfStock, PriceTooLow, TokenMismatch, NameTaken: see `lab.machines`.
        """
        with self._turn() as now_s:
            pool = self.pool(request.offer_key)
            zone = pool.listing.zone
            token_key = (zone.cloud, zone.region, request.token or "")
            if request.token and (known := self._tokens.get(token_key)):
                machine = self._machines[known]
                if machine.request.fingerprint != request.fingerprint:
                    raise TokenMismatch(f"token {request.token} was used before with other parameters")
                return machine
            if request.name and self._named(zone.cloud, zone.id, request.name):
                raise NameTaken(f"{request.name} exists in {zone.id}")
            self._refuse(pool, request, now_s)
            machine = self._born(pool, request, now_s)
            if request.token:
                self._tokens[token_key] = machine.id
            self._put(machine, Happening.CREATED, now_s, offer_key=machine.offer_key)
            self._at(now_s + self.scenario.pending_s, lambda at_s: self._run(machine.id, at_s))
            return self._machines[machine.id]

    def _refuse(self, pool: Pool, request: CreateRequest, now_s: int) -> None:
        bid, price = request.max_price_micro_usd_h, pool.at(now_s).price_micro_usd_h
        if bid is not None and bid < price:
            self._note(now_s, Happening.REFUSED, offer_key=pool.key, why="price_too_low")
            raise PriceTooLow(f"bid {bid} is below {price} micro-USD/h")
        if self.free(pool.key) == 0:
            self._note(now_s, Happening.REFUSED, offer_key=pool.key, why="out_of_stock")
            raise OutOfStock(f"{pool.key} is empty")

    def _born(self, pool: Pool, request: CreateRequest, now_s: int) -> Machine:
        count = len(self._machines) + 1
        digest = hashlib.sha256(
            f"{self.scenario.seed}/{pool.listing.zone.cloud}/{count}".encode()
        ).hexdigest()
        zone, kind = pool.listing.zone, pool.listing.type
        return Machine(
            id=f"i-{digest[:17]}" if zone.cloud == "aws" else str(int(digest[:15], 16) + 10**18),
            cloud=zone.cloud,
            region=zone.region,
            zone=zone.id,
            instance_type=kind.name,
            market=pool.listing.market,
            address=f"10.0.{count // 250}.{count % 250 + 4}",
            request=request,
            labels=dict(request.labels),
            created_s=now_s,
        )

    def _run(self, machine_id: str, at_s: int) -> None:
        machine = self._machines[machine_id]
        if machine.state is not MachineState.PENDING:
            return
        self._put(replace(machine, state=MachineState.RUNNING, running_s=at_s), Happening.RUNNING, at_s)
        if machine.request.max_life_s is not None:
            self._at(
                at_s + machine.request.max_life_s, lambda at: self._stop(machine_id, EndedBy.LIFETIME, at)
            )

    def terminate(self, machine_id: str, by: EndedBy = EndedBy.USER) -> Machine:
        """Ask for the end of a machine; nothing more when it has begun already.

        Raises:
            NoSuchMachine: the world has never known it.
        """
        with self._turn() as now_s:
            self.machine(machine_id)
            self._stop(machine_id, by, now_s)
            return self._machines[machine_id]

    def interrupt(self, machine_id: str, notice_s: int | None = None) -> Machine:
        """Announce that the cloud takes the machine back, and do so `notice_s` later.

        None is the notice that the machine asked for, or the cloud's own (AWS 120 s, GCP 30 s). An announced end
        stays as announced.

        Raises:
            NoSuchMachine: the world has never known it.
        """
        with self._turn() as now_s:
            machine = self.machine(machine_id)
            if not machine.holds_stock or machine.interruption is not None:
                return machine
            if notice_s is None:
                notice_s = machine.request.notice_s or NOTICE_S[machine.cloud]
            interruption = Interruption(now_s, now_s + notice_s)
            self._put(
                replace(machine, interruption=interruption),
                Happening.NOTICED,
                now_s,
                deadline_s=interruption.deadline_s,
            )
            self._at(interruption.deadline_s, lambda at_s: self._stop(machine_id, EndedBy.CLOUD, at_s))
            return self._machines[machine_id]

    def _stop(self, machine_id: str, by: EndedBy, at_s: int) -> None:
        machine = self._machines[machine_id]
        if not machine.holds_stock:
            return
        stopping = replace(machine, state=MachineState.STOPPING, stopping_s=at_s, ended_by=by)
        self._put(stopping, Happening.STOPPING, at_s, by=str(by))
        self._at(at_s + self.scenario.stop_s, lambda at: self._end(machine_id, at))

    def _end(self, machine_id: str, at_s: int) -> None:
        machine = self._machines[machine_id]
        self._put(replace(machine, state=MachineState.TERMINATED, ended_s=at_s), Happening.TERMINATED, at_s)

    def set_labels(self, machine_id: str, labels: Mapping[str, str]) -> Machine:
        """Add or replace labels.

        Raises:
            NoSuchMachine: the world has never known it.
        """
        with self._turn():
            machine = self.machine(machine_id)
            self._machines[machine_id] = replace(machine, labels={**machine.labels, **labels})
            return self._machines[machine_id]

    def machine(self, machine_id: str) -> Machine:
        """The machine of that id, however long it has been gone.

        Raises:
            NoSuchMachine: the world has never known it.
        """
        self.advance()
        try:
            return self._machines[machine_id]
        except KeyError:
            raise NoSuchMachine(f"no machine {machine_id}") from None

    def machines(self, cloud: str | None = None, region: str | None = None) -> list[Machine]:
        """All machines ever made, in the order they were made."""
        with self._turn():
            return [
                m
                for m in self._machines.values()
                if (cloud is None or m.cloud == cloud) and (region is None or m.region == region)
            ]

    def named(self, cloud: str, zone: str, name: str) -> Machine | None:
        """The machine of that name that is not terminated, or None."""
        with self._turn():
            return self._named(cloud, zone, name)

    def _named(self, cloud: str, zone: str, name: str) -> Machine | None:
        for machine in self._machines.values():
            same = (machine.cloud, machine.zone, machine.name) == (cloud, zone, name)
            if same and machine.state is not MachineState.TERMINATED:
                return machine
        return None

    # What happened, and what it costs

    def subscribe(self, listener: Listener) -> None:
        """Call this for everything that happens to a machine from now on. It may call the world."""
        self._listeners.append(listener)

    def log(self, after: int = 0) -> list[LogEntry]:
        """Everything that happened since entry number `after`."""
        with self._turn():
            return self._log[after:]

    def bill(self) -> list[BillLine]:
        """The truth: what each machine costs up to now, by its cloud's own rule."""
        with self._turn() as now_s:
            return [bills.line(m, self.pools[m.offer_key], now_s) for m in self._machines.values()]

    def hold_cost(self, offer_key: str, from_s: int, to_s: int) -> int:
        """What one machine of the pool costs from then to then, in micro-USD: the price of having stayed."""
        with self._turn():
            return bills.rounded(bills.integral(self.pool(offer_key), from_s, to_s))

    def _put(self, machine: Machine, what: Happening, at_s: int, **data: Any) -> None:
        self._machines[machine.id] = machine
        self._note(at_s, what, machine=machine.id, **data)
        self._outbox.append((what, machine))

    def _note(self, at_s: int, what: Happening, **data: Any) -> None:
        self._log.append(LogEntry(len(self._log) + 1, at_s, what, data))


def _matching(
    values: Mapping[str, int | None] | Mapping[str, int], key: str, otherwise: int | None
) -> int | None:
    """The value of the last pattern that matches, so that a scenario goes from the general to the particular."""
    for pattern, value in values.items():
        if fnmatchcase(key, pattern):
            otherwise = value
    return otherwise
