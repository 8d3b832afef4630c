"""What doctor says of Lambda."""

import pytest

from lab.faults import FaultKind
from tests.contract.lambda_cloud.conftest import Lambda

pytestmark = pytest.mark.process


def test_check_says_what_is_listed(cloud: Lambda) -> None:
    checks = cloud.source.check()
    assert [(check.name, check.ok) for check in checks] == [
        ("lambda: key", True),
        ("lambda: instance types", True),
    ]
    assert "7 types, 6 with capacity now" in checks[1].detail


def test_check_without_a_key_calls_nobody(cloud: Lambda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAMBDA_API_KEY")
    (check,) = cloud.source.check()
    assert (check.name, check.ok) == ("lambda: key", False)
    assert "LAMBDA_API_KEY is not set" in check.detail
    assert cloud.face.requests == []


def test_check_with_a_key_that_is_refused(cloud: Lambda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", "another")
    key, types = cloud.source.check()
    assert (key.ok, types.ok) == (True, False)
    assert "global/invalid-api-key" in types.detail
    assert "another" not in types.detail


def test_check_does_not_call_a_busy_account_broken(cloud: Lambda) -> None:
    list(cloud.source.quotes())
    cloud.clock.advance(90)
    cloud.fault(FaultKind.THROTTLE)
    types = cloud.source.check()[-1]
    assert types.ok is None
    assert "last read 1m30s ago" in types.detail


def test_check_names_a_region_that_nobody_knows(cloud: Lambda) -> None:
    checks = cloud.opened_with(regions=["us-east-1", "us-esat-2"]).check()
    assert (checks[-1].name, checks[-1].ok) == ("lambda: regions", None)
    assert checks[-1].detail.startswith("us-esat-2: not named by the API")
