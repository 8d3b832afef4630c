"""The server itself: TLS, the local files, server-sent events that resume, stopping."""

import json
import socket
import ssl
import stat
import time

import pytest

from broker.clock import SystemClock
from broker.core.errors import SettingsError
from broker.core.model import Event
from broker.serve import server
from broker.serve.local import (
    DAEMON_FILE,
    TOKEN_FILE,
    ensure_operator_token,
    find_daemon,
    read_operator_token,
)
from broker.serve.server import _listen, _local_url
from broker.serve.tls import ensure_tls
from broker.settings import Settings
from tests.unit.serve.live import client, live


def emit(bench, *kinds, project_id="default", job_id=None):
    with bench.store.write() as tx:
        return [
            tx.emit(Event(kind, bench.clock.now_ms(), project_id=project_id, job_id=job_id)) for kind in kinds
        ]


def read_events(http, count, path="/api/v1/events", **headers):
    """The first `count` messages as (id, event, data)."""
    found, message = [], {}
    with http.stream("GET", path, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                message[name] = value
            elif message.get("data"):
                found.append((int(message["id"]), message["event"], json.loads(message["data"])))
                message = {}
                if len(found) == count:
                    return found
    raise AssertionError(f"the stream ended after {found}")


@pytest.fixture
def bench_on_a_free_port(bench, monkeypatch):
    monkeypatch.setenv("BROKER_SERVER__LISTEN", "127.0.0.1:0")
    settings = Settings.parse(f'[policies]\ndir = "{bench.services.settings.policies.dir}"\n')
    object.__setattr__(bench.services, "settings", settings)
    return bench


def test_events_are_followed_and_resumed(bench_on_a_free_port):
    bench = bench_on_a_free_port
    viewer = bench.token("viewer")
    with live(bench) as daemon, client(daemon, viewer) as http:
        seqs = emit(bench, "job.one", "job.two", "job.three")
        after = f"/api/v1/events?after={seqs[0] - 1}"
        first = read_events(http, 2, after)
        assert [(seq, kind) for seq, kind, _ in first] == [(seqs[0], "job.one"), (seqs[1], "job.two")]
        assert first[0][2]["project_id"] == "default"
        # Resumed where it was cut: the header outranks the query, as browsers repeat the URL.
        rest = read_events(http, 1, after, **{"Last-Event-ID": str(seqs[1])})
        assert [(seq, kind) for seq, kind, _ in rest] == [(seqs[2], "job.three")]
        emit(bench, "foreign", project_id="vision")
        mine = emit(bench, "job.four", job_id="j")
        assert [seq for seq, _, _ in read_events(http, 1, f"/api/v1/events?after={seqs[2]}")] == mine
        assert http.get("/api/v1/events", headers={"Last-Event-ID": "x"}).status_code == 422
        assert http.get("/api/v1/events", headers={"Authorization": ""}).status_code == 401


def test_who_sends_too_much_hears_why(bench_on_a_free_port):
    bench = bench_on_a_free_port
    with live(bench) as daemon, client(daemon, bench.token("engineer")) as http:
        for content in (b"x" * (8 << 20), iter([b"x" * (1 << 16)] * 128)):
            answer = http.post("/api/v1/jobs/check", content=content)
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_the_daemon_leaves_what_the_local_cli_needs(bench_on_a_free_port):
    bench = bench_on_a_free_port
    folder = bench.services.settings.state_dir
    with live(bench) as daemon:
        for name in (DAEMON_FILE, TOKEN_FILE):
            assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
        with client(daemon, {"Authorization": f"Bearer {read_operator_token(folder)}"}) as http:
            assert http.get("/api/v1/whoami").json()["role"] == "operator"
    assert find_daemon(folder) is None
    token = read_operator_token(folder)
    ensure_operator_token(folder, bench.store, bench.services.ids)
    assert read_operator_token(folder) == token


@pytest.mark.parametrize(
    ("listen", "dialled"),
    [
        ("127.0.0.1:8700", "https://127.0.0.1:8700"),
        ("10.0.0.5:8700", "https://10.0.0.5:8700"),
        ("0.0.0.0:8700", "https://127.0.0.1:8700"),
        ("[::]:8700", "https://127.0.0.1:8700"),
        ("[::1]:8700", "https://[::1]:8700"),
    ],
)
def test_the_local_cli_dials_the_socket_and_not_the_public_name(listen, dialled):
    server_section = f'[server]\nlisten = "{listen}"\npublic_url = "https://broker.example.com"\n'
    assert _local_url(Settings.parse(server_section), 8700) == dialled
    own = Settings.parse(server_section + 'tls_cert = "cert.pem"\ntls_key = "key.pem"\n')
    assert _local_url(own, 8700) == "https://broker.example.com"


def test_a_login_on_the_daemons_machine_needs_no_public_name(bench, monkeypatch):
    monkeypatch.setenv("BROKER_SERVER__LISTEN", "127.0.0.1:0")
    policies = bench.services.settings.policies.dir
    text = f'[server]\npublic_url = "https://broker.invalid:8700"\n[policies]\ndir = "{policies}"\n'
    object.__setattr__(bench.services, "settings", Settings.parse(text))
    with live(bench) as daemon:
        assert daemon.url.startswith("https://127.0.0.1:")


def test_a_new_certificate_is_served_without_a_restart(bench_on_a_free_port, monkeypatch):
    bench = bench_on_a_free_port
    settings = bench.services.settings
    monkeypatch.setattr(server, "_CERTIFICATE_EVERY_S", 0.05)
    year_ms = 365 * 86_400_000
    # Read before the server runs: its first renewal is 50 ms away.
    first = ensure_tls(settings, SystemClock().now_ms()).cert.read_text()
    with live(bench, renew=lambda: ensure_tls(settings, SystemClock().now_ms() + year_ms)) as daemon:
        address = (settings.server.host, int(daemon.url.rpartition(":")[2]))

        def served():
            return ssl.get_server_certificate(address, timeout=5)

        for _ in range(100):
            on_disk = (settings.state_dir / "tls" / "server.pem").read_text()
            if on_disk != first and served().strip() == on_disk.strip():
                return
            time.sleep(0.05)
    raise AssertionError("the old certificate is still served")


def test_a_file_left_by_a_crash_counts_for_nothing(tmp_path):
    (tmp_path / DAEMON_FILE).write_text('{"url": "https://x", "ca": null, "pid": 999999999}')
    assert find_daemon(tmp_path) is None
    (tmp_path / DAEMON_FILE).write_text("{")
    assert find_daemon(tmp_path) is None


def test_a_taken_port_is_an_error_of_the_settings():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        settings = Settings.parse(f'[server]\nlisten = "127.0.0.1:{other.getsockname()[1]}"\n')
        with pytest.raises(SettingsError, match="cannot listen on"):
            _listen(settings)
