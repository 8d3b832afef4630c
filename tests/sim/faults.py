"""What goes wrong, how often, and what has been seen: one generator a kind, so that leaving one out moves no other."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random


class Kind(StrEnum):
    """Kinds of faults."""

    # a request to a cloud
    REQUEST_LOST = "request_lost"
    REPLY_LOST = "reply_lost"
    LATE = "late_request"  # it arrives after the caller has given up
    DUPLICATE = "duplicate_request"
    THROTTLED = "throttled"
    HTTP_500 = "http_500"
    EXPIRED = "credentials_expired"
    CAPACITY = "out_of_capacity"
    QUOTA = "out_of_quota"
    LIST_LAG = "list_lag"
    OMITTED = "list_omission"
    PARTIAL_PAGE = "partial_page"
    # the market
    STOCK = "stock_goes"
    PRICE_JUMP = "price_jump"
    GLITCH = "price_glitch"
    FEED_STOPS = "feed_stops"
    # machines
    RECLAIM = "reclaim"
    NOTICE = "reclaim_with_notice"
    STORM = "many_at_once"
    NEVER_BOOTS = "never_boots"
    PROBE = "probe_refuses"
    PROBE_HANGS = "probe_hangs"
    SETUP = "setup_fails"
    PAUSE = "node_paused"  # SIGSTOP, live migration, a hung hypervisor
    AGENT_RESTART = "agent_restart"
    NODE_CUT = "node_partition"
    CALL_LOST = "agent_call_lost"
    CLOUD_CUT = "cloud_partition"
    # the checkpoint store
    STORE_SLOW = "store_slow"
    STORE_FAILS = "store_fails"
    CAS_REPLY_LOST = "cas_reply_lost"
    CORRUPT = "corrupt_chunk"
    # the daemon
    CRASH = "crash"
    LONG_DOWN = "long_downtime"
    DISK_FULL = "disk_full"
    POWER = "power_loss"
    TWO_DAEMONS = "two_daemons"
    CLOCK = "clock_jump"
    RESTORE = "database_restored"
    # people
    CANCEL = "job_cancelled"
    OVERTAKEN = "decision_overtaken"  # the job is cancelled between a decision and its commit
    PAUSED = "broker_paused"


# Per call: chance of each fault when its kind is on.
PER_CALL = {
    Kind.REQUEST_LOST: 0.02,
    Kind.REPLY_LOST: 0.03,
    Kind.LATE: 0.04,
    Kind.DUPLICATE: 0.02,
    Kind.THROTTLED: 0.02,
    Kind.HTTP_500: 0.02,
    Kind.CAPACITY: 0.06,
    Kind.QUOTA: 0.02,
    Kind.LIST_LAG: 0.3,
    Kind.OMITTED: 0.02,
    Kind.PARTIAL_PAGE: 0.03,
    Kind.GLITCH: 0.06,
    Kind.NEVER_BOOTS: 0.03,
    Kind.PROBE: 0.08,
    Kind.PROBE_HANGS: 0.03,
    Kind.SETUP: 0.04,
    Kind.OVERTAKEN: 0.06,
    Kind.CALL_LOST: 0.02,
    Kind.STORE_FAILS: 0.005,
    Kind.STORE_SLOW: 0.005,
    Kind.CAS_REPLY_LOST: 0.06,
}

# By itself: mean seconds between two, when its kind is on.
EVERY_S = {
    Kind.EXPIRED: 2400,
    Kind.STOCK: 400,
    Kind.PRICE_JUMP: 120,
    Kind.FEED_STOPS: 1800,
    Kind.RECLAIM: 1200,
    Kind.NOTICE: 1200,
    Kind.STORM: 3600,
    Kind.PAUSE: 1500,
    Kind.AGENT_RESTART: 2400,
    Kind.NODE_CUT: 900,
    Kind.CLOUD_CUT: 1800,
    Kind.STORE_SLOW: 2400,
    Kind.STORE_FAILS: 2400,
    Kind.CORRUPT: 1800,
    Kind.CRASH: 400,
    Kind.LONG_DOWN: 7200,
    Kind.DISK_FULL: 2400,
    Kind.POWER: 3600,
    Kind.TWO_DAEMONS: 2400,
    Kind.CLOCK: 2400,
    Kind.RESTORE: 2400,
    Kind.CANCEL: 3600,
    Kind.PAUSED: 3600,
}

# Some kinds would drown the others if every seed had them.
_RARE = {
    Kind.RESTORE: 0.15,
    Kind.TWO_DAEMONS: 0.2,
    Kind.LONG_DOWN: 0.3,
    Kind.CLOCK: 0.4,
    Kind.SETUP: 0.3,
    Kind.OVERTAKEN: 0.3,
}
_OFF = 0.25


@dataclass
class Chaos:
    """One seed's mix.

    Attributes:
        without: Kinds to leave out; also: kinds that it has in any case, and that strike `eager` times as often.
        on: Kinds that this seed has.
        calm: Nothing goes wrong any more.
        counts: How often each kind struck.
        sometimes: Rare states that were reached, by name.
    """

    seed: int
    without: frozenset[Kind] = frozenset()
    also: frozenset[Kind] = frozenset()
    eager: float = 1.0
    calm: bool = False
    on: frozenset[Kind] = frozenset()
    counts: Counter[Kind] = field(default_factory=Counter)
    sometimes: Counter[str] = field(default_factory=Counter)
    _randoms: dict[str, Random] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mix = self.random("mix")
        chosen = {kind for kind in Kind if mix.random() < _RARE.get(kind, 1 - _OFF)}
        self.on = frozenset((chosen | self.also) - self.without)

    def random(self, name: str) -> Random:
        """A generator of its own for each purpose."""
        if name not in self._randoms:
            self._randoms[name] = Random(f"{self.seed}/{name}")
        return self._randoms[name]

    def strikes(self, kind: Kind) -> bool:
        """Whether it strikes at this call."""
        if self.calm or kind not in self.on:
            return False
        if self.random(kind).random() >= PER_CALL[kind] * self._eager(kind):
            return False
        self.counts[kind] += 1
        return True

    def every_s(self, kind: Kind) -> float:
        """Mean seconds between two, of one that comes by itself."""
        return EVERY_S[kind] / self._eager(kind)

    def _eager(self, kind: Kind) -> float:
        return self.eager if kind in self.also else 1.0

    def struck(self, kind: Kind) -> None:
        """It struck by itself."""
        self.counts[kind] += 1

    def reached(self, state: str) -> None:
        """A rare state was reached."""
        self.sometimes[state] += 1
