"""What doctor says of Azure."""

import pytest

from lab.faults import FaultKind
from tests.contract.azure.conftest import CLIENT, RETAIL, Azure

pytestmark = pytest.mark.process


def test_check_has_a_line_for_each_thing(cloud: Azure) -> None:
    lines = {check.name.removeprefix("azure: "): check for check in cloud.source.check()}
    assert {check.ok for check in lines.values()} == {True}
    assert {name.partition(" in ")[0] for name in lines if name.startswith("quota")} == {
        "quota lowPriorityCores",
        "quota Standard NCASv3_T4 Family",
        "quota StandardNVADSA10v5Family",
        "quota StandardNCADSA100v4Family",
        "quota StandardNCadsH100v5Family",
        "quota standardNDSH100v5Family",
        "quota standardNDISRGB200V6NDRFamily",
        "quota standardNDISRH200V5Family",
    }
    assert lines["quota lowPriorityCores in westus3"].detail == "0 of 480 vCPUs used"
    assert lines["token"].detail == f"application {CLIENT}"
    assert lines["sizes of eastus"].detail == (
        "7 GPU sizes; not for this subscription: Standard_ND96isr_H100_v5 (NotAvailableForSubscription)"
    )
    assert lines["Resource Graph"].detail == "10 eviction rates"
    assert lines["prices of eastus"].detail == (
        "12 prices of GPU sizes, 5 of them spot; the newest took effect 3d ago"
    )


@pytest.mark.parametrize(
    ("operation", "lines"),
    [
        (RETAIL, ["prices of eastus", "prices of westus3"]),
        ("ResourceSkus_List", ["sizes of eastus", "sizes of westus3"]),
        ("Usage_List", ["quotas of eastus", "quotas of westus3"]),
        ("Resources", ["Resource Graph"]),
    ],
)
def test_a_right_that_is_missing_fails_its_own_line(cloud: Azure, operation: str, lines: list[str]) -> None:
    cloud.fault(FaultKind.DENIED, operation, count=None)
    failed = [check.name for check in cloud.source.check() if check.ok is False]
    assert failed == [f"azure: {line}" for line in lines]


def test_check_without_an_account_says_so(cloud: Azure) -> None:
    *prices, account = cloud.without_account().check()
    assert [check.ok for check in prices] == [True, True]
    assert (account.name, account.ok) == ("azure: account", None)


def test_check_never_raises(cloud: Azure) -> None:
    cloud.fault(FaultKind.DOWN, "*", count=None)
    assert {check.ok for check in cloud.source.check()} == {False}
