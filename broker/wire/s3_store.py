"""S3 over `http.client`: GET, PUT with conditions, DELETE, and LIST. Path-style addressing, SigV4, TLS with a CA of ours.

Every request has a connection of its own. A kept one that the server has just closed would fail *after* the bytes
left us, and turn conditional writes into unknown outcomes; beside 64 MiB chunks a handshake is cheap.
"""

import hashlib
import http.client
import ssl
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import urlsplit

from broker.wire.errors import PreconditionFailed, StoreFailed, UnknownWrite
from broker.wire.s3_sign import Keys, quote_path, quote_query, sign

CONNECT_TIMEOUT_S = 10.0
IO_TIMEOUT_S = 60.0  # of one read or of one block sent, not of the whole object
TRIES = 4
PAUSE_S = 0.25  # before the second try; doubles

_BLOCK_BYTES = 1 << 20
_RETRY_STATUS = frozenset((429, 500, 502, 503, 504))
_RETRY_CODES = frozenset(
    ("RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable", "OperationAborted")
)


@dataclass(frozen=True)
class _Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The ``<Code>`` of an S3 error document, or empty."""
        return _field(self.body, "Code") if self.status >= 300 else ""

    @property
    def retryable(self) -> bool:
        return self.status in _RETRY_STATUS or self.code in _RETRY_CODES

    def describe(self) -> str:
        return f"HTTP {self.status} {self.code} {_field(self.body, 'Message')}".rstrip()


class S3Store:
    """See `broker.wire.store_client.ObjectStore`. The etag is the server's, verbatim."""

    def __init__(
        self,
        endpoint: str,
        bucket: str,
        keys: Keys,
        region: str = "us-east-1",
        ca_pem: str = "",
        pause_s: float = PAUSE_S,
        io_timeout_s: float = IO_TIMEOUT_S,
    ) -> None:
        """Nothing is sent yet.

        Args:
            endpoint: ``http[s]://host[:port]``.
            ca_pem: Trust these authorities and no others; the system's, if empty.

        Raises:
            StoreFailed: the endpoint or the CA cannot be used.
        """
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise StoreFailed(f"{endpoint!r} is not an S3 endpoint; write https://host or https://host:port")
        self._endpoint = endpoint.rstrip("/")
        self._host = parts.netloc
        self._bucket = bucket
        self._keys = keys
        self._region = region
        self._pause_s = pause_s
        self._io_timeout_s = io_timeout_s
        self._tls: Optional[ssl.SSLContext] = None
        if parts.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cadata=ca_pem or None)
            except (ssl.SSLError, ValueError) as error:
                raise StoreFailed(f"the CA of checkpoint store {endpoint} is not PEM: {error}") from error

    def get(self, key: str) -> Optional[Tuple[bytes, str]]:
        """GET, retried.

        S3 answers 403, not 404, for an object that is not there, to keys that may not list the whole bucket; keys
        that are limited to a job's prefix are such. Only its place in the list can tell the two apart.
        """
        reply = self._retried("GET", key)
        if reply.status == 404 and reply.code != "NoSuchBucket":
            return None
        if reply.code == "AccessDenied" and key not in (found for found, _ in self.list(key)):
            return None
        self._expect(reply, (200,), "GET", key)
        return reply.body, reply.headers.get("etag", "")

    def put(self, key: str, data: bytes, if_match: Optional[str] = None, if_absent: bool = False) -> str:
        """PUT; retried when it has no condition, since the same bytes twice are the same object."""
        conditions: Dict[str, str] = {}
        if if_match is not None:
            conditions["If-Match"] = if_match
        if if_absent:
            conditions["If-None-Match"] = "*"
        if not conditions:
            reply = self._retried("PUT", key, data=data)
        else:
            reply = self._conditional(key, data, conditions)
            # 409 ConditionalRequestConflict: another conditional write was under way, ours did nothing.
            # 404 NoSuchKey: If-Match on an object that is not there.
            if reply.status in (409, 412) or (reply.status == 404 and reply.code != "NoSuchBucket"):
                raise PreconditionFailed(f"{key}: {reply.describe()}")
        self._expect(reply, (200,), "PUT", key)
        return reply.headers.get("etag", "")

    def delete(self, key: str) -> None:
        """DELETE, retried."""
        reply = self._retried("DELETE", key)
        if reply.status != 404 or reply.code == "NoSuchBucket":
            self._expect(reply, (200, 204), "DELETE", key)

    def list(self, prefix: str) -> List[Tuple[str, int]]:
        """ListObjectsV2, page after page."""
        return sorted(found for page in self._pages(prefix) for found in page.objects)

    def folders(self, prefix: str) -> List[str]:
        """ListObjectsV2 with a delimiter: one request a thousand folders, however many objects lie in them."""
        found = (name for page in self._pages(prefix, [("delimiter", "/")]) for name in page.folders)
        return sorted(name[len(prefix) :].rstrip("/") for name in found)

    def _pages(self, prefix: str, more: Sequence[Tuple[str, str]] = ()) -> Iterator["_Page"]:
        token = ""
        while True:
            query = [("list-type", "2"), ("prefix", prefix), *more]
            if token:
                query.append(("continuation-token", token))
            reply = self._retried("GET", "", query=query)
            self._expect(reply, (200,), "LIST", prefix)
            page = _parse_page(reply.body)
            yield page
            following = page.following
            if not following:
                return
            if following == token:
                raise StoreFailed(
                    f"LIST {self._endpoint}/{self._bucket}/{prefix}: the store repeats a page for ever"
                )
            token = following

    def _conditional(self, key: str, data: bytes, conditions: Mapping[str, str]) -> _Reply:
        """One conditional PUT: at most once on the wire, so that a lost reply is the only doubt there can be.

        Raises:
            UnknownWrite: it was sent, and then no reply came, or one that does not say whether it was done.
        """
        connection = self._connect(key)
        try:
            reply = self._exchange(connection, "PUT", key, (), conditions, data)
        except (OSError, http.client.HTTPException) as error:
            raise UnknownWrite(f"PUT {self._url(key)}: the reply was lost ({error!r})") from error
        finally:
            connection.close()
        if reply.retryable and reply.status != 409:
            raise UnknownWrite(f"PUT {self._url(key)}: {reply.describe()}")
        return reply

    def _retried(
        self, method: str, key: str, query: Sequence[Tuple[str, str]] = (), data: Optional[bytes] = None
    ) -> _Reply:
        last = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(self._pause_s * 2 ** (attempt - 1))
            try:
                connection = self._connect(key, tries=1)
                try:
                    reply = self._exchange(connection, method, key, query, {}, data)
                finally:
                    connection.close()
            except (_Unreachable, OSError, http.client.HTTPException) as error:
                last = str(error) or repr(error)
                continue
            if not reply.retryable:
                return reply
            last = reply.describe()
        raise StoreFailed(f"{method} {self._url(key)}: gave up after {TRIES} tries: {last}")

    def _connect(self, key: str, tries: int = TRIES) -> http.client.HTTPConnection:
        """An open connection. While it is not open nothing was sent, so retrying is always safe."""
        last = ""
        for attempt in range(tries):
            if attempt:
                time.sleep(self._pause_s * 2 ** (attempt - 1))
            connection = (
                http.client.HTTPSConnection(self._host, timeout=CONNECT_TIMEOUT_S, context=self._tls)
                if self._tls
                else http.client.HTTPConnection(self._host, timeout=CONNECT_TIMEOUT_S)
            )
            try:
                connection.connect()
            except ssl.SSLCertVerificationError as error:
                raise StoreFailed(
                    f"{self._endpoint} shows a certificate that is not trusted: {error.verify_message}; "
                    "give the store's CA in the settings"
                ) from error
            except OSError as error:
                connection.close()
                last = str(error) or repr(error)
                continue
            connection.sock.settimeout(self._io_timeout_s)
            return connection
        raise _Unreachable(f"{self._url(key)}: cannot connect: {last}")

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        key: str,
        query: Sequence[Tuple[str, str]],
        headers: Mapping[str, str],
        data: Optional[bytes],
    ) -> _Reply:
        path = f"/{self._bucket}/{key}" if key else f"/{self._bucket}"
        body = data or b""
        sent = dict(headers)
        if data is not None:
            sent["Content-Length"] = str(len(body))
        digest = hashlib.sha256(body).hexdigest()
        signed = sign(self._keys, method, self._host, path, query, sent, digest, self._region)
        target = quote_path(path) + (f"?{quote_query(query)}" if query else "")
        connection.request(method, target, body=_blocks(body) if body else None, headers=signed)
        response = connection.getresponse()
        content = response.read()
        return _Reply(
            response.status, {name.lower(): value for name, value in response.getheaders()}, content
        )

    def _expect(self, reply: _Reply, statuses: Sequence[int], verb: str, key: str) -> None:
        if reply.status in statuses:
            return
        hint = ""
        if reply.code == "NoSuchBucket":
            hint = "; create the bucket, or correct its name in the settings"
        elif reply.code == "RequestTimeTooSkewed":
            hint = "; set this machine's clock"
        elif reply.status == 403:
            hint = "; check the keys, and their right to this prefix"
        elif reply.status in (301, 307, 400):
            hint = "; check the endpoint and the region"
        raise StoreFailed(f"{verb} {self._url(key)}: {reply.describe()}{hint}")

    def _url(self, key: str) -> str:
        return f"{self._endpoint}/{self._bucket}/{key}"


