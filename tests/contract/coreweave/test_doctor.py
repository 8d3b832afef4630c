"""What doctor says of CoreWeave."""

import pytest

from broker.core.time import to_iso
from lab.faults import FaultKind
from lab.sold.coreweave import CLUSTER_ZONE
from tests.contract.coreweave.conftest import CoreWeave

pytestmark = pytest.mark.process


def test_check_lists_the_age_of_the_list_reach_and_right(cloud: CoreWeave) -> None:
    checks = cloud.source.check()
    assert [(check.name, check.ok) for check in checks] == [
        ("coreweave: price list", True),
        ("coreweave: cluster", True),
        ("coreweave: node pools", True),
    ]
    assert f"of {to_iso(cloud.clock.now_ms())[:10]}, " in checks[0].detail
    assert checks[1].detail == f"v1.37.0 at {cloud.server.url}"
    assert f"in {CLUSTER_ZONE}" in checks[2].detail


def test_check_tells_a_missing_right_before_the_list_fails(cloud: CoreWeave) -> None:
    cloud.fault(FaultKind.DENIED, "selfsubjectaccessreviews.create")
    last = cloud.source.check()[-1]
    assert (last.name, last.ok) == ("coreweave: node pools", False)
    assert "may not list nodepools.compute.coreweave.com" in last.detail


def test_check_with_a_token_that_is_refused(cloud: CoreWeave, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COREWEAVE_API_TOKEN", "another")
    last = cloud.source.check()[-1]
    assert (last.name, last.ok) == ("coreweave: cluster", False)
    assert "the token of COREWEAVE_API_TOKEN is refused (wrong or expired)" in last.detail
    assert "`kubectl create token gpu-broker --namespace gpu-broker" in last.detail
    assert "{" not in last.detail, "no document of Kubernetes"
