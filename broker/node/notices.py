"""Listens for the cloud's announcement that this node will end. What is heard is said once, to one function.

AWS    IMDSv2, ``/latest/meta-data/spot/instance-action``: 404 until it is decided, then two minutes
GCP    ``/computeMetadata/v1/instance/preempted``: FALSE, then TRUE; the request waits for the change
Azure  ``/metadata/scheduledevents``: an event of type Preempt, up to 30 s

The endpoints are the vendors' own environment variables with the vendors' defaults.
"""

import http.client
import json
import threading
import urllib.error
import urllib.request
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Callable, Dict, Mapping, Optional, Protocol, Tuple

from broker.node.log import say
from broker.wire.messages import Notice

_TIMEOUT_S = 5.0
_LONG_POLL_S = 60
_AWS_TOKEN_TTL_S = 21600
AZURE_VARIABLE = "AZURE_METADATA_ENDPOINT"


class MetadataDown(Exception):
    """The metadata service did not answer as documented."""


class Metadata:
    """Plain HTTP to a link-local address; a proxy in the environment must not see it."""

    def __init__(self) -> None:
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(
        self, url: str, headers: Dict[str, str], method: str = "GET", timeout_s: float = _TIMEOUT_S
    ) -> Tuple[int, str, Mapping[str, str]]:
        """Status, body, headers; a 4xx is an answer."""
        request = urllib.request.Request(url, headers=headers, method=method)
        try:
            with self._opener.open(request, timeout=timeout_s) as reply:
                return reply.status, reply.read().decode(errors="replace"), dict(reply.headers)
        except urllib.error.HTTPError as error:
            return error.code, "", dict(error.headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise MetadataDown(f"{url}: {error}") from error


class AwsNotices:
    """IMDSv2 with a session token, renewed when it is refused."""

    def __init__(self, metadata: Metadata, environ: Mapping[str, str], notice_s: float) -> None:
        base = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "http://169.254.169.254"
        self._base = base.rstrip("/")
        self._metadata = metadata
        self._notice_s = notice_s
        self._token = ""

    def ask(self) -> Optional[Notice]:
        """One look."""
        if not self._token:
            ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(_AWS_TOKEN_TTL_S)}
            status, body, _ = self._metadata.call(f"{self._base}/latest/api/token", ttl, method="PUT")
            if status != 200:
                raise MetadataDown(f"no IMDSv2 token: HTTP {status}")
            self._token = body.strip()
        url = f"{self._base}/latest/meta-data/spot/instance-action"
        status, body, headers = self._metadata.call(url, {"X-aws-ec2-metadata-token": self._token})
        if status == 404:
            return None
        if status == 401:
            self._token = ""
            return None
        if status != 200:
            raise MetadataDown(f"instance-action: HTTP {status}")
        try:
            action = json.loads(body)
            end = datetime.fromisoformat(str(action["time"]).replace("Z", "+00:00"))
        except (ValueError, KeyError, TypeError) as error:
            raise MetadataDown(f"instance-action: {body[:100]!r}") from error
        left_s = _until(end, headers, self._notice_s)
        return Notice("aws:instance-action", left_s, str(action.get("action", "terminate")))


class GcpNotices:
    """The metadata server holds the request until the value changes, so this hears at once."""

    def __init__(self, metadata: Metadata, environ: Mapping[str, str], notice_s: float) -> None:
        host = environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
        self._url = f"http://{host}/computeMetadata/v1/instance/preempted"
        self._metadata = metadata
        self._notice_s = notice_s
        self._etag = ""

    def ask(self) -> Optional[Notice]:
        """One look; the second and later ones wait for a change."""
        query, timeout_s = "", _TIMEOUT_S
        if self._etag:
            query = f"?wait_for_change=true&timeout_sec={_LONG_POLL_S}&last_etag={self._etag}"
            timeout_s = _LONG_POLL_S + _TIMEOUT_S
        status, body, headers = self._metadata.call(
            self._url + query, {"Metadata-Flavor": "Google"}, timeout_s=timeout_s
        )
        if status != 200:
            raise MetadataDown(f"preempted: HTTP {status}")
        self._etag = _header(headers, "etag")
        # The value does not say how long: that is what was asked for at the launch.
        return Notice("gcp:preempted", self._notice_s) if body.strip().upper() == "TRUE" else None