class _Unreachable(StoreFailed):
    """No connection: nothing was sent."""


def _blocks(data: bytes) -> Iterator[memoryview]:
    """A socket's time-out bounds a whole `sendall`; sent in blocks, a slow link has it for each block."""
    view = memoryview(data)
    for start in range(0, len(view), _BLOCK_BYTES):
        yield view[start : start + _BLOCK_BYTES]


def _field(body: bytes, name: str) -> str:
    """Text of the first element of that name, whatever its namespace; empty when the body is no such document."""
    if not body.lstrip().startswith(b"<"):
        return ""
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError:
        return ""
    for element in root.iter():
        if element.tag.rpartition("}")[2] == name:
            return element.text or ""
    return ""


@dataclass(frozen=True)
class _Page:
    """One page of a list.

    Attributes:
        objects: Keys with sizes.
        folders: Common prefixes, each with its slash.
        following: Token of the next page, or empty.
    """

    objects: List[Tuple[str, int]]
    folders: List[str]
    following: str


def _parse_page(body: bytes) -> _Page:
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise StoreFailed(f"the store's list is not XML: {error}") from error
    namespace = root.tag.rpartition("}")[0] + "}" if root.tag.startswith("{") else ""
    page = [
        (item.findtext(f"{namespace}Key") or "", int(item.findtext(f"{namespace}Size") or 0))
        for item in root.findall(f"{namespace}Contents")
    ]
    folders = [
        item.findtext(f"{namespace}Prefix") or "" for item in root.findall(f"{namespace}CommonPrefixes")
    ]
    truncated = root.findtext(f"{namespace}IsTruncated") == "true"
    following = (root.findtext(f"{namespace}NextContinuationToken") or "") if truncated else ""
    return _Page(page, folders, following)
