"""Calls to the daemon: HTTPS, the pinned authority, time-outs, nothing else."""

import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Dict, Optional, Type, TypeVar

from broker.wire.messages import Beat, Directive, Hello, Welcome, decode, encode

_READ_BLOCK = 1 << 20

M = TypeVar("M")


class LinkDown(Exception):
    """The daemon did not answer, or its answer made no sense. Ask again later."""


class LinkRefused(LinkDown):
    """The daemon answered no.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Link:
    """One daemon, as one node may call it. Thread-safe: it holds no connection.

    Args:
        url: ``https://broker.example:8443``.
        token, secret: This node's.
        ca_pem: The authority to trust, alone; empty trusts the system's.
        timeout_s: Of each call.
    """

    def __init__(self, url: str, token: str, secret: str, ca_pem: str = "", timeout_s: float = 15.0) -> None:
        self._base = url.rstrip("/") + "/agent/v1"
        self._token = token
        self._secret = secret
        self._timeout_s = timeout_s
        # A proxy from the image's environment would see the secrets, and may not reach the daemon at all.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=ca_pem or None)),
        )

    def hello(self, facts: Dict[str, Any]) -> Welcome:
        """Exchange the one-time token; the same secret may repeat it."""
        hello = Hello(token=self._token, secret=self._secret, facts=facts)
        return _message(Welcome, self._call("/hello", encode(hello), authorised=False))

    def beat(self, beat: Beat) -> Directive:
        """Say what is true, hear what is wanted."""
        return _message(Directive, self._call("/beat", encode(beat)))

    def append_log(self, offset: int, data: bytes) -> int:
        """Append job output; returns how many bytes the daemon has."""
        document = _json(self._call(f"/logs?offset={offset}", data, kind="application/octet-stream"))
        try:
            return int(document["size"])
        except (KeyError, TypeError, ValueError) as error:
            raise LinkDown(f"logs: no size in {document!r}") from error

    def fetch_source(self, sha256: str, into: Path) -> None:
        """Download the job's files. The caller compares the hash."""
        request = self._request(f"/source/{urllib.parse.quote(sha256, safe='')}", None)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as reply, open(into, "wb") as file:
                while True:
                    block = reply.read(_READ_BLOCK)
                    if not block:
                        return
                    file.write(block)
        except urllib.error.HTTPError as error:
            raise LinkRefused(f"source: HTTP {error.code}", error.code) from error
        except (OSError, http.client.HTTPException) as error:
            raise LinkDown(f"source: {type(error).__name__}: {error}") from error

    def _request(
        self, path: str, data: Optional[bytes], authorised: bool = True, kind: str = "application/json"
    ) -> urllib.request.Request:
        headers = {"Content-Type": kind, "User-Agent": "gpu-broker-agent"}
        if authorised:
            headers["Authorization"] = f"Bearer {self._token}:{self._secret}"
        return urllib.request.Request(self._base + path, data=data, headers=headers)

    def _call(self, path: str, data: bytes, authorised: bool = True, kind: str = "application/json") -> bytes:
        try:
            with self._opener.open(
                self._request(path, data, authorised, kind), timeout=self._timeout_s
            ) as reply:
                body: bytes = reply.read()
                return body
        except urllib.error.HTTPError as error:
            detail = error.read(300).decode(errors="replace")
            raise LinkRefused(f"{path}: HTTP {error.code} {detail}".rstrip(), error.code) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise LinkDown(f"{path}: {type(error).__name__}: {error}") from error


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise LinkDown(f"the daemon's answer is no JSON: {body[:80]!r}") from error


def _message(kind: Type[M], body: bytes) -> M:
    try:
        return decode(kind, _json(body))
    except (ValueError, TypeError) as error:
        raise LinkDown(f"bad answer: {error}") from error
