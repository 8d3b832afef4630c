"""Calls to the daemon's API, and its problem documents turned back into errors with exit codes."""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import httpx

from broker.cli.login import Login, load_login
from broker.core.errors import AuthError, BrokerError, Place, UsageError
from broker.textfile import read_text

_TIMEOUT_S = 30.0


class DaemonError(BrokerError):
    """What the daemon answered, when it was no."""

    def __init__(self, message: str, exit_code: int, code: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code


class DaemonDown(BrokerError):
    """The daemon did not answer."""

    code = "daemon_down"


class Client:
    """One daemon, one login. A context manager."""

    def __init__(self, login: Login | None = None, timeout_s: float = _TIMEOUT_S) -> None:
        self.login = login or load_login()
        again = "run `broker login` again"
        authorities = read_text(self.login.ca, hint=again) if self.login.ca else None
        try:
            trust = ssl.create_default_context(cadata=authorities)
        except (ssl.SSLError, ValueError) as error:
            raise UsageError(f"the CA {self.login.ca} is not PEM: {error}", hint=again) from error
        self._http = httpx.Client(
            base_url=self.login.url,
            headers={"Authorization": f"Bearer {self.login.token}"},
            timeout=timeout_s,
            verify=trust,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **query: object) -> Any:
        """The JSON answer of a read."""
        return self.call("GET", path, query=query)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: Iterator[bytes] | None = None,
    ) -> Any:
        """The JSON answer of any call; None where it has no body.

        Raises:
            DaemonDown: no answer.
            BrokerError: the daemon said no; its exit code comes along.
        """
        with self._told():
            reply = self._http.request(
                method,
                f"/api/v1{path}",
                params={name: value for name, value in (query or {}).items() if value is not None},
                headers=dict(headers or {}),
                **(
                    {"content": content}
                    if content is not None
                    else {"json": body}
                    if body is not None
                    else {}
                ),
            )
        if reply.is_error:
            raise _error(reply)
        return reply.json() if reply.content else None

    def get_log(self, path: str, offset: int, node: str | None) -> tuple[bytes, str]:
        """Bytes of a log from `offset`, and the state of its job."""
        query = {"offset": str(offset)} | ({"node": node} if node else {})
        with self._told():
            reply = self._http.get(f"/api/v1{path}", params=query)
        if reply.is_error:
            raise _error(reply)
        return reply.content, reply.headers["X-Job-State"]

    def events(self, query: Mapping[str, Any], last: int | None) -> Iterator[Any]:
        """Events as they come, each as its JSON; ends when the daemon ends the stream.

        Args:
            last: Number of the last one that was seen: go on behind it.
        """
        params = {name: value for name, value in query.items() if value is not None}
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        with (
            self._told(),
            self._http.stream("GET", "/api/v1/events", params=params, headers=headers) as reply,
        ):
            if reply.is_error:
                reply.read()
                raise _error(reply)
            for line in reply.iter_lines():
                # One line of data an event, as `json.dumps` writes it; the rest is for browsers.
                if line.startswith("data:"):
                    yield json.loads(line.removeprefix("data:"))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except httpx.TransportError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise AuthError(
                    f"{self.login.url} shows a certificate that no CA we trust has signed; "
                    "get the daemon's CA (tls/ca.pem in its state folder) and run `broker login URL --ca FILE`"
                ) from error
            raise DaemonDown(
                f"no answer from {self.login.url}: {error or type(error).__name__}; "
                "is the daemon running (`broker serve`), and is the URL right (`broker login URL`)?"
            ) from error


def _error(reply: httpx.Response) -> BrokerError:
    try:
        problem = reply.json()
    except ValueError:
        problem = {}
    if not isinstance(problem, dict) or "detail" not in problem:
        return DaemonError(
            f"{reply.request.url} answered {reply.status_code} {reply.reason_phrase}", 1, "error"
        )
    detail = str(problem["detail"])
    if reply.status_code == httpx.codes.UNAUTHORIZED:
        return AuthError(detail)
    if problem.get("exit_code") == UsageError.exit_code:
        place = problem.get("place")
        return UsageError(detail, Place(**place) if place else None, problem.get("hint"))
    return DaemonError(detail, int(problem.get("exit_code", 1)), str(problem.get("code", "error")))
