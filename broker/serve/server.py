"""uvicorn in the daemon's own loop, over TLS, without its signal handlers: stopping is the daemon's business."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import structlog
import uvicorn
from fastapi import FastAPI

from broker.core.errors import SettingsError
from broker.serve.local import announce, withdraw
from broker.serve.tls import TlsFiles
from broker.settings import Settings

# Real seconds that open requests (server-sent events above all) get when we stop.
_GRACE_S = 2
# Real seconds between two looks at the certificate, ours or the operator's.
_CERTIFICATE_EVERY_S = 6 * 3600

log = structlog.get_logger(__name__)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


async def serve_api(
    app: FastAPI,
    settings: Settings,
    tls: TlsFiles,
    stop: asyncio.Event,
    renew: Callable[[], TlsFiles] | None = None,
) -> None:
    """Listen until `stop` is set. While we listen, ``daemon.json`` in the state folder says where.

    Args:
        renew: Asked a few times a day for the certificate to use from then on (`ensure_tls` at the world's time);
            None keeps the first one for ever.

    Raises:
        SettingsError: the address is taken, or not ours.
    """
    listening = _listen(settings)
    port = listening.getsockname()[1]
    config = uvicorn.Config(
        app,
        ssl_certfile=str(tls.cert),
        ssl_keyfile=str(tls.key),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(config)
    url = _local_url(settings, port)
    announce(settings.state_dir, url, tls.ca)
    log.info("server.listening", url=url, address=f"{settings.server.host}:{port}")
    config.load()
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    stopping = asyncio.create_task(stop.wait())
    renewing = asyncio.create_task(_renew(config, renew)) if renew else None
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
    finally:
        server.should_exit = True
        stopping.cancel()
        if renewing is not None:
            renewing.cancel()
        withdraw(settings.state_dir)


def _local_url(settings: Settings, port: int) -> str:
    """What the CLI on this machine dials: the socket itself, since the public name may lead through a proxy or NAT.

    An operator's certificate is good for the public name only, so there that name it is. Ours names the address that
    we listen on, and the loopback.
    """
    server = settings.server
    if server.tls_cert and server.port:
        return server.url
    host = "127.0.0.1" if server.host in ("0.0.0.0", "::") else server.host
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


async def _renew(config: uvicorn.Config, renew: Callable[[], TlsFiles]) -> None:
    """A daemon runs for longer than a certificate lives; new connections get the new one."""
    while True:
        await asyncio.sleep(_CERTIFICATE_EVERY_S)
        try:
            tls = renew()
            assert config.ssl is not None, "loaded before the server started"
            config.ssl.load_cert_chain(tls.cert, tls.key)
        except (OSError, ValueError):
            # The old one is still good for weeks; the next look may go better.
            log.exception("tls.renewal_failed")


def _listen(settings: Settings) -> socket.socket:
    """Bind before anything is announced, so that a taken port is an error of the start and not of a task."""
    host, port = settings.server.host, settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise SettingsError(
            f"cannot listen on {settings.server.listen}: {error.strerror}", hint="change listen in [server]"
        ) from error
    return listening
