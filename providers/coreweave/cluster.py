"""What a CKS cluster says of its node pools, through the Kubernetes client. Read only.

Kept apart, so that who only wants the price list needs no Kubernetes client.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import urllib3
from kubernetes import client, config

from broker.core.errors import Denied, Invalid, ProviderDown, ProviderError, SettingsError, Throttled
from broker.textfile import check_ordinary
from providers.coreweave.node_pools import NodePool, pool_of
from providers.coreweave.settings import CoreWeaveOptions, zone_of
from providers.no_answer import no_answer
from providers.strict_json import loads

GROUP, VERSION, PLURAL = "compute.coreweave.com", "v1alpha1", "nodepools"

_PAGE = 100
_MOST_PAGES = 50
_SHOWN = 300
# As the page about CoreWeave makes the first one.
_NEW_TOKEN = "make a new one with `kubectl create token gpu-broker --namespace gpu-broker --duration 2160h`"


class Cluster:
    """One cluster. A client lives for one question: there is one every few minutes, and tokens are replaced."""

    def __init__(self, options: CoreWeaveOptions) -> None:
        self._options = options

    def node_pools(self) -> tuple[str | None, list[NodePool]]:
        """The cluster's zone, where it can be known, and every node pool.

        Raises:
            ProviderError: a page failed; nothing is returned then.
        """
        with self._opened("listing node pools") as api:
            custom = client.CustomObjectsApi(api)
            try:
                items = self._pages(custom)
            except client.ApiException as error:
                if error.status != 410:
                    raise
                items = self._pages(custom)  # the list changed too much on the way; once more from the start
            return self._zone(api), [pool for item in items if (pool := pool_of(item)) is not None]

    def version(self) -> str:
        """What Kubernetes it is, and where."""
        with self._opened("asking for the version") as api:
            answer = client.VersionApi(api).get_code(_request_timeout=self._options.timeout_s)
            return f"{answer.git_version} at {api.configuration.host}"

    def may_list(self) -> bool:
        """Whether these credentials may list node pools."""
        wanted = client.V1ResourceAttributes(group=GROUP, resource=PLURAL, verb="list")
        review = client.V1SelfSubjectAccessReview(
            api_version="authorization.k8s.io/v1",
            kind="SelfSubjectAccessReview",
            spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=wanted),
        )
        with self._opened("asking for our rights") as api:
            answer = client.AuthorizationV1Api(api).create_self_subject_access_review(
                review, _request_timeout=self._options.timeout_s
            )
            return bool(answer.status is not None and answer.status.allowed)

    def _pages(self, custom: Any) -> list[Any]:
        items: list[Any] = []
        more: str | None = None
        for _ in range(_MOST_PAGES):
            page = custom.list_cluster_custom_object(
                GROUP, VERSION, PLURAL, limit=_PAGE, _continue=more, _request_timeout=self._options.timeout_s
            )
            if not isinstance(page, Mapping) or not isinstance(page.get("items"), list):
                raise ProviderDown(f"coreweave: listing node pools: the reply is no list: {page!r:.80}")
            items += page["items"]
            more = (page.get("metadata") or {}).get("continue")
            if not more:
                return items
        raise ProviderDown(f"coreweave: listing node pools: more than {_MOST_PAGES} pages")

    def _zone(self, api: Any) -> str | None:
        return self._options.cluster_zone or zone_of(api.configuration.host)

    def _credentials(self) -> str:
        if self._options.kubeconfig:
            return f"what the kubeconfig {self._options.kubeconfig} logs in with"
        return f"the token of {self._options.token_env}"

    @contextmanager
    def _opened(self, doing: str) -> Iterator[Any]:
        options = self._options
        settings = client.Configuration()
        settings.retries = (
            False  # before the client is made: its pool of connections keeps what it finds then
        )
        with _translated(doing, self._credentials()):
            for file in (options.kubeconfig, options.ca_file):
                if file is not None:  # read anew each time, and it may have become a pipe
                    check_ordinary(file, SettingsError)
            if options.kubeconfig:
                # Not persisted: the file is the operator's, and may be read-only.
                config.load_kube_config(
                    str(options.kubeconfig),
                    options.context,
                    client_configuration=settings,
                    persist_config=False,
                )
            else:
                settings.host = options.api_server
                settings.api_key = {"authorization": f"Bearer {_token(options.token_env)}"}
                settings.ssl_ca_cert = str(options.ca_file) if options.ca_file else None
            with client.ApiClient(settings) as opened:
                yield opened


def _token(name: str) -> str:
    """From the environment, read anew each time. The text of an error never shows it."""
    token = os.environ.get(name, "").strip()
    if not token:
        raise Denied(f"coreweave: {name} is not set; make a token in the Cloud Console, under Tokens")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise Denied(f"coreweave: {name} is no token: it has blanks or characters that no token has")
    return token


@contextmanager
def _translated(doing: str, credentials: str) -> Iterator[None]:
    """Turn what the client raises inside into a `ProviderError`.

    Args:
        credentials: What they are called, for the text of a refusal.
    """
    text = f"coreweave: {doing}"
    try:
        yield
    except client.ApiException as error:
        raise _refusal(error, text, credentials) from error
    except SettingsError as error:
        raise Invalid(f"{text}: {error}") from error
    except config.ConfigException as error:
        raise Denied(f"{text}: the kubeconfig is of no use: {error}") from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise ProviderDown(f"{text}: {no_answer(error)}") from error
    except ValueError as error:  # not what the client's models allow
        raise ProviderDown(f"{text}: unreadable reply: {error!s:.{_SHOWN}}") from error


def _refusal(error: Any, text: str, credentials: str) -> ProviderError:
    status = int(error.status or 0)
    if status == 401:
        return Denied(f"{text}: {credentials} is refused (wrong or expired): {_NEW_TOKEN}")
    text = f"{text}: HTTP {status} {error.reason or ''}: {_said(error.body)}"[:_SHOWN].rstrip(": ")
    if status == 403:
        return Denied(text)
    if status == 404:
        return Invalid(f"{text}; is this a CKS cluster? It has no {PLURAL}.{GROUP}")
    if status == 429:
        return Throttled(text, _retry_after_s(error.headers))
    if status in (0, 408, 410) or status >= 500:
        return ProviderDown(text)
    return Invalid(text)


def _said(body: Any) -> str:
    """A refusal of Kubernetes is a document with a sentence in it; of anybody else it is what it is."""
    try:
        document = loads(body or b"")
    except ValueError:
        document = None
    told = document.get("message") if isinstance(document, dict) else None
    return str(told) if told else str(body or "")


def _retry_after_s(headers: Any) -> float | None:
    given = str((headers or {}).get("Retry-After", "")).strip()
    return float(given) if given.isascii() and given.isdigit() else None
