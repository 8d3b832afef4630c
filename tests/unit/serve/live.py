"""A bench behind a real uvicorn with real TLS on loopback, in its own loop and thread."""

import asyncio
import ssl
import threading
from contextlib import contextmanager
from pathlib import Path

import httpx

from broker.clock import SystemClock
from broker.serve.api import create_app
from broker.serve.local import ensure_operator_token, find_daemon
from broker.serve.server import serve_api
from broker.serve.tls import ensure_tls


@contextmanager
def live(bench, renew=None):
    """Serve; yields what `daemon.json` says."""
    settings = bench.services.settings
    ensure_operator_token(settings.state_dir, bench.store, bench.services.ids)
    tls = ensure_tls(settings, SystemClock().now_ms())
    started = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run():
        loop.call_soon(started.set)
        await serve_api(create_app(bench.services), settings, tls, stop, renew)

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    try:
        assert started.wait(5)
        daemon = _wait_for(settings.state_dir)
        yield daemon
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        assert not thread.is_alive()
        loop.close()


def client(daemon, headers=None):
    """An HTTP client that trusts the daemon's own CA alone."""
    trust = ssl.create_default_context(cadata=Path(daemon.ca).read_text())
    return httpx.Client(base_url=daemon.url, headers=headers, verify=trust, timeout=5)


def _wait_for(state_dir):
    for _ in range(100):
        daemon = find_daemon(state_dir)
        if daemon is not None:
            with client(daemon) as http:
                if http.get("/healthz").status_code == 200:
                    return daemon
        threading.Event().wait(0.05)
    raise AssertionError("the server did not start")