class AzureNotices:
    """Scheduled events; the first call ever may take two minutes and switches the feature on."""

    def __init__(self, metadata: Metadata, environ: Mapping[str, str], notice_s: float) -> None:
        base = (environ.get(AZURE_VARIABLE) or "http://169.254.169.254").rstrip("/")
        self._url = f"{base}/metadata/scheduledevents?api-version=2020-07-01"
        self._metadata = metadata
        self._notice_s = notice_s
        self._timeout_s = 125.0

    def ask(self) -> Optional[Notice]:
        """One look."""
        status, body, headers = self._metadata.call(
            self._url, {"Metadata": "true"}, timeout_s=self._timeout_s
        )
        if status != 200:
            raise MetadataDown(f"scheduledevents: HTTP {status}")
        self._timeout_s = _TIMEOUT_S
        try:
            events = [event for event in json.loads(body)["Events"] if event.get("EventType") == "Preempt"]
            if not events:
                return None
            end = parsedate_to_datetime(events[0]["NotBefore"]) if events[0].get("NotBefore") else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MetadataDown(f"scheduledevents: {body[:100]!r}") from error
        return Notice(
            "azure:preempt", self._notice_s if end is None else _until(end, headers, self._notice_s)
        )


def _until(end: datetime, headers: Mapping[str, str], most_s: float) -> float:
    """Seconds until `end` by the service's own clock (its Date header): the node's may be wrong.

    Never more than what was promised; a time in the past, or none to compare with, counts as the promise, since
    we ask every few seconds.
    """
    try:
        left_s = (end - parsedate_to_datetime(_header(headers, "date"))).total_seconds()
    except (KeyError, TypeError, ValueError):
        return most_s
    return left_s if 0 < left_s < most_s else most_s


def _header(headers: Mapping[str, str], name: str) -> str:
    return next((value for key, value in headers.items() if key.lower() == name), "")


class Listener(Protocol):
    """One cloud's way to ask."""

    def ask(self) -> Optional[Notice]:
        """One look; None while nothing is announced.

        Raises:
            MetadataDown: no documented answer.
        """


_LISTENERS: Dict[str, Callable[[Metadata, Mapping[str, str], float], Listener]] = {
    "aws": AwsNotices,
    "gcp": GcpNotices,
    "azure": AzureNotices,
}


class NoticeWatch:
    """Asks again and again in a thread of its own until it has heard one notice.

    Args:
        cloud: Which service to ask; one without a channel is not asked.
        poll_s: Between two looks.
        heard: Called once, with the notice.
    """

    def __init__(
        self,
        cloud: str,
        environ: Mapping[str, str],
        notice_s: float,
        poll_s: float,
        heard: Callable[[Notice], None],
    ) -> None:
        listener = _LISTENERS.get(cloud)
        self._listener = listener(Metadata(), environ, notice_s) if listener else None
        self._poll_s = poll_s
        self._heard = heard
        self._down = False

    def start(self) -> None:
        """Begin to listen."""
        if self._listener is not None:
            threading.Thread(target=self._listen, name="notices", daemon=True).start()

    def _listen(self) -> None:
        assert self._listener is not None
        pause = threading.Event()
        while True:
            try:
                notice = self._listener.ask()
                self._down = False
            except MetadataDown as error:
                notice = None
                if not self._down:
                    say("metadata.failed", error=error)
                self._down = True
            if notice is not None:
                self._heard(notice)
                return
            # Also after a long poll: a service that ignores wait_for_change must not be asked without a pause.
            pause.wait(self._poll_s)
