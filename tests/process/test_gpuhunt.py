"""gpuhunt, which others wrote, reads the same market through the vendors' own names: our offers are its offers, or the
difference has a reason that is written down.

Its own collectors run in its own virtual environment. A proxy leads the vendors' names to the lab's faces and refuses
every other, one proxy for each cloud. The clock of the market stands still, a little ahead of the machine's, because
gpuhunt asks EC2 for spot prices from its own now on.
"""

import os
import subprocess
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from broker.core.availability import Signal
from broker.core.gpu import GPUS
from broker.core.offer import Offer
from broker.core.ports import PriceSource
from lab.catalog import Scenario
from lab.faces import Handler, aws, azure, gcp, lambda_cloud
from lab.faces.azure_tokens import Account
from lab.proxy import VENDOR_HOSTS, Proxy
from lab.serving import HttpServer
from lab.tls import Authority, ServiceAccount
from lab.world import World
from providers.registry import open_source
from tests.clocks import ManualClock
from tests.process.gpuhunt.compare import Comparison, Item, Price, compare, facts, ours, theirs
from tests.process.gpuhunt.reasons import reasons
from tests.process.lab_and_daemon import ROOT

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(800),
    pytest.mark.xdist_group("gpuhunt"),
]

VERSION = "0.1.34"
TOOLS = ROOT / "build" / "gpuhunt"
COLLECT = ROOT / "tests" / "process" / "gpuhunt" / "collect.py"
PAGE = ROOT / "docs" / "internals" / "gpuhunt.md"
AHEAD_MS = 600_000
PROJECT, KEY = "lab-project", "secret_lab_key"
KEYS = aws.Keys("AKIALABLABLABLABLAB1", "lab-secret")
ACCOUNT = Account(
    "a2000000-0000-4000-8000-000000000001",
    "a2000000-0000-4000-8000-000000000002",
    "a2000000-0000-4000-8000-000000000003",
    "lab-client-secret",
)
# What each collector must have asked; the others of `VENDOR_HOSTS` are there and need not be.
ASKED = {
    "aws": {"pricing.us-east-1.amazonaws.com", "ec2.us-east-1.amazonaws.com", "ec2.us-west-2.amazonaws.com"},
    "azure": {"prices.azure.com", "management.azure.com", "login.microsoftonline.com"},
    "gcp": {"compute.googleapis.com", "cloudbilling.googleapis.com"},
    "lambda": {"cloud.lambdalabs.com"},
}
CLOUDS = tuple(ASKED)


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of a virtual environment with gpuhunt: it wants other versions of the vendors' SDKs."""
    program = TOOLS / "bin" / "python"
    if not list(TOOLS.glob(f"lib/python*/site-packages/gpuhunt-{VERSION}.dist-info")):
        venv.create(TOOLS, with_pip=True, clear=True)
        install = [program, "-m", "pip", "install", "--quiet", f"gpuhunt[aws,azure,gcp]=={VERSION}"]
        try:
            subprocess.run(install, check=True, capture_output=True, text=True, timeout=500)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"pip cannot install gpuhunt here: {error.stderr.strip().rpartition(chr(10))[2]}")
        except subprocess.TimeoutExpired:
            pytest.skip("pip cannot install gpuhunt here in time")
    return program


@dataclass
class Side:
    """One cloud of the market.

    Attributes:
        source: Ours, over the face.
        variables: What gpuhunt needs in its environment to sign in.
    """

    name: str
    source: PriceSource
    proxy: Proxy
    variables: dict[str, str]


