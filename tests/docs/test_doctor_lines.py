"""Lines of `broker doctor` on the pages are those that it prints: marks, names, and what can be said without an account."""

import re
from collections.abc import Mapping
from typing import NoReturn

import pytest

from broker.cli.doctor import _MARK
from broker.core.errors import ProviderDown
from broker.core.ports import Check
from providers.azure import checks as azure
from providers.azure.clients import Clients
from providers.azure.settings import parse
from providers.coreweave.source import open_provider
from tests.clocks import ManualClock
from tests.docs.pages import ROOT

PAGES = ("azure", "coreweave", "lambda")


def page(cloud: str) -> str:
    """With runs of blanks as one."""
    text = (ROOT / "docs" / "how-to" / f"connect-{cloud}.md").read_text()
    return re.sub(r" +", " ", text)


def printed(cloud: str, check: Check) -> str:
    """As `doctor` has it in its columns."""
    return f"{_MARK[check.ok]} {cloud} {check.name} {check.detail}"


@pytest.mark.parametrize("cloud", PAGES)
def test_a_line_begins_with_a_mark_of_doctors(cloud: str) -> None:
    lines = re.findall(rf"^(.*) {cloud} {cloud}: ", page(cloud), re.MULTILINE)
    assert lines
    assert set(lines) <= set(_MARK.values())


def test_azure_without_an_account() -> None:
    def nobody(region: str, told: Mapping[str, object]) -> NoReturn:
        raise ProviderDown("azure: no network here")

    options = parse({"regions": ["eastus"]})
    account = azure.checks(options, Clients(options), nobody, 0)[-1]
    assert account.ok is None
    assert printed("azure", account) in page("azure")


def test_coreweave_without_a_cluster() -> None:
    last = open_provider({}, ManualClock(), "bi-x").check()[-1]
    assert last.ok is None
    assert printed("coreweave", last) in page("coreweave")
