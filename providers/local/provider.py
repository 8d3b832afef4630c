"""This host as a `Provider`: each node is a keeper process (`providers.local.keeper`) with a directory of its own.

    DIR/TOKEN.json     what was asked for; its exclusive creation is what makes `create` idempotent
    DIR/TOKEN.lock     held by the keeper while it lives
    DIR/TOKEN.status   by the keeper: its pid; at the end, after how long and by whom
    DIR/TOKEN/         the node's root; gone when the node is

A node runs with the rights of the daemon. That is for machines that you own, and whose jobs you trust.
"""

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from broker.core.availability import Availability
from broker.core.errors import Denied, Invalid, OutOfCapacity, UnknownOutcome
from broker.core.ids import is_node_token
from broker.core.model import EndedBy
from broker.core.money import micro_usd
from broker.core.offer import Market, Offer, RawQuote
from broker.core.ports import Check, Clock, CloudNode, CloudState, LaunchRequest
from broker.core.tariff import BillingRule
from broker.core.time import DAY_S, MS
from providers.local import keeper
from providers.local.settings import LocalOptions, parse

_REMEMBERED_MS = 7 * DAY_S * MS
_START_TIMEOUT_S = 20.0


def open_provider(options: Mapping[str, Any], clock: Clock, installation_id: str) -> "LocalProvider":
    """See `providers.registry.open_provider`."""
    return LocalProvider(parse(options), clock, installation_id)