@dataclass
class Market:
    """Four faces over one world that stands still."""

    world: World
    clock: ManualClock
    authority: Authority
    folder: Path
    sides: dict[str, Side]

    def collected(self, python: Path, cloud: str) -> tuple[list[Item], str]:
        """What gpuhunt lists and what it printed; it is run once."""
        output, log = self.folder / f"{cloud}.csv", self.folder / f"{cloud}.log"
        if not output.exists():
            side = self.sides[cloud]
            ca_file = str(self.authority.ca_file)
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder),
                "HTTPS_PROXY": side.proxy.url,
                "HTTP_PROXY": side.proxy.url,
                "REQUESTS_CA_BUNDLE": ca_file,
                "AWS_CA_BUNDLE": ca_file,
                "SSL_CERT_FILE": ca_file,
                **side.variables,
            }
            name = {"lambda": "lambdalabs"}.get(cloud, cloud)
            done = subprocess.run(
                [python, COLLECT, name, "--output", output],
                env=environment,
                capture_output=True,
                text=True,
                timeout=240,
            )
            log.write_text(done.stdout + done.stderr)
            assert done.returncode == 0, log.read_text()[-4000:]
        return theirs(output), log.read_text()


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    folder = tmp_path_factory.mktemp("market")
    clock = ManualClock(int(time.time() * 1000) + AHEAD_MS)
    authority = Authority(folder)
    world = World(clock, Scenario.of({}))
    account = ServiceAccount.generated(PROJECT)
    faces: dict[str, Handler] = {
        "aws": aws.create(world, KEYS),
        "azure": azure.create(world, ACCOUNT),
        "gcp": gcp.create(world, PROJECT, account.email, account.public_key_pem),
        # gpuhunt makes two calls at once; the lab's limit of one a second is stricter than Lambda can be.
        "lambda": lambda_cloud.create(world, KEY, limit_s=0),
    }
    servers = {
        cloud: HttpServer(face, authority.server_context(*VENDOR_HOSTS[cloud])).start()
        for cloud, face in faces.items()
    }
    proxies = {
        cloud: Proxy(dict.fromkeys(VENDOR_HOSTS[cloud], server.port)).start()
        for cloud, server in servers.items()
    }
    account.write(folder / "theirs.json", "https://oauth2.googleapis.com/token")
    account.write(folder / "ours.json", f"{servers['gcp'].url}/token")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", KEYS.access_key)
        environment.setenv("AWS_SECRET_ACCESS_KEY", KEYS.secret_key)
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        environment.setenv("AZURE_CLIENT_SECRET", ACCOUNT.client_secret)
        environment.setenv("LAMBDA_API_KEY", KEY)
        sides = {
            cloud: Side(
                cloud,
                open_source(cloud, options(cloud, servers[cloud].url, folder), clock, "broker-lab1"),
                proxies[cloud],
                variables(cloud, folder),
            )
            for cloud in CLOUDS
        }
        yield Market(world, clock, authority, folder, sides)
    for server in (*proxies.values(), *servers.values()):
        server.stop()


def options(cloud: str, url: str, folder: Path) -> dict[str, Any]:
    """Ours, as somebody writes them who wants everything that is sold."""
    of_cloud: dict[str, dict[str, Any]] = {
        "aws": {
            "regions": ["us-east-1", "us-west-2"],
            "image_id": "ami-0123456789abcdef0",
            "endpoint_ec2": url,
            "endpoint_pricing": url,
            "endpoint_sts": url,
            "endpoint_service_quotas": url,
        },
        "azure": {
            "regions": ["eastus", "westus3"],
            "subscription_id": ACCOUNT.subscription,
            "tenant_id": ACCOUNT.tenant,
            "client_id": ACCOUNT.client_id,
            "endpoint_retail": url,
            "endpoint_arm": url,
            "endpoint_login": url,
        },
        "gcp": {
            "project": PROJECT,
            "regions": ["us-central1", "us-east4"],
            "image": f"projects/{PROJECT}/global/images/family/gpu",
            "credentials_file": str(folder / "ours.json"),
            "endpoint_compute": url,
            "endpoint_billing": url,
        },
        "lambda": {"endpoint": f"{url}/api/v1"},
    }
    return {**of_cloud[cloud], "ca_file": str(folder / "ca.pem")}


def variables(cloud: str, folder: Path) -> dict[str, str]:
    """gpuhunt's, by its own documentation and the SDKs'."""
    of_cloud = {
        "aws": {
            "AWS_ACCESS_KEY_ID": KEYS.access_key,
            "AWS_SECRET_ACCESS_KEY": KEYS.secret_key,
            "AWS_EC2_METADATA_DISABLED": "true",
        },
        "azure": {
            "AZURE_SUBSCRIPTION_ID": ACCOUNT.subscription,
            "AZURE_TENANT_ID": ACCOUNT.tenant,
            "AZURE_CLIENT_ID": ACCOUNT.client_id,
            "AZURE_CLIENT_SECRET": ACCOUNT.client_secret,
        },
        "gcp": {"GOOGLE_APPLICATION_CREDENTIALS": str(folder / "theirs.json"), "GCP_PROJECT_ID": PROJECT},
        "lambda": {"LAMBDALABS_TOKEN": KEY},
    }
    return of_cloud[cloud]


def compared(
    market: Market, python: Path, cloud: str, change: Callable[[list[Item]], None] | None = None
) -> Comparison:
    """Ours beside gpuhunt's; `change` spoils the latter first."""
    items, log = market.collected(python, cloud)
    if change is not None:
        change(items)
    mine = ours(market.sides[cloud].source.quotes())
    found = reasons(cloud, market.world, mine, log)
    return compare(
        mine, items, ours_only=found.ours_only, theirs_only=found.theirs_only, fact_rules=found.facts
    )


