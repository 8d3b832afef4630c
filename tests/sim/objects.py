"""The checkpoint store: one truth, and a client for each process that loses requests and replies."""

import builtins
import hashlib
from collections.abc import Callable

from broker.wire.errors import PreconditionFailed, StoreFailed, UnknownWrite
from broker.wire.head import HEAD_NAME
from tests.sim.faults import Chaos, Kind
from tests.sim.loop import Killed, SimLoop, wait

# When a write arrives whose writer has given up, or is dead; now and then its successor has committed by then.
LATEST_S = 90.0
FAR_TOO_LATE_S = 400.0
# (key, data before or None, data now, who wrote)
Watcher = Callable[[str, bytes | None, bytes, str], None]


class Bucket:
    """Objects, as they are. Etags are hashes: equal content has an equal etag, as in S3."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.watchers: list[Watcher] = []

    def etag(self, key: str) -> str | None:
        data = self.objects.get(key)
        return None if data is None else hashlib.md5(data).hexdigest()

    def put(self, key: str, data: bytes, if_match: str | None, if_absent: bool, who: str) -> str:
        """Compare and write, at one moment."""
        current = self.etag(key)
        if (if_absent and current is not None) or (if_match is not None and current != if_match):
            raise PreconditionFailed(f"{key}: it is not what was expected")
        before = self.objects.get(key)
        self.objects[key] = data
        for watcher in self.watchers:
            watcher(key, before, data, who)
        return hashlib.md5(data).hexdigest()


class Weather:
    """Spells of trouble that all clients of the store share."""

    def __init__(self) -> None:
        self.slow_until_s = 0.0
        self.fails_until_s = 0.0


class StoreClient:
    """`broker.wire.store_client.ObjectStore` of one process.

    Args:
        gate: Called before each step: waits while the process is paused, raises `Killed` when it is dead.
    """

    def __init__(
        self,
        bucket: Bucket,
        weather: Weather,
        who: str,
        chaos: Chaos,
        loop: SimLoop,
        gate: Callable[[], None] = lambda: None,
    ) -> None:
        self._bucket = bucket
        self._weather = weather
        self._who = who
        self._chaos = chaos
        self._loop = loop
        self._gate = gate
        self._random = chaos.random(f"store/{who}")

    def get(self, key: str) -> tuple[bytes, str] | None:
        self._travel(f"get {key}")
        data = self._bucket.objects.get(key)
        etag = self._bucket.etag(key)
        self._travel_back()
        return None if data is None or etag is None else (data, etag)

    def put(self, key: str, data: bytes, if_match: str | None = None, if_absent: bool = False) -> str:
        try:
            self._travel(f"put {key}")
        except Killed:
            # Its process is dead, and the request may be on its way all the same.
            if not self._chaos.calm and self._random.random() < 0.5:
                self._later(key, data, if_match, if_absent)
            raise
        if key.endswith(HEAD_NAME) and self._chaos.strikes(Kind.CAS_REPLY_LOST):
            return self._lose(key, data, if_match, if_absent)
        etag = self._bucket.put(key, data, if_match, if_absent, self._who)
        self._travel_back()
        return etag

    def delete(self, key: str) -> None:
        self._travel(f"delete {key}")
        self._bucket.objects.pop(key, None)
        self._travel_back()

    def list(self, prefix: str) -> list[tuple[str, int]]:
        self._travel(f"list {prefix}")
        found = sorted(
            (key, len(data)) for key, data in self._bucket.objects.items() if key.startswith(prefix)
        )
        self._travel_back()
        return found

    def folders(self, prefix: str) -> builtins.list[str]:
        self._travel(f"list {prefix}")
        return sorted({k[len(prefix) :].split("/")[0] for k in self._bucket.objects if k.startswith(prefix)})

    def _lose(self, key: str, data: bytes, if_match: str | None, if_absent: bool) -> str:
        """The write happens now, later, or never; its writer cannot know."""
        fate = self._random.random()
        if fate < 0.5:
            try:
                self._bucket.put(key, data, if_match, if_absent, self._who)
            except PreconditionFailed:
                pass
            self._chaos.reached("cas reply lost after the write")
        elif fate < 0.75:
            self._later(key, data, if_match, if_absent)
        wait(self._random.uniform(1, 20))
        self._gate()
        raise UnknownWrite(f"{key}: the reply was lost")

    def _later(self, key: str, data: bytes, if_match: str | None, if_absent: bool) -> None:
        def arrive() -> None:
            try:
                self._bucket.put(key, data, if_match, if_absent, self._who)
                self._chaos.reached("late write to the store arrived")
            except PreconditionFailed:
                self._chaos.reached("late write to the store refused by its condition")

        far = self._random.random() < 0.4
        self._loop.call_later(self._random.uniform(0, FAR_TOO_LATE_S if far else LATEST_S), arrive)

    def _travel(self, what: str) -> None:
        self._gate()
        # Not every step lets others in between: a seed that does not interleave here does so there.
        if self._random.random() < 0.5:
            wait(self._random.uniform(0.01, 0.2))
            self._gate()
        if self._chaos.calm:
            return
        if self._loop.now_s < self._weather.slow_until_s or self._chaos.strikes(Kind.STORE_SLOW):
            wait(self._random.uniform(2, 15))
            self._gate()
        if self._loop.now_s < self._weather.fails_until_s or self._chaos.strikes(Kind.STORE_FAILS):
            raise StoreFailed(f"{what}: HTTP 503")

    def _travel_back(self) -> None:
        if self._random.random() < 0.3:
            wait(self._random.uniform(0.01, 0.2))
            self._gate()
