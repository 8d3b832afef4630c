"""`python -m lab.ctl` on a live control interface, and the configuration that a lab writes for a daemon."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.settings import Settings
from lab import broker_config, ctl
from lab.control import Control
from lab.faces import aws
from lab.machines import CreateRequest
from lab.serving import HttpServer
from lab.sold import coreweave
from lab.world import World
from providers.registry import vendor_endpoints
from tests.clocks import ManualClock

SPOT = "aws/use1-az6/p5.4xlarge/spot"

Ran = tuple[int, str, str]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    return World(clock)


@pytest.fixture
def run(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Run one command line: (exit code, stdout, stderr)."""
    faces = {"aws": aws.create(world, aws.Keys("AKIALAB", "secret"))}
    control = Control(world, "token", faces, lambda machine: f"console of {machine}\n", lambda: None)
    server = HttpServer(control.handle).start()
    (tmp_path / "lab.json").write_text(
        json.dumps({"endpoints": {"control": server.url}, "control_token": "token"})
    )

    def run(*arguments: str) -> Ran:
        code = ctl.main(["--dir", str(tmp_path), *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    yield run
    server.stop()


def machine(world: World, token: str = "bk-" + "a" * 26 + "-0") -> str:
    request = CreateRequest(SPOT, token, token, user_data="#!/bin/sh\n")
    return world.create(request).id


def test_a_price_is_set_or_multiplied(run: Callable[..., Ran], world: World) -> None:
    assert run("price", SPOT, "2.50") == (0, f"{SPOT} costs $2.5000/h\n", "")
    assert run("price", SPOT, "x2") == (0, f"{SPOT} costs $5.0000/h\n", "")
    assert world.price(SPOT) == 5_000_000


def test_prices_are_listed_cheapest_first_by_pattern(run: Callable[..., Ran]) -> None:
    _, out, _ = run("prices", "aws/*/g6.xlarge/spot")
    prices = [float(line.split("$")[1].removesuffix("/h")) for line in out.splitlines()]
    assert len(prices) == 5
    assert prices == sorted(prices)


def test_stock_is_seen_in_the_prices(run: Callable[..., Ran]) -> None:
    assert run("stock", SPOT, "3")[0] == 0
    assert run("prices", SPOT)[1].endswith("/h  3 free\n")
    assert run("stock", SPOT, "unlimited")[0] == 0
    assert run("prices", SPOT)[1].endswith("/h\n")


def test_a_machine_is_named_by_its_offer(run: Callable[..., Ran], world: World, clock: ManualClock) -> None:
    made = machine(world)
    clock.advance(60)
    assert run("console", SPOT) == (0, f"console of {made}\n", "")
    assert run("interrupt", SPOT, "--notice-s", "30")[0] == 0
    assert run("interrupt", "aws/use1-az1/p5.4xlarge/spot") == (
        1,
        "",
        "error: 0 machines live in aws/use1-az1/p5.4xlarge/spot; name one by its id\n",
    )


def test_the_state_and_the_bill_name_each_machine(run: Callable[..., Ran], world: World) -> None:
    made = machine(world)
    assert made in run("state")[1]
    assert made in run("bill")[1]


def test_faults_are_queued_and_cleared(run: Callable[..., Ran], world: World) -> None:
    assert run("fault", "aws", "RunInstances", "reply_lost", "--always")[0] == 0
    assert len(world.faults.pending()) == 1
    assert run("clear")[0] == 0
    assert world.faults.pending() == []


def test_a_price_to_doubt_needs_no_name(run: Callable[..., Ran], world: World) -> None:
    before = world.price(ctl.DOUBTED)
    dearer = f"${before / 1e6 + 1.84:.4f}"
    assert run("doubt") == (0, f"{ctl.DOUBTED} costs {dearer}/h, as with Windows; a daemon doubts that\n", "")


@pytest.mark.parametrize(
    "line",
    ["price aws/nowhere/p5.4xlarge/spot 1", f"price {SPOT} one", f"doubt {SPOT}", "fault aws Nothing down"],
)
def test_a_mistake_is_one_line(run: Callable[..., Ran], line: str) -> None:
    code, out, err = run(*line.split())
    assert (code, out, err.count("\n"), err.startswith("error: ")) == (1, "", 1, True)
    assert "{" not in err


def test_without_a_lab_it_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ctl, "START_TIMEOUT_S", 0.0)
    assert ctl.main(["--dir", str(tmp_path), "state"]) == 1
    assert f"python -m lab --dir {tmp_path}" in capsys.readouterr().err


@pytest.fixture
def info(tmp_path: Path) -> dict[str, Any]:
    url = "https://127.0.0.1:1234"
    (tmp_path / "ca.pem").touch()
    prices = {listing.key: listing.price_micro_usd_h for listing in coreweave.listings()}
    (tmp_path / "prices.yaml").write_text(coreweave.price_file("2026-11-30", prices))
    names = ["s3", "aws_ec2", "aws_pricing", "aws_sts", "aws_service_quotas"]
    names += ["gcp_compute", "gcp_billing", "lambda", "azure", "coreweave"]
    return {
        "rate": 20.0,
        "anchor": "2026-11-30T10:00:00.250Z",
        "endpoints": dict.fromkeys(names, url),
        "ca_file": str(tmp_path / "ca.pem"),
        "azure": dict.fromkeys(("tenant", "subscription", "client"), "a2000000-0000-4000-8000-000000000001"),
        "coreweave": {"zone": coreweave.CLUSTER_ZONE, "price_file": str(tmp_path / "prices.yaml")},
        "gcp": {"project": "broker-lab"},
        "s3": {"access_key": "key", "secret_key": "it's secret", "bucket": "checkpoints"},
        "env": {"AWS_DEFAULT_REGION": "us-east-1"},
    }


def test_the_configuration_is_one_that_the_daemon_takes(info: dict[str, Any], tmp_path: Path) -> None:
    broker_config.write_broker_config(tmp_path, info)
    settings = Settings.load(tmp_path / "broker.toml")
    assert settings.clock.rate == 20
    assert settings.clock.anchor_ms == 1796032800250
    assert settings.state_dir == tmp_path / "state"
    assert settings.policies.dir.joinpath("demo.yaml").exists()
    for cloud, section in settings.open_clouds.items():
        assert vendor_endpoints(cloud, section.options) == []


def test_credentials_are_for_their_owner_and_survive_the_shell(info: dict[str, Any], tmp_path: Path) -> None:
    broker_config.write_broker_config(tmp_path, info)
    file = tmp_path / "broker.env"
    assert file.stat().st_mode & 0o077 == 0
    assert "LAB_S3_SECRET_KEY='it'\"'\"'s secret'" in file.read_text()
