"""Lambda's Cloud API, as far as prices need it: one GET at a time, at the pace that the API allows."""

import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from broker.core.errors import Denied, SettingsError
from broker.textfile import check_ordinary
from providers.bounded_get import Bounds, bounded_get
from providers.lambda_cloud.errors import document_of, translated
from providers.lambda_cloud.settings import LambdaOptions

GAP_S = 1.0  # "generally limited to one request per second", the API's document 1.8.3
_MAX_BODY = 16 << 20


class Pace:
    """One call at a time, and a gap from the end of one to the start of the next. Thread-safe.

    From its end: however long a request travels, it then arrives a whole gap after the one before. In real time,
    as the API counts, whatever the rate of our clock.
    """

    def __init__(
        self,
        gap_s: float,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gap_s = gap_s
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._ended_s: float | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits until it is our turn; a call that fails has been one, too."""
        with self._lock:
            if self._ended_s is not None:
                wait_s = self._ended_s + self._gap_s - self._monotonic_s()
                if wait_s > 0:
                    self._sleep(wait_s)
            try:
                yield
            finally:
                self._ended_s = self._monotonic_s()


class Client:
    """Reads from the API. A connection lives for one call: there is one every few minutes."""

    def __init__(self, options: LambdaOptions, pace: Pace) -> None:
        self._options = options
        self._pace = pace

    def get(self, path: str, doing: str) -> Any:
        """What lies under ``data`` in the reply to ``GET path``.

        Raises:
            ProviderError: see `providers.lambda_cloud.errors`; `Denied` also when no key is set.
        """
        headers = {"Authorization": f"Bearer {self.key()}", "Accept": "application/json"}
        options = self._options
        with self._pace.turn(), translated(doing, urlsplit(options.endpoint).netloc):
            trusted: ssl.SSLContext | bool = True
            if options.ca_file is not None:
                check_ordinary(
                    options.ca_file, SettingsError
                )  # read anew each time, and it may have become a pipe
                trusted = ssl.create_default_context(cafile=str(options.ca_file))
            bounds = Bounds(options.timeout_s, options.timeout_s, _MAX_BODY)
            reply = bounded_get(f"{options.endpoint}{path}", trusted, bounds, headers)
        return document_of(reply.status, reply.headers, reply.body, doing)

    def key(self) -> str:
        """The API key, read anew each time.

        Raises:
            Denied: none is set, or what is set cannot be one. The text never shows it.
        """
        name = self._options.api_key_env
        key = os.environ.get(name, "").strip()
        if not key:
            raise Denied(f"lambda: {name} is not set; make an API key at https://cloud.lambda.ai/api-keys")
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise Denied(f"lambda: {name} is no API key: it has blanks or characters that no key has")
        return key
