"""Capacity of CoreWeave: the node pools of a cluster, and a cluster that goes wrong."""

import os
import time

import pytest

from broker.core.availability import Signal
from broker.core.errors import Denied, Invalid, ProviderDown, ProviderError, Throttled
from broker.core.offer import MarketSnapshot
from broker.market.quarantine import sift
from lab.faces import coreweave
from lab.faults import FaultKind
from lab.sold.coreweave import CLUSTER_ZONE
from lab.tls import Authority
from providers.coreweave import cluster as cluster_module
from tests.contract.coreweave.conftest import H100_ON_DEMAND, H100_SPOT, TOKEN, CoreWeave

pytestmark = pytest.mark.process

# What is obtainable


def test_a_pool_that_got_its_node_is_a_one_and_one_that_waits_a_zero(cloud: CoreWeave) -> None:
    hints = cloud.hints()
    sold = {key for key in cloud.world.pools if key.startswith(f"coreweave/{CLUSTER_ZONE}/")}
    assert hints == {key: float(cloud.world.free(key) != 0) for key in sold}
    assert (hints[H100_ON_DEMAND], hints[H100_SPOT]) == (1.0, 0.0)
    quotes = {q.offer.key: q for q in sift(cloud.source.quotes(), cloud.clock.now_ms(), {}, {}).quotes}
    told = tuple(hint for hint in cloud.source.availability() if hint.offer_key == H100_SPOT)
    assert [(hint.signal, hint.high, hint.observed_at_ms) for hint in told] == [
        (Signal.LISTED, 0.0, cloud.clock.now_ms())
    ]
    snapshot = MarketSnapshot(cloud.clock.now_ms(), quotes, hints={H100_SPOT: told})
    assert snapshot.is_unlisted(quotes[H100_SPOT].offer)


def test_capacity_that_comes_back_is_seen(cloud: CoreWeave) -> None:
    assert cloud.hints()[H100_SPOT] == 0.0
    cloud.world.set_stock(H100_SPOT, 3)
    assert cloud.hints()[H100_SPOT] == 1.0


def test_a_cluster_tells_of_its_own_zone_only(cloud: CoreWeave) -> None:
    assert {key.split("/")[1] for key in cloud.hints()} == {CLUSTER_ZONE}


def test_a_cluster_whose_zone_is_not_known_tells_nothing(cloud: CoreWeave) -> None:
    source = cloud.opened_with(cluster_zone=None)
    assert source.availability() == []
    assert (source.check()[-1].ok, "set cluster_zone" in source.check()[-1].detail) == (None, True)


def test_without_a_cluster_nothing_is_known_and_nobody_is_called(cloud: CoreWeave) -> None:
    source = cloud.opened_with(api_server=None, ca_file=None)
    assert source.quotes()
    assert source.availability() == ()
    cluster = source.check()[-1]
    assert (cluster.name, cluster.ok) == ("coreweave: cluster", None)
    assert "nothing is known of capacity" in cluster.detail
    assert cloud.face.requests == []


def test_a_kubeconfig_does_as_well(cloud: CoreWeave, authority: Authority) -> None:
    file = cloud.folder / "kubeconfig"
    file.write_text(coreweave.kubeconfig(cloud.server.url, authority.ca_file.read_bytes(), TOKEN))
    source = cloud.opened_with(api_server=None, ca_file=None, kubeconfig=str(file))
    assert cloud.hints(source) == cloud.hints()
    assert all(check.ok for check in source.check())
    with pytest.raises(Denied, match="kubeconfig is of no use"):
        cloud.opened_with(api_server=None, ca_file=None, kubeconfig=str(file), context="x").availability()
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(Invalid, match="kubeconfig: it is a pipe"):
        source.availability()


