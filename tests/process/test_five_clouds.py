"""One daemon over the five clouds of a lab: what it shows of each, and what `broker doctor` says when one is broken."""

import json
import re
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from lab.broker_config import cloud_sections
from lab.seaweed import SeaweedFS
from tests.process.deployment import Deployment

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("five"),
]

CLOUDS = ("aws", "gcp", "azure", "lambda", "coreweave")


def with_clouds(deployment: Deployment, sections: str) -> None:
    """Put other sections in place of those of the configuration file."""
    text = deployment.config.read_text()
    # A prompt feed is due every two minutes, which are six seconds here.
    sections = re.sub(r'poll_interval = "\w+"', 'poll_interval = "2m"', sections)
    deployment.config.write_text(
        re.sub(r"\[clouds\.aws\].*(?=\[policies\])", sections + "\n", text, flags=re.S)
    )


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory, seaweed: SeaweedFS) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path_factory.mktemp("five") / "deployment", seaweed, rate=20)
    try:
        deployment.start_lab()
        with_clouds(deployment, cloud_sections(deployment.lab.info))
        deployment.start_daemon()
        deployment.login("alan", "operator")
        deployment.login("ada", "engineer")
        deployment.wait_for("all five are read", lambda: all(prices(deployment, cloud) for cloud in CLOUDS))
        yield deployment
    finally:
        deployment.close()


@pytest.fixture
def calm(five: Deployment) -> Iterator[Deployment]:
    yield five
    five.lab.clear()
    five.wait_for("doctor finds nothing", lambda: not failed(five), limit_s=60)


def prices(deployment: Deployment, cloud: str) -> list[dict[str, Any]]:
    return list(deployment.get("/prices", cloud=cloud, limit=10_000)["items"])


def doctor(deployment: Deployment) -> list[dict[str, Any]]:
    answer = deployment.broker("doctor", "--json", person="alan")
    return list(json.loads(answer.out)["items"])


def failed(deployment: Deployment) -> list[dict[str, Any]]:
    return [line for line in doctor(deployment) if line["ok"] is False]


def test_prices_of_five_clouds_with_age_and_source(five: Deployment) -> None:
    for cloud in CLOUDS:
        answer = five.broker("prices", "--cloud", cloud, "--json", person="alan")
        assert answer.code == 0, answer.err
        items = json.loads(answer.out)["items"]
        assert items, cloud
        for item in items:
            assert item["key"].startswith(f"{cloud}/")
            assert item["source"].startswith(f"{cloud}:")
            assert item["price_micro_usd_h"] > 0
            assert 0 <= item["age_s"] < 3600


def test_what_the_lab_charges_is_what_is_shown(five: Deployment) -> None:
    pools = five.lab.state()["pools"]
    for cloud in ("aws", "gcp", "azure", "lambda"):
        shown = {item["key"]: item["price_micro_usd_h"] for item in prices(five, cloud)}
        assert shown
        wrong = {
            key: (price, pools[key]["price_micro_usd_h"])
            for key, price in shown.items()
            if key in pools and price != pools[key]["price_micro_usd_h"]
        }
        assert not wrong
        # Lambda has one price for all its regions, also for those where it lists no capacity.
        assert cloud == "lambda" or shown.keys() <= pools.keys()


def test_nothing_is_rented_where_only_prices_are_read(five: Deployment) -> None:
    job = five.submit("elsewhere", allow=["azure", "lambda", "coreweave"])
    five.wait_for("it was decided", lambda: five.get(f"/jobs/{job}/decisions", limit=1)["items"])
    (decision,) = five.get(f"/jobs/{job}/decisions", limit=1)["items"]
    refused = [alternative["refused"] for alternative in decision["alternatives"]]
    assert any("only the prices of" in why for why in refused), refused
    assert not five.machines(job)
    five.call("POST", f"/jobs/{job}/cancel")


def test_doctor_finds_nothing_wrong_with_five_clouds(five: Deployment) -> None:
    answer = five.broker("doctor", person="alan")
    assert answer.code == 0, answer.out
    for cloud in CLOUDS:
        assert re.search(rf"ok\s+{cloud}\s+prices\s+\d+ prices, ", answer.out), answer.out
    assert re.search(r"ok\s+server\s+public_url\s", answer.out)


@pytest.mark.parametrize(
    ("cloud", "kind", "words"),
    [
        ("aws", "expired", "expired"),
        ("aws", "denied", "not authorized|denied|not allowed"),
        ("gcp", "denied", "Required permission"),
        ("gcp", "down", "connection|reach|answer"),
        ("azure", "throttle", "throttl|too many|429"),
        ("azure", "expired", "expired|credential"),
        ("lambda", "denied", "key|denied|inactive"),
        ("lambda", "wrong_shape", "not the API.s JSON"),
        ("coreweave", "expired", "token|credential|Unauthorized|expired"),
        ("coreweave", "down", "connection|reach|answer"),
    ],
)
def test_doctor_names_the_broken_cloud_and_no_other(
    calm: Deployment, cloud: str, kind: str, words: str
) -> None:
    calm.lab.fault(cloud, "*", kind, count=None)
    found = calm.wait_for("doctor sees it", lambda: failed(calm), limit_s=60)
    assert {line["subject"] for line in found} == {cloud}, found
    assert any(re.search(words, line["detail"], re.I) for line in found), found


def test_a_feed_that_stops_is_late_and_its_quotes_keep_their_age(calm: Deployment) -> None:
    calm.lab.fault("azure", "*", "down", count=None)

    def late() -> str | None:
        lines = [line for line in failed(calm) if line["name"] == "prices"]
        return lines[0]["detail"] if lines else None

    detail = calm.wait_for("the feed is late", late, limit_s=60)
    assert "due every 2m" in detail
    ages = [item["age_s"] for item in prices(calm, "azure")]
    assert min(ages) > 240, "the quotes are still there, and old"


def test_a_vendors_own_address_without_a_network_fails_cleanly(fresh: Deployment) -> None:
    """No account and no address given: the vendor's default end point, which cannot be reached from a test."""
    fresh.rate = 1
    fresh.start_lab()
    with_clouds(fresh, '[clouds.azure]\nregions = ["eastus"]\n')
    text = fresh.config.read_text()
    fresh.config.write_text(re.sub(r"\[clock\]\n.*?\n\n", "", text, flags=re.S))
    # A proxy that nobody serves: nothing leaves this machine, also where there is a network.
    fresh.spawn_daemon(HTTPS_PROXY="http://127.0.0.1:9", HTTP_PROXY="http://127.0.0.1:9")
    fresh.wait_for("it has tried", lambda: _tried(fresh))
    fresh.login("alan", "operator")
    answer = fresh.broker("prices", "--cloud", "azure", person="alan")
    assert answer.code in (0, 7), answer.err
    assert "Traceback" not in answer.out + answer.err
    (line,) = [line for line in failed(fresh) if (line["subject"], line["name"]) == ("azure", "prices")]
    assert "prices.azure.com" in line["detail"]


def _tried(deployment: Deployment) -> bool:
    deployment.ready()
    try:
        return any(not ok for ok, _ in deployment.polls("azure"))
    except sqlite3.OperationalError:  # the database is still being made
        return False
