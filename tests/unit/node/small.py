"""A real HTTPS server that speaks the protocol, and real agents as processes."""

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme

from broker.node.bundle import build_agent
from broker.node.lease import kill_marked
from broker.wire import messages as wire
from broker.wire.head import fence, read_head
from broker.wire.messages import Directive, DrainOrder, RunOrder, StoreAccess
from broker.wire.store_client import open_store

PREFIX = "jobs/train-1"


class SmallDaemon:
    """The daemon's side of the protocol, driven by a test: it answers every beat with `directive`."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca_pem = authority.cert_pem.bytes().decode()
        self.folder = folder
        self.directive: Directive = order(wire.ORDER_WAIT)
        self.silent = False
        self.raw_answer: bytes | None = None
        self.hellos: list[dict[str, Any]] = []
        self.beats: list[dict[str, Any]] = []
        self.heard: list[bytes] = []  # the log as it was when each beat came
        self.log = bytearray()
        self.log_calls: list[tuple[int, int]] = []
        self.sources: dict[str, bytes] = {}
        self.agent = build_agent()
        self.access = StoreAccess(kind="folder", prefix=PREFIX, path=str(folder / "store"))
        self.store = open_store(self.access)
        self._news = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, bytes]:
        if self.silent:
            return 503, b"down"
        if path == "/agent/v1/hello":
            self.hellos.append(json.loads(body))
            return 200, wire.encode(wire.Welcome(1, 0.1))
        if path == "/agent/v1/beat":
            with self._news:
                self.beats.append(json.loads(body))
                self.heard.append(bytes(self.log))
                self._news.notify_all()
            return 200, self.raw_answer if self.raw_answer is not None else wire.encode(self.directive)
        if path == "/agent/v1/logs":
            offset = int(query["offset"][0])
            self.log_calls.append((offset, len(body)))
            if offset <= len(self.log):
                self.log += body[len(self.log) - offset :]
            return 200, json.dumps({"size": len(self.log)}).encode()
        if path.startswith("/agent/v1/source/"):
            found = self.sources.get(path.rsplit("/", 1)[1])
            return (200, found) if found is not None else (404, b"")
        if path == "/agent/v1/agent.pyz":
            return 200, self.agent
        return 404, b""

    def until(self, true: Callable[[dict[str, Any]], bool], within_s: float = 15.0) -> dict[str, Any]:
        """The first beat, from the last one on, of which that is true."""
        deadline = time.monotonic() + within_s
        with self._news:
            at = max(0, len(self.beats) - 1)
            while True:
                for beat in self.beats[at:]:
                    if true(beat):
                        return beat
                at = len(self.beats)
                left = deadline - time.monotonic()
                if left <= 0:
                    last = self.beats[-1] if self.beats else None
                    raise AssertionError(f"no such beat within {within_s} s; the last one was {last}")
                self._news.wait(left)

    def until_job(self, state: str, within_s: float = 15.0) -> dict[str, Any]:
        return self.until(lambda beat: beat["job"]["state"] == state, within_s)

    def fence(self, generation: int) -> None:
        fence(self.store, PREFIX, generation, f"nonce-{generation}")

    def head_seq(self) -> int:
        found = read_head(self.store, PREFIX)
        return found[0].seq if found else 0

    def run_order(self, script: str, generation: int = 1, **more: Any) -> Directive:
        run = RunOrder(job_id="train-1", generation=generation, run=script, store=self.access, **more)
        return order(wire.ORDER_RUN if generation else wire.ORDER_PREPARE, run=run)


def order(kind: str, run_lease_s: float = 60.0, dead_man_s: float = 60.0, **parts: Any) -> Directive:
    return Directive(kind, beat_s=0.2, run_lease_s=run_lease_s, dead_man_s=dead_man_s, **parts)


def drain(save: bool = True, within_s: float = 5.0) -> Directive:
    return order(wire.ORDER_DRAIN, drain=DrainOrder("moving", save=save, within_s=within_s))


def _handler(daemon: SmallDaemon) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = daemon.answer(parts.path, parse_qs(parts.query), body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = _answer

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


class SmallNode:
    """A node: a home directory, a PATH with its own `shutdown`, and an agent as a process."""

    def __init__(self, root: Path, daemon: SmallDaemon) -> None:
        self.home = root / "home"
        self.daemon = daemon
        self.work = self.home / "work"
        self.down = root / "shutdown-was-called"
        commands = root / "bin"
        commands.mkdir(parents=True)
        for name in ("shutdown", "systemctl"):
            (commands / name).write_text(f'#!/bin/sh\necho "$@" >> {self.down}\n')
            (commands / name).chmod(0o755)
        (commands / "python3").symlink_to(sys.executable)
        self.pyz = root / "agent.pyz"
        self.pyz.write_bytes(daemon.agent)
        self.env = {
            "PATH": f"{commands}:{os.environ['PATH']}",
            "HOME": str(root),
            "BROKER_NODE_HOME": str(self.home),
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        self.config(url=daemon.url, token="bk-node-0", ca_pem=daemon.ca_pem)

    def config(self, **values: Any) -> None:
        self.home.mkdir(exist_ok=True)
        file = self.home / "config.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(known | values))

    def start(self, life: str = "agent", **env: str) -> "subprocess.Popen[bytes]":
        with (self.home / "agent.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(self.pyz), life],
                env=self.env | env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def agent_log(self) -> str:
        return (self.home / "agent.log").read_text()

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait(10)
        if (self.home / "job.run_id").exists():
            kill_marked((self.home / "job.run_id").read_text().strip())


def eventually(true: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait until that is true."""
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.03)
