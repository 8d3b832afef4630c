"""What goes wrong on purpose: a queue of faults for a cloud and an operation, each with a count.

A face asks `Faults.take` once for every call and does what the kind says. Operations are the cloud's own names:
``RunInstances``, ``DescribeSpotPriceHistory``; ``instances.insert``, ``skus.list``. ``*`` matches every operation.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum


class FaultKind(StrEnum):
    """What a face does instead of, or beside, answering."""

    REPLY_LOST = "reply_lost"  # perform, then drop the connection
    REQUEST_LOST = "request_lost"  # drop the connection, perform nothing
    DOWN = "down"  # like request_lost; meant for operation `*` until cleared
    THROTTLE = "throttle"  # the cloud's own "too many calls"
    HTTP_500 = "http_500"  # the cloud's own internal error
    DENIED = "denied"  # not allowed
    EXPIRED = "expired"  # credentials expired
    CAPACITY = "capacity"  # a create finds the pool empty
    QUOTA = "quota"  # a create exceeds the account's quota
    SLOW = "slow"  # wait `seconds` of real time, then perform
    NEVER_BOOTS = "never_boots"  # the machine runs and is billed, its user-data never starts
    PARTIAL_PAGE = "partial_page"  # the first page of a listing is right, the next one fails
    WRONG_CURRENCY = "wrong_currency"  # prices come in another currency
    WRONG_SHAPE = "wrong_shape"  # success, with a body that is not what the API's document says
    LINK_LOST = "link_lost"  # the first page of a listing says that it is the last
    STALE = "stale"  # prices as they were when the lab began


ON_EVERY_CALL = frozenset(
    {
        FaultKind.REPLY_LOST,
        FaultKind.REQUEST_LOST,
        FaultKind.DOWN,
        FaultKind.THROTTLE,
        FaultKind.HTTP_500,
        FaultKind.DENIED,
        FaultKind.EXPIRED,
        FaultKind.SLOW,
        FaultKind.WRONG_SHAPE,
    }
)
"""What every cloud of the lab can act out, on whatever call."""
RENTING = frozenset({FaultKind.CAPACITY, FaultKind.QUOTA, FaultKind.NEVER_BOOTS})


@dataclass(frozen=True)
class Fault:
    """One queued fault.

    Attributes:
        operation: The cloud's name of the call, or ``*``.
        count: How often it still happens; None is until cleared.
        seconds: For ``slow``: real seconds.
    """

    cloud: str
    operation: str
    kind: FaultKind
    count: int | None = 1
    seconds: float = 0.0


class Faults:
    """The queue. The oldest fault that matches is taken first. Thread-safe."""

    def __init__(self) -> None:
        self._queue: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> None:
        """Queue a fault behind the others."""
        with self._lock:
            self._queue.append(fault)

    def take(self, cloud: str, operation: str, kinds: Iterable[FaultKind] | None = None) -> Fault | None:
        """The fault for this call, used up by one; `kinds` limits which ones this call can act out."""
        wanted = None if kinds is None else frozenset(kinds)
        with self._lock:
            for index, fault in enumerate(self._queue):
                if fault.cloud != cloud or fault.operation not in ("*", operation):
                    continue
                if wanted is not None and fault.kind not in wanted:
                    continue
                if fault.count is not None:
                    left = replace(fault, count=fault.count - 1)
                    self._queue[index : index + 1] = [left] if left.count else []
                return fault
        return None

    def clear(self) -> None:
        """Calm: nothing goes wrong any more."""
        with self._lock:
            self._queue.clear()

    def pending(self) -> list[Fault]:
        """What is still queued."""
        with self._lock:
            return list(self._queue)
