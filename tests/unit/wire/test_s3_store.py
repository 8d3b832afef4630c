"""The S3 client against a server that misbehaves, over real sockets; the well-behaved one is in test_wire_stores."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trustme

from broker.wire.errors import PreconditionFailed, StoreFailed, UnknownWrite
from broker.wire.messages import StoreAccess
from broker.wire.s3_sign import Keys
from broker.wire.s3_store import TRIES, S3Store
from broker.wire.store_client import open_store

HANG_UP = None
Reply = tuple[int, dict[str, str], bytes] | None


def error(status: int, code: str, message: str = "why") -> Reply:
    return (
        status,
        {},
        f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode(),
    )


class Server:
    """Answers requests with what the test has scripted, in turn, and keeps what it was asked."""

    def __init__(self, certificate: trustme.LeafCert | None = None) -> None:
        self.replies: list[Reply | Callable[[], Reply]] = []
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.seen.append((self.command, self.path, dict(self.headers.items()), body))
                reply = outer.replies.pop(0)
                reply = reply() if callable(reply) else reply
                self.close_connection = True
                if reply is HANG_UP:
                    return
                status, headers, content = reply
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_DELETE = handle_any

            def log_message(self, *args: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(context)
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.port = self.http.server_address[1]
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def stop(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def client(server: Server) -> S3Store:
    return S3Store(
        f"http://127.0.0.1:{server.port}", "bucket", Keys("id", "secret", "token"), pause_s=0, io_timeout_s=1
    )


def test_reads_are_retried_through_everything_that_passes(server, client):
    server.replies = [
        HANG_UP,
        error(503, "SlowDown"),
        error(400, "RequestTimeout"),
        (200, {"ETag": '"e"'}, b"data"),
    ]
    assert client.get("k") == (b"data", '"e"')
    assert all(headers["x-amz-security-token"] == "token" for _, _, headers, _ in server.seen)


def test_a_body_that_breaks_off_is_no_body(server, client):
    server.replies = [
        (200, {"ETag": '"e"', "Content-Length": "10"}, b"half"),
        (200, {"ETag": '"e"'}, b"whole"),
    ]
    assert client.get("k")[0] == b"whole"


def test_retries_end(server, client):
    server.replies = [error(500, "InternalError", "oops")] * TRIES
    with pytest.raises(StoreFailed, match=f"gave up after {TRIES} tries: HTTP 500 InternalError oops"):
        client.get("k")


def test_a_write_without_condition_is_retried(server, client):
    server.replies = [HANG_UP, (200, {"ETag": '"e"'}, b"")]
    assert client.put("k", b"x" * 3_000_000) == '"e"'
    assert [len(body) for _, _, _, body in server.seen] == [3_000_000] * 2


@pytest.mark.parametrize("reply", [HANG_UP, error(500, "InternalError"), error(503, "SlowDown")])
def test_a_conditional_write_goes_out_once_and_its_lost_reply_is_doubt(server, client, reply):
    server.replies = [reply]
    with pytest.raises(UnknownWrite):
        client.put("k", b"x", if_match='"e"')
    assert len(server.seen) == 1
    assert server.seen[0][2]["if-match"] == '"e"'


def test_a_reply_that_does_not_come_in_time_is_doubt(server, client):
    release = threading.Event()

    def late():
        release.wait(10)
        return HANG_UP

    server.replies = [late]
    with pytest.raises(UnknownWrite):
        client.put("k", b"x", if_absent=True)
    release.set()


def test_a_connection_that_is_refused_is_no_doubt():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        store = S3Store(f"http://127.0.0.1:{taken.getsockname()[1]}", "b", Keys("i", "s"), pause_s=0)
        with pytest.raises(StoreFailed, match="cannot connect") as caught:
            store.put("k", b"x", if_absent=True)
    assert not isinstance(caught.value, UnknownWrite)


@pytest.mark.parametrize(
    "reply",
    [error(412, "PreconditionFailed"), error(409, "ConditionalRequestConflict"), error(404, "NoSuchKey")],
)
def test_three_ways_to_lose(server, client, reply):
    server.replies = [reply]
    with pytest.raises(PreconditionFailed):
        client.put("k", b"x", if_match='"e"')


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (error(404, "NoSuchBucket"), "create the bucket"),
        (error(403, "RequestTimeTooSkewed"), "set this machine's clock"),
        (error(403, "InvalidAccessKeyId"), "check the keys"),
        ((301, {}, b""), "check the endpoint and the region"),
    ],
)
def test_errors_say_what_to_do(server, client, reply, says):
    server.replies = [reply]
    with pytest.raises(StoreFailed, match=says):
        client.get("k")


def page(keys: list[str], token: str = "") -> Reply:
    items = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    following = (
        f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
        if token
        else ""
    )
    document = f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{items}{following}</ListBucketResult>'
    return 200, {}, document.encode()


def test_pages_are_followed_and_a_page_that_repeats_is_refused(server, client):
    server.replies = [page(["b"], "t/1+"), page(["a"])]
    assert client.list("p") == [("a", 1), ("b", 1)]
    assert "continuation-token=t%2F1%2B" in server.seen[1][1]
    server.replies = [page(["b"], "t"), page(["b"], "t")]
    with pytest.raises(StoreFailed, match="repeats"):
        client.list("p")
    server.replies = [(200, {}, b"<html")]
    with pytest.raises(StoreFailed, match="not XML"):
        client.list("p")


def test_keys_that_may_not_list_the_bucket_tell_absent_from_forbidden(server, client):
    server.replies = [error(403, "AccessDenied"), page([])]
    assert client.get("jobs/x/HEAD") is None
    server.replies = [error(403, "AccessDenied"), page(["jobs/x/HEAD"])]
    with pytest.raises(StoreFailed, match="AccessDenied"):
        client.get("jobs/x/HEAD")
    server.replies = [error(403, "AccessDenied"), error(403, "AccessDenied")]
    with pytest.raises(StoreFailed, match="LIST"):
        client.get("jobs/x/HEAD")


def test_trusts_the_ca_it_was_given_and_no_other():
    ours, other = trustme.CA(), trustme.CA()
    server = Server(ours.issue_cert("127.0.0.1"))
    try:
        server.replies = [(200, {"ETag": '"e"'}, b"data")]
        access = StoreAccess("s3", "p", f"https://127.0.0.1:{server.port}", bucket="b")
        access.ca_pem = ours.cert_pem.bytes().decode()
        assert open_store(access).get("k") == (b"data", '"e"')
        access.ca_pem = other.cert_pem.bytes().decode()
        with pytest.raises(StoreFailed, match="not trusted"):
            open_store(access).get("k")
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("access", "says"),
    [
        (StoreAccess("ftp", "p"), "kind 'ftp' is not known"),
        (StoreAccess("folder", "p"), "without a path"),
        (StoreAccess("s3", "p", "https://h"), "endpoint and a bucket"),
        (StoreAccess("s3", "p", "h:1", bucket="b"), "not an S3 endpoint"),
        (StoreAccess("s3", "p", "https://h/path", bucket="b"), "not an S3 endpoint"),
        (StoreAccess("s3", "p", "https://h", bucket="b", ca_pem="junk"), "not PEM"),
    ],
)
def test_an_unusable_description_is_refused(access, says):
    with pytest.raises(StoreFailed, match=says):
        open_store(access)