def table(heading: str) -> list[dict[str, str]]:
    """Rows of the table below a heading of the page."""
    below = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in below.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def number(cell: str) -> int:
    return int(cell or 0)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_offer_is_gpuhunts_or_has_a_reason_on_the_page(
    market: Market, python: Path, cloud: str
) -> None:
    found = compared(market, python, cloud)
    assert found.unexplained == []
    names = dict.fromkeys((*found.ours, *found.theirs))
    counted = {name: (len(found.ours.get(name, ())), len(found.theirs.get(name, ()))) for name in names}
    written = {
        row["difference"]: (number(row["here only"]), number(row["gpuhunt only"]))
        for row in table("Offers that differ")
        if row["cloud"] == cloud
    }
    assert counted == written
    assert all(any(counts) for counts in counted.values()), "a reason for nothing"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_page_says_how_many_offers_there_are_and_how_many_agree(
    market: Market, python: Path, cloud: str
) -> None:
    items, _ = market.collected(python, cloud)
    quotes = list(market.sides[cloud].source.quotes())
    found = compared(market, python, cloud)
    assert len({item.price for item in items}) == len(items), "no row twice"
    mine = ours(quotes)
    (row,) = [row for row in table("Totals") if row["cloud"] == cloud]
    assert (len(quotes), len(items)) == (number(row["offers here"]), number(row["gpuhunt's rows"]))
    agreed = sum(len(mine[price]) for price in found.agreed)
    assert (agreed, len(found.agreed)) == (
        number(row["of ours at its price"]),
        number(row["of its rows at ours"]),
    )
    assert agreed > 0


@pytest.mark.parametrize("cloud", CLOUDS)
def test_what_it_says_of_the_machines_is_what_we_say_or_has_a_reason(
    market: Market, python: Path, cloud: str
) -> None:
    found = compared(market, python, cloud)
    counted = {name: len(prices) for name, prices in found.facts.items()}
    items, _ = market.collected(python, cloud)
    counted |= told_by_one_side(market, cloud, items, found.agreed)
    written = {
        row["difference"]: number(row["rows"]) for row in table("Facts that differ") if row["cloud"] == cloud
    }
    assert counted == written
    assert all(counted.values()), "a reason for nothing"


def told_by_one_side(market: Market, cloud: str, items: list[Item], agreed: set[Price]) -> dict[str, int]:
    """Agreed rows where one side says more than the other."""
    source = market.sides[cloud].source
    mine = ours(source.quotes())
    offers: dict[Price, Offer] = {price: mine[price][0] for price in agreed}
    empty = {
        hint.offer_key for hint in source.availability() if hint.signal is Signal.LISTED and hint.high == 0
    }
    counts = {
        "form of the GPU": sum(not is_the_only_one(offer) for offer in offers.values()),
        "capacity": sum(offer.key in empty for offer in offers.values()),
        "architecture of the CPU": sum(item.arch == "arm" for item in items if item.price in agreed),
    }
    return {name: count for name, count in counts.items() if count}


def is_the_only_one(offer: Offer) -> bool:
    """Whether gpuhunt's name and memory leave no other GPU of those that we know."""
    alike = {sku for sku in GPUS if facts(replace(offer, gpu=sku)) == facts(offer)}
    return alike == {offer.gpu}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_it_asks_the_vendors_own_names_and_nothing_leaves_the_machine(
    market: Market, python: Path, cloud: str
) -> None:
    market.collected(python, cloud)
    assert set(market.sides[cloud].proxy.opened) >= ASKED[cloud]
    assert market.sides[cloud].proxy.refused == []


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_price_or_a_fact_without_a_reason_is_found(market: Market, python: Path, cloud: str) -> None:
    def dearer(items: list[Item]) -> None:
        agreed = min(compared(market, python, cloud).agreed)
        (at,) = [number for number, item in enumerate(items) if item.price == agreed]
        price = replace(agreed, micro_usd_h=agreed.micro_usd_h + 1)
        items[at] = replace(items[at], price=price)

    def smaller(items: list[Item]) -> None:
        items[:] = [replace(item, facts=replace(item.facts, vcpus=item.facts.vcpus - 1)) for item in items]

    def shorter(items: list[Item]) -> None:
        gone = max(compared(market, python, cloud).agreed)
        items[:] = [item for item in items if item.price != gone]

    for change in (dearer, smaller, shorter):
        assert compared(market, python, cloud, change).unexplained, change.__name__
