"""Checks of `broker doctor`, each with its own bound: what hangs is named, and holds nobody up.

A store or a cloud that takes connections and never answers is what a person asks doctor about; a call to it ends by its
own time-outs and retries after minutes only. So each check has a thread, all run at once, and who is late is left behind.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

from broker.core.errors import BrokerError
from broker.core.ports import Check
from broker.core.time import format_duration

# What `broker doctor` says online and offline, and the daemon's log at a start.
NO_CLOUD = "none; add a section, e.g. [clouds.aws]"
# Real seconds. The store's check is some thirty small requests; a cloud's asks each region in turn.
STORE_S = 10.0
CLOUD_S = 30.0


@dataclass(frozen=True)
class Asked:
    """One party, and how it is checked.

    Attributes:
        name: Of the check, should there be no answer.
        whom: Who is asked, for that case: an address, or what a person knows it by.
        within_s: Real seconds for all its checks together.
    """

    name: str
    whom: str
    within_s: float
    work: Callable[[], Sequence[Check]]


@dataclass
class _Running:
    """A thread that is not waited for any more, or not yet."""

    since_s: float
    done: threading.Event = field(default_factory=threading.Event)
    found: Sequence[Check] = ()


class BoundedChecks:
    """Runs checks. Thread-safe. Of each subject one check runs at a time: doctor may be asked again and again."""

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()

    def run(self, asked: Mapping[str, Asked]) -> list[tuple[str, Check]]:
        """All findings with their subjects, in the order of `asked`; as long as the longest bound at most."""
        began_s = monotonic()
        running = {subject: self._start(subject, party) for subject, party in asked.items()}
        found: list[tuple[str, Check]] = []
        for subject, party in asked.items():
            run = running[subject]
            if run.done.wait(max(0.0, began_s + party.within_s - monotonic())):
                found += [(subject, check) for check in run.found]
                continue
            waited = format_duration(max(1.0, monotonic() - run.since_s))
            detail = f"no answer from {party.whom} for {waited}: it cannot be reached, or hangs"
            found.append((subject, Check(party.name, False, detail)))
        return found

    def _start(self, subject: str, party: Asked) -> _Running:
        with self._lock:
            before = self._running.get(subject)
            if before is not None and not before.done.is_set():
                return before
            run = self._running[subject] = _Running(monotonic())
        threading.Thread(target=_work, args=(party, run), name=f"check-{subject}", daemon=True).start()
        return run


def _work(party: Asked, run: _Running) -> None:
    try:
        run.found = party.work()
    except BrokerError as error:
        run.found = [Check(party.name, False, str(error))]
    except Exception as error:  # noqa: BLE001 - whatever a vendor's SDK raises is a finding, and nobody waits above us
        run.found = [Check(party.name, False, f"{type(error).__name__}: {error}")]
    finally:
        run.done.set()
