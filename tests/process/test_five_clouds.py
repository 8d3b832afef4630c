"""One daemon over the five clouds of a lab: what it shows of each, and what `broker doctor` says when one is broken."""

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import ctl
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


def shown(deployment: Deployment, offer: str) -> int:
    """Micro-USD an hour of an offer, as the daemon tells it."""
    (price,) = [i["price_micro_usd_h"] for i in prices(deployment, offer.split("/")[0]) if i["key"] == offer]
    return int(price)


def doubted(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """What is in quarantine, by offer, as an operator sees it."""
    answer = deployment.broker("quarantine", "list", "--json", person="alan")
    assert answer.code == 0, answer.err
    return {item["key"]: item for item in json.loads(answer.out)["items"]}


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
    for cloud in CLOUDS:
        shown = {item["key"]: item["price_micro_usd_h"] for item in prices(five, cloud)}
        assert shown
        wrong = {
            key: (price, pools[key]["price_micro_usd_h"])
            for key, price in shown.items()
            if key in pools and price != pools[key]["price_micro_usd_h"]
        }
        assert not wrong
        # These two have one price for all their regions, also for those that have no capacity.
        assert cloud in ("lambda", "coreweave") or shown.keys() <= pools.keys()


@pytest.mark.parametrize(
    "offer",
    [
        "aws/use1-az6/p5.4xlarge/spot",
        "gcp/us-central1-a/a3-highgpu-1g/spot",
        "lambda/us-east-1/gpu_1x_a10/on_demand",
        "coreweave/US-EAST-04A/gd-8xh100ib-i128/on_demand",
    ],
)
def test_a_price_that_is_set_in_the_lab_is_shown(five: Deployment, offer: str) -> None:
    """But Azure's, whose list is believed later: below."""
    before = shown(five, offer)
    five.lab.price(offer, usd=f"{before * 1.1 / 1e6:.2f}")  # whole cents, for Lambda
    set_to = five.lab.state()["pools"][offer]["price_micro_usd_h"]
    assert set_to > before
    five.wait_for("it is shown", lambda: shown(five, offer) == set_to, limit_s=60)


def test_a_doubt_of_the_labs_waits_for_an_operator_and_is_gone_when_confirmed(five: Deployment) -> None:
    before = shown(five, ctl.DOUBTED)
    assert ctl.main(["--dir", str(five.folder / "lab"), "doubt"]) == 0
    entry = five.wait_for("it is in quarantine", lambda: doubted(five).get(ctl.DOUBTED), limit_s=60)
    assert "Windows licence costs" in entry["reason"]
    seen = entry["times_seen"]
    five.wait_for("it is read again", lambda: doubted(five)[ctl.DOUBTED]["times_seen"] > seen + 2, limit_s=60)
    assert shown(five, ctl.DOUBTED) == before, "repetition proves nothing"
    assert five.broker("quarantine", "confirm", ctl.DOUBTED, person="ada").code != 0, "no operator"
    answer = five.broker("quarantine", "confirm", ctl.DOUBTED, person="alan")
    assert answer.code == 0, answer.err
    price = five.lab.state()["pools"][ctl.DOUBTED]["price_micro_usd_h"]
    assert shown(five, ctl.DOUBTED) == price > before
    read = len(five.polls("azure"))
    five.wait_for("two more polls", lambda: len(five.polls("azure")) > read + 1, limit_s=60)
    assert ctl.DOUBTED not in doubted(five)
    assert shown(five, ctl.DOUBTED) == price


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
        ("gcp", "expired", "invalid authentication|credential"),
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


def test_feeds_that_stop_are_late_and_their_quotes_keep_their_age(calm: Deployment) -> None:
    price_list = Path(calm.lab.info["coreweave"]["price_file"])
    text = price_list.read_text()
    price_list.unlink()
    for cloud in CLOUDS:
        calm.lab.fault(cloud, "*", "down", count=None)

    def late() -> dict[str, str] | None:
        lines = {line["subject"]: line["detail"] for line in failed(calm) if line["name"] == "prices"}
        return lines if lines.keys() == set(CLOUDS) else None

    try:
        for cloud, detail in calm.wait_for("every feed is late", late, limit_s=90).items():
            assert "due every 2m" in detail, (cloud, detail)
            ages = [item["age_s"] for item in prices(calm, cloud)]
            assert min(ages) > 240, f"the quotes of {cloud} are still there, and old"
    finally:
        price_list.write_text(text)


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