class LocalProvider:
    """This host."""

    cloud = "local"

    def __init__(self, options: LocalOptions, clock: Clock, installation_id: str) -> None:
        self._options = options
        self._clock = clock
        self._installation_id = installation_id
        self._dir = options.dir

    def quotes(self) -> list[RawQuote]:
        """The one offer, at the price that the operator gave."""
        options = self._options
        offer = Offer(
            cloud="local",
            region="local",
            zone="local",
            instance_type=options.instance_type,
            market=Market.OWNED,
            gpu=options.gpu,
            gpus=options.gpus,
            vcpus=options.vcpus,
            memory_gib=options.memory_gib,
            interconnect="none" if options.gpus == 1 else "pcie",
        )
        return [RawQuote(offer, f"{options.price_usd_h:f}", "USD", None, "local:settings")]

    def price_history(self, from_ms: int) -> Sequence[RawQuote]:
        """Your machine has one price."""
        return ()

    def availability(self) -> Sequence[Availability]:
        """Its owner says how many nodes it may have; nothing more is known."""
        return ()

    def create(self, request: LaunchRequest) -> CloudNode:
        """Start a keeper, or return the node that this token has started.

        Raises:
            Invalid: the token was used for a different request, or is none of ours.
            OutOfCapacity: `count` nodes run already.
            UnknownOutcome: the keeper did not say in time that it runs.
        """
        if not is_node_token(request.token):
            raise Invalid(f"local: {request.token!r} is not a node token")
        if request.offer.instance_type != self._options.instance_type:
            raise Invalid(f"local: this host is no {request.offer.instance_type}")
        digest = hashlib.sha256(json.dumps(asdict(request), sort_keys=True, default=str).encode()).hexdigest()
        with self._alone():
            record = self._claim(request, digest)
            if record["request_sha256"] != digest:
                raise Invalid(f"local: {request.token} was made by a different request")
            if not self._status(request.token):
                # New, or claimed by a daemon that died before its keeper ran. A keeper that does run holds the
                # lock, and a second one leaves at once.
                self._start(request)
            return self._node(record)

    def find(self, token: str, region: str, zone: str) -> CloudNode | None:
        """From the node's files; also for a week after its end."""
        record = _read(self._dir / f"{token}.json") if is_node_token(token) else {}
        return self._node(record) if record else None

    def list_owned(self) -> Sequence[CloudNode]:
        """Nodes of this installation that have not ended."""
        return [node for node in self._living() if node.installation_id == self._installation_id]

    def list_tagged(self) -> Sequence[CloudNode]:
        """Nodes of every installation that uses this folder."""
        return list(self._living())

    def delete(self, node: CloudNode) -> None:
        """Ask the keeper to end the node; no error when it has ended."""
        status = self._status(node.token)
        # The pid is the keeper's as long as the lock is held; a keeper that ends in between has done what we want.
        if status and "ended_by" not in status and self._held(node.token):
            try:
                os.kill(int(status["pid"]), signal.SIGTERM)
            except ProcessLookupError:
                return
            except PermissionError as error:
                raise Denied(f"local: {node.token} belongs to another user") from error

    def egress_micro_usd_per_gib(self, from_offer: Offer, to_offer: Offer | None) -> int:
        """What the operator pays for the line; nothing within the host."""
        inside = to_offer is not None and to_offer.cloud == self.cloud
        return 0 if inside else micro_usd(self._options.egress_usd_gib)

    def billing_rule(self, market: Market) -> BillingRule:
        """By the second: it is your own."""
        return BillingRule(unit_s=1, minimum_s=0, source="your own machine")

    def disk_micro_usd_per_gib_month(self, region: str) -> int:
        """It is your own."""
        return 0

    def check(self) -> Sequence[Check]:
        """Whether the folder can be written."""
        try:
            self._dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            free = shutil.disk_usage(self._dir).free >> 30
            return [Check("local: folder", os.access(self._dir, os.W_OK), f"{self._dir}, {free} GiB free")]
        except OSError as error:
            return [Check("local: folder", False, str(error))]

    def _living(self) -> list[CloudNode]:
        """Every node on this host that has not ended; those that ended long ago are forgotten on the way."""
        found: list[CloudNode] = []
        for path in sorted(self._dir.glob("bk-*.json")):
            record = _read(path)
            if not record:
                continue
            node = self._node(record)
            if node.state is not CloudState.TERMINATED:
                found.append(node)
            elif self._clock.now_ms() - (node.ended_at_ms or 0) > _REMEMBERED_MS:
                self._forget(node.token)
        return found

    def _claim(self, request: LaunchRequest, digest: str) -> dict[str, Any]:
        """The record of a token: written now, or found."""
        path = self._dir / f"{request.token}.json"
        if known := _read(path):
            return known
        if len(self._living()) >= self._options.count:
            raise OutOfCapacity(f"local: {self._options.count} nodes run on this host already")
        record = {
            "token": request.token,
            "installation_id": request.installation_id,
            "event_seq": request.event_seq,
            "request_sha256": digest,
            "created_at_ms": self._clock.now_ms(),
            "rate": self._clock.rate,
        }
        keeper.write_json(path, record)
        return record

    def _start(self, request: LaunchRequest) -> None:
        root = self._dir / request.token
        root.mkdir(mode=0o700, exist_ok=True)
        script = root / "user-data"
        text = request.user_data if request.user_data.startswith("#!") else f"#!/bin/sh\n{request.user_data}"
        script.write_text(text)
        script.chmod(0o700)
        command = [
            sys.executable,
            "-I",
            keeper.__file__,
            str(self._dir),
            request.token,
            str(self._options.grace_s),
        ]
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
        )
        try:
            said, complaint = started.communicate(timeout=_START_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            started.kill()
            raise UnknownOutcome(f"local: the keeper of {request.token} did not answer") from error
        if said.strip() not in (b"ok", b"taken"):
            raise UnknownOutcome(f"local: the keeper of {request.token} failed: {complaint.decode()[-200:]}")

    def _node(self, record: Mapping[str, Any]) -> CloudNode:
        token, created_ms = str(record["token"]), int(record["created_at_ms"])
        status, held = self._status(token), self._held(token)
        if status and not held and "ended_by" not in status:
            # Looked at between its status and its end? Now that the lock is free, its last word is written.
            status = self._status(token)
            if "ended_by" not in status:
                status = self._bury(token, record)
        state = CloudState.PENDING
        if status:
            ending = "ended_by" in status
            state = CloudState.STOPPING if ending and held else CloudState.RUNNING
            state = CloudState.TERMINATED if ending and not held else state
        ended_ms = None
        if "ended_by" in status:
            # Measured by the keeper in real seconds, since it has no clock of ours.
            ended_ms = created_ms + round(float(status["ended_after_s"]) * float(record["rate"]) * MS)
        return CloudNode(
            token=token,
            provider_id=token,
            cloud="local",
            region="local",
            zone="local",
            state=state,
            installation_id=str(record["installation_id"]),
            event_seq=int(record["event_seq"]),
            address="127.0.0.1",
            created_at_ms=created_ms,
            billed_from_ms=created_ms if status else None,
            ended_at_ms=ended_ms,
            ended_by=EndedBy(status["ended_by"]) if "ended_by" in status else None,
        )

    def _bury(self, token: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """A keeper that was killed, or a host that was started again: end what it left, and say so."""
        root = self._dir / token
        keeper.end_processes(root, self._options.grace_s)
        shutil.rmtree(root, ignore_errors=True)
        after_s = (self._clock.now_ms() - int(record["created_at_ms"])) / MS / float(record["rate"])
        status = {"ended_after_s": after_s, "ended_by": EndedBy.CLOUD.value}
        keeper.write_json(self._dir / f"{token}.status", status)
        return status

    def _status(self, token: str) -> dict[str, Any]:
        return _read(self._dir / f"{token}.status")

    def _held(self, token: str) -> bool:
        """Whether the keeper lives: it holds its lock until it ends, however that comes."""
        try:
            lock = os.open(self._dir / f"{token}.lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def _forget(self, token: str) -> None:
        for suffix in ("lock", "status", "json"):  # the record last: it is what makes the token known
            (self._dir / f"{token}.{suffix}").unlink(missing_ok=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One create at a time on this host, over threads and daemons: the count and the claim belong together."""
        self._dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(self._dir / "create.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return document