def test_long_lists_are_read_to_their_end(cloud: CoreWeave, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cloud.hints()
    cloud.face.requests.clear()
    monkeypatch.setattr(cluster_module, "_PAGE", 2)
    assert cloud.hints() == whole
    assert len(cloud.face.requests) == (len(whole) + 1) // 2
    assert cloud.face.requests[-1].param("continue")


def test_a_list_that_expired_on_the_way_is_read_again_from_its_start(cloud: CoreWeave) -> None:
    whole = cloud.hints()
    cloud.face.requests.clear()
    cloud.fault(FaultKind.PARTIAL_PAGE)
    assert cloud.hints() == whole
    assert len(cloud.face.requests) == 3
    assert not cloud.face.requests[-1].param("continue")


def test_a_list_that_expires_again_and_again_is_a_cluster_that_is_down(cloud: CoreWeave) -> None:
    cloud.fault(FaultKind.PARTIAL_PAGE)
    cloud.fault(FaultKind.SLOW)  # the page that has expired
    cloud.fault(FaultKind.PARTIAL_PAGE)
    with pytest.raises(ProviderDown, match="HTTP 410"):
        cloud.source.availability()


# When it goes wrong


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        (FaultKind.EXPIRED, Denied, "the token of COREWEAVE_API_TOKEN is refused"),
        (FaultKind.DENIED, Denied, "HTTP 403"),
        (FaultKind.HTTP_500, ProviderDown, "HTTP 500"),
        (FaultKind.DOWN, ProviderDown, "listing node pools"),
        (FaultKind.REPLY_LOST, ProviderDown, "listing node pools"),
        (FaultKind.WRONG_SHAPE, ProviderDown, "listing node pools"),
    ],
)
def test_a_fault_is_one_of_our_errors_and_says_nothing_about_prices(
    cloud: CoreWeave, kind: FaultKind, error: type[ProviderError], words: str
) -> None:
    cloud.fault(kind)
    with pytest.raises(error, match=words) as caught:
        cloud.source.availability()
    assert TOKEN not in str(caught.value)
    assert len([r for r in cloud.face.requests if r.path.endswith("nodepools")]) == 1, (
        "nobody retries in secret"
    )
    assert cloud.source.quotes()
    assert cloud.hints(), "the next one is whole again"


def test_a_call_too_many_says_when_to_come_back(cloud: CoreWeave) -> None:
    cloud.fault(FaultKind.THROTTLE)
    with pytest.raises(Throttled) as caught:
        cloud.source.availability()
    assert caught.value.retry_after_s == 2.0


def test_a_slow_cluster_ends_in_a_time_out(cloud: CoreWeave) -> None:
    cloud.fault(FaultKind.SLOW, seconds=2.0)
    began_s = time.monotonic()
    with pytest.raises(ProviderDown, match=r"(?i)timed? ?out"):
        cloud.opened_with(timeout_s=0.3).availability()
    assert time.monotonic() - began_s < 1.5


def test_an_api_that_is_no_cks_cluster_is_named(cloud: CoreWeave) -> None:
    source = cloud.opened_with(api_server=f"{cloud.server.url}/elsewhere")
    with pytest.raises(Invalid, match="is this a CKS cluster"):
        source.availability()


def test_a_server_with_another_certificate_gets_no_token(
    cloud: CoreWeave, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Authority(tmp_path_factory.mktemp("other-ca"))
    with pytest.raises(ProviderDown, match=r"(?i)certificate"):
        cloud.opened_with(ca_file=str(other.ca_file)).availability()
    assert cloud.face.requests == []


@pytest.mark.parametrize(
    ("token", "words"), [("", "is not set"), ("a b", "is no token"), ("ü", "is no token")]
)
def test_a_token_that_cannot_be_one_is_refused_and_never_told(
    cloud: CoreWeave, monkeypatch: pytest.MonkeyPatch, token: str, words: str
) -> None:
    monkeypatch.setenv("COREWEAVE_API_TOKEN", token)
    with pytest.raises(Denied, match=f"COREWEAVE_API_TOKEN {words}") as caught:
        cloud.source.availability()
    assert not token or token not in str(caught.value)
