"""The metadata server of one node, as EC2 (IMDSv2) or Compute Engine has it, on a port of its own.

A node lives in real time: the agent's clock, its leases and its notices are real seconds, which the daemon has divided
by the clock's rate. So the metadata server translates: an interruption in 120 seconds of the lab's clock at rate 20 is
announced as one in 6 real seconds, with real wall-clock times. Tokens live in real time, too.
"""

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from lab.catalog import ZONES
from lab.faces import Reply, Request
from lab.machines import Machine
from lab.world import World

MAX_TTL_S = 21_600
GOOGLE = {"Metadata-Flavor": "Google", "Content-Type": "application/text"}
_NOT_FOUND = Reply(404, b"404 - Not Found")


class Metadata:
    """What one machine can learn about itself.

    Args:
        end: Called when the node shuts itself down (``POST /lab/end``, from the programs in its PATH).
    """

    def __init__(self, world: World, machine: Machine, end: Callable[[], None]) -> None:
        self._world = world
        self._machine = machine
        self._end = end
        self._tokens: dict[str, float] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._deadline: float | None = None  # real seconds since 1970
        self._noticed: float | None = None

    def handle(self, request: Request) -> Reply:
        """One request of the node."""
        if (request.method, request.path) == ("POST", "/lab/end"):
            self._end()
            return Reply(204)
        return self._google(request) if self._machine.cloud == "gcp" else self._amazon(request)

    def noticed(self, machine: Machine) -> None:
        """The cloud has announced the end."""
        assert machine.interruption is not None
        clock = self._world.clock
        left_s = max(0.0, machine.interruption.deadline_s - clock.now_ms() / 1000) / clock.rate
        with self._changed:
            self._machine = machine
            self._noticed = time.time()
            self._deadline = self._noticed + left_s
            self._changed.notify_all()

    def close(self) -> None:
        """Let those who wait for a change go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # EC2

    def _amazon(self, request: Request) -> Reply:
        if (request.method, request.path) == ("PUT", "/latest/api/token"):
            return self._token(request)
        expires = self._tokens.get(request.headers.get("x-aws-ec2-metadata-token", ""), 0.0)
        if expires < time.monotonic():  # IMDSv2 is required here, as our launches ask for it
            return Reply(401, b"401 - Unauthorized")
        if request.path == "/latest/user-data":
            return _text(self._machine.request.user_data)
        value = self._ec2_value(request.path.removeprefix("/latest/meta-data").strip("/"))
        return _NOT_FOUND if value is None else _text(value)

    def _token(self, request: Request) -> Reply:
        ttl = request.headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
        if not ttl.isdecimal() or not 1 <= int(ttl) <= MAX_TTL_S or "x-forwarded-for" in request.headers:
            return Reply(400, b"400 - Bad Request")
        token = secrets.token_urlsafe(40)
        self._tokens[token] = time.monotonic() + int(ttl)
        return Reply(200, token.encode(), {"X-aws-ec2-metadata-token-ttl-seconds": ttl})

    def _ec2_value(self, name: str) -> str | None:
        machine, zone = self._machine, ZONES[self._machine.zone]
        fixed = {
            "instance-id": machine.id,
            "instance-type": machine.instance_type,
            "instance-life-cycle": "spot" if machine.market == "spot" else "on-demand",
            "local-ipv4": machine.address,
            "placement/availability-zone": zone.name,
            "placement/availability-zone-id": zone.id,
            "placement/region": zone.region,
        }
        if name in fixed:
            return fixed[name]
        if self._deadline is None or self._noticed is None:
            return None  # these paths do not exist until there is something to say
        notices = {
            "spot/instance-action": json.dumps({"action": "terminate", "time": _iso(self._deadline)}),
            "spot/termination-time": _iso(self._deadline),
            "events/recommendations/rebalance": json.dumps({"noticeTime": _iso(self._noticed)}),
        }
        return notices.get(name)

    # Compute Engine

    def _google(self, request: Request) -> Reply:
        if request.path == "/":
            return Reply(200, b"computeMetadata/\n", GOOGLE)
        if request.headers.get("metadata-flavor") != "Google":
            return Reply(403, b"Missing Metadata-Flavor:Google header.", GOOGLE)
        name = request.path.removeprefix("/computeMetadata/v1/")
        if request.param("wait_for_change").lower() == "true":
            self._wait(name, request.param("last_etag"), float(request.param("timeout_sec") or 3600))
        value = self._gce_value(name)
        if value is None:
            return Reply(404, b"", GOOGLE)
        return Reply(200, value.encode(), {**GOOGLE, "ETag": _etag(value)})

    def _wait(self, name: str, last_etag: str, timeout_s: float) -> None:
        """Until the value differs from the one that the caller has seen, or the time is up."""
        before = self._gce_value(name) or ""
        if last_etag and last_etag != _etag(before):
            return
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._gce_value(name) or "") != before, timeout_s)

    def _gce_value(self, name: str) -> str | None:
        machine = self._machine
        token = {"access_token": "lab-node", "expires_in": 3599, "token_type": "Bearer"}
        return {
            "instance/id": machine.id,
            "instance/name": machine.name,
            "instance/zone": f"projects/1/zones/{machine.zone}",
            "instance/machine-type": f"projects/1/machineTypes/{machine.instance_type}",
            "instance/preempted": "FALSE" if self._deadline is None else "TRUE",
            "instance/maintenance-event": "NONE",
            "instance/attributes/startup-script": machine.request.user_data,
            "instance/scheduling/preemptible": "TRUE" if machine.market == "spot" else "FALSE",
            "instance/service-accounts/default/token": json.dumps(token),
        }.get(name)


def _text(value: str) -> Reply:
    return Reply(200, value.encode(), {"Content-Type": "text/plain"})


def _iso(real_s: float) -> str:
    return datetime.fromtimestamp(int(real_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _etag(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:16]
