"""Lambda's words into ours: types, GPUs, errors; the pace of calls; a key that is never told."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import Denied, Invalid, ProviderDown, ProviderError, SettingsError, Throttled
from broker.core.offer import RawQuote
from broker.core.time import DAY_S, MS
from broker.market.quarantine import sift
from lab.faces import Reply, Request
from lab.serving import HttpServer
from providers.lambda_cloud.client import Pace
from providers.lambda_cloud.errors import document_of, retry_after_s
from providers.lambda_cloud.prices import offers, read_types, sku_of
from providers.lambda_cloud.regions import MOST_NEW, REGIONS, Regions
from providers.lambda_cloud.settings import parse, vendor_endpoints
from providers.lambda_cloud.source import LambdaPrices
from tests.clocks import ManualClock

DAY = DAY_S * MS


def row(name: str = "gpu_1x_a10", **changes: Any) -> dict[str, Any]:
    """One entry of the list, as the API of 2026 sends it; later ones have more members."""
    kind = {
        "name": name,
        "description": "1x A10 (24 GB PCIe)",
        "gpu_description": "A10 (24 GB PCIe)",
        "price_cents_per_hour": 129,
        "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 1434, "gpus": 1},
        "architecture": "x86_64",
    }
    regions = [{"name": "us-east-1", "description": "Virginia, USA"}]
    return {"instance_type": kind | changes, "regions_with_capacity_available": regions}


# GPUs


@pytest.mark.parametrize(
    ("text", "name", "sku"),
    [
        ("H100 (80 GB SXM5)", "gpu_8x_h100_sxm5", "H100-SXM5-80GB"),
        ("H100 (80 GB SXM5)", "gpu_8x_h100_sxm5gdr", "H100-SXM5-80GB"),
        ("H100 (80 GB PCIe)", "gpu_1x_h100_pcie", "H100-PCIe-80GB"),
        ("A100 (40 GB SXM4)", "gpu_8x_a100", "A100-SXM4-40GB"),
        ("A100 (40 GB PCIe)", "gpu_1x_a100", "A100-PCIe-40GB"),
        ("A100 (80 GB SXM4)", "gpu_8x_a100_80gb_sxm4", "A100-SXM4-80GB"),
        ("A10 (24 GB PCIe)", "gpu_1x_a10", "A10-24GB"),
        ("GH200 (96 GB)", "gpu_1x_gh200", "GH200-96GB"),
        ("B200 (180 GB SXM6)", "gpu_8x_b200_sxm6", "B200-SXM-180GB"),
        ("H100 (80 GB)", "gpu_1x_h100_pcie", "H100-PCIe-80GB"),
        ("Tesla V100 (16 GB)", "gpu_8x_v100_sxm2", "V100-SXM2-16GB"),
    ],
)
def test_a_gpu_is_known_by_its_exact_sku(text: str, name: str, sku: str) -> None:
    assert sku_of(text, name) == sku


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "Tesla V100 (16 GB)",
            "gpu_8x_v100",
        ),  # SXM2 has NVLink and PCIe has not, and nothing says which it is
        ("H100 (80 GB)", "gpu_1x_h100"),
        ("H100 (80 GB PCIe)", "gpu_1x_h100_sxm5"),
        ("H100 (96 GB SXM5)", "gpu_1x_h100_sxm5"),
        ("A6000 (48 GB)", "gpu_1x_a6000"),
        ("RTX 6000 (24 GB)", "gpu_1x_rtx6000"),
        ("R100 (384 GB)", "gpu_1x_r100"),
        ("", "gpu_1x_a10"),
    ],
)
def test_what_is_not_certain_keeps_its_own_words_and_is_doubted_by_the_market(text: str, name: str) -> None:
    assert sku_of(text, name) == text
    kinds = read_types({name: row(name, gpu_description=text)})
    raws = [
        RawQuote(offer, kind.price_text, "USD", None, "x") for offer, kind in offers(kinds, ["us-east-1"])
    ]
    sifted = sift(raws, 1_800_000_000_000, {}, {})
    assert sifted.quotes == ()
    assert [doubt.reason for doubt in sifted.doubts.values()] == [f"unknown GPU {text!r}"]


# The list


def test_sixteen_gpus_are_sixteen() -> None:
    specs = {"vcpus": 416, "memory_gib": 3600, "storage_gib": 45056, "gpus": 16}
    (kind,) = read_types(
        {"gpu_16x_h100_sxm5": row("gpu_16x_h100_sxm5", gpu_description="H100 (80 GB SXM5)", specs=specs)}
    )
    assert (kind.gpus, kind.vcpus) == (16, 416)


def test_types_without_a_gpu_are_left_out() -> None:
    specs = {"vcpus": 4, "memory_gib": 16, "storage_gib": 102, "gpus": 0}
    cpu = row("cpu_4x_general", gpu_description="N/A", specs=specs, price_cents_per_hour=20)
    assert [kind.name for kind in read_types({"cpu_4x_general": cpu, "gpu_1x_a10": row()})] == ["gpu_1x_a10"]


@pytest.mark.parametrize(
    ("cents", "text"), [(129, "1.29"), (3192, "31.92"), (5, "0.05"), (100000, "1000.00")]
)
def test_cents_become_dollars_without_a_float(cents: int, text: str) -> None:
    (kind,) = read_types({"x": row(price_cents_per_hour=cents)})
    assert kind.price_text == text


def test_a_price_of_zero_is_the_markets_to_doubt() -> None:
    (kind,) = read_types({"x": row(price_cents_per_hour=0)})
    assert kind.price_text == "0.00"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "no map of types"),
        ({"gpu_1x_a10": None}, "gpu_1x_a10: instance_type is None"),
        ({"gpu_1x_a10": row(price_cents_per_hour="129")}, "price_cents_per_hour is '129'"),
        ({"gpu_1x_a10": row(price_cents_per_hour=1.29)}, r"price_cents_per_hour is 1\.29"),
        ({"gpu_1x_a10": row(price_cents_per_hour=True)}, "price_cents_per_hour is True"),
        ({"gpu_1x_a10": row(specs={"vcpus": 1, "memory_gib": 1})}, "gpus is None"),
        ({"gpu_1x_a10": row(name="a/b")}, "'a/b' is no name"),
        ({"a": row(), "b": {"instance_type": {}}}, "b: specs is None"),
    ],
)
def test_a_row_that_cannot_be_read_fails_the_whole_poll_and_is_named(data: Any, words: str) -> None:
    with pytest.raises(ProviderDown, match=words):
        read_types(data)


# Errors


def told(status: int, code: str, **headers: str) -> ProviderError:
    body = {"error": {"code": code, "message": "Why.", "suggestion": "What to do."}}
    with pytest.raises(ProviderError) as caught:
        document_of(status, headers, json.dumps(body).encode(), "asking")
    return caught.value


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "global/invalid-api-key", Denied),
        (403, "global/account-inactive", Denied),
        (400, "global/invalid-address", Denied),
        (403, "global/something-new", Denied),
        (500, "global/internal-error", ProviderDown),
        (400, "provider/internal-unavailable", ProviderDown),
        (503, "", ProviderDown),
        (408, "", ProviderDown),
        (429, "global/whatever", Throttled),
        (404, "global/object-does-not-exist", Invalid),
    ],
)
def test_the_code_decides_and_then_the_status(status: int, code: str, kind: type[ProviderError]) -> None:
    error = told(status, code)
    assert type(error) is kind
    assert str(error) == f"lambda: asking: HTTP {status} {code}: Why. What to do."


def test_a_host_that_has_moved_is_named_and_not_followed() -> None:
    error = told(301, "", location="https://elsewhere.example/api/v1")
    assert isinstance(error, Invalid)
    assert "https://elsewhere.example/api/v1; set endpoint" in str(error)


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("7", "", 7.0),
        ("0.5", "", 0.5),
        ("-3", "", 0.0),
        ("", "", None),
        ("soon", "", None),
        ("nan", "", None),
        ("inf", "", None),
        ("Mon, 30 Nov 2026 10:00:30 GMT", "Mon, 30 Nov 2026 10:00:00 GMT", 30.0),
        ("Mon, 30 Nov 2026 10:00:30 GMT", "", None),
        ("Mon, 30 Nov 2026 10:00:30 GMT", "Mon, 30 Nov 2026 10:00:00", None),
    ],
)
def test_how_long_to_wait(value: str, date: str, seconds: float | None) -> None:
    headers = {"retry-after": value} | ({"date": date} if date else {})
    assert retry_after_s(headers) == seconds


# The wire


Asked = Callable[[Callable[[Request], Reply]], LambdaPrices]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """A source of prices against a server that answers as a test says."""
    monkeypatch.setenv("LAMBDA_API_KEY", "key")
    servers: list[HttpServer] = []

    def serve(handler: Callable[[Request], Reply]) -> LambdaPrices:
        servers.append(HttpServer(handler).start())
        return LambdaPrices(parse({"endpoint": f"{servers[-1].url}/api/v1/"}), ManualClock(), Pace(0))

    yield serve
    for server in servers:
        server.stop()


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(200, b"<html>", {"Content-Type": "text/html"}), "text/html: '<html>'"),
        (Reply(200, b'{"data": {"gpu_1x', {"Content-Type": "application/json"}), "not the API's JSON"),
        (Reply(200, b"[" * 200_000), "not the API's JSON"),
        (Reply(200, b'{"result": {}}'), "not the API's JSON"),
        (Reply(200, b""), "not the API's JSON"),
        (Reply(200, b'{"data": {}}'), "it has no type with a GPU"),
        (Reply(502, b"<html>bad gateway"), "HTTP 502"),
        (Reply(200, b" " * (17 << 20)), "larger than 16 MiB"),
        (Reply(200, b"x", {"Content-Encoding": "gzip"}), "reading instance types"),
    ],
)
def test_what_is_no_answer_is_a_cloud_that_is_down(served: Asked, reply: Reply, words: str) -> None:
    with pytest.raises(ProviderDown, match=words):
        list(served(lambda _: reply).quotes())


def test_a_list_that_became_empty_is_a_failed_poll_and_takes_no_hint_away(served: Asked) -> None:
    specs = {"vcpus": 4, "memory_gib": 16, "storage_gib": 102, "gpus": 0}
    lists = [{"gpu_1x_a10": row()}, {"cpu_4x_general": row("cpu_4x_general", specs=specs)}]
    source = served(lambda _: Reply.of_json({"data": lists.pop(0)}))
    assert list(source.quotes())
    with pytest.raises(ProviderDown, match="it has no type with a GPU"):
        list(source.quotes())
    assert {hint.low for hint in source.availability()} == {0.0, 1.0}


def test_a_redirect_is_not_followed_with_the_key(served: Asked) -> None:
    asked: list[str] = []

    def moved(request: Request) -> Reply:
        asked.append(request.path)
        return Reply(301, b"", {"Location": "/elsewhere"})

    with pytest.raises(Invalid, match="/elsewhere"):
        list(served(moved).quotes())
    assert asked == ["/api/v1/instance-types"]


def test_a_region_that_the_document_does_not_know_is_learnt_and_kept(served: Asked) -> None:
    rows = [{"name": "eu-north-9", "description": "Sweden"}]

    def answer(_: Request) -> Reply:
        entry = row() | {"regions_with_capacity_available": list(rows)}
        return Reply.of_json({"data": {"gpu_1x_a10": entry}})

    source = served(answer)
    key = "lambda/eu-north-9/gpu_1x_a10/on_demand"
    assert key in {quote.offer.key for quote in source.quotes()}
    assert {hint.offer_key: hint.low for hint in source.availability()}[key] == 1.0
    rows.clear()
    assert key in {quote.offer.key for quote in source.quotes()}
    assert {hint.offer_key: hint.low for hint in source.availability()}[key] == 0.0


@pytest.mark.parametrize("key", ["a b", "a\x7fb", "schlüssel", "a\nb"])
def test_a_key_that_cannot_be_one_is_refused_and_never_told(
    served: Asked, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    source = served(lambda _: Reply(500))
    monkeypatch.setenv("LAMBDA_API_KEY", key)
    with pytest.raises(Denied, match="LAMBDA_API_KEY is no API key") as caught:
        list(source.quotes())
    assert key not in str(caught.value)


def test_a_newline_behind_the_key_does_no_harm(served: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    def answer(request: Request) -> Reply:
        given.append(request.headers["authorization"])
        return Reply.of_json({"data": {"gpu_1x_a10": row()}})

    source = served(answer)
    monkeypatch.setenv("LAMBDA_API_KEY", "abc\n")
    assert list(source.quotes())
    assert given == ["Bearer abc"]


def test_a_ca_file_that_became_a_pipe_is_told_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", "key")
    file = tmp_path / "ca.pem"
    file.write_text("")
    source = LambdaPrices(
        parse({"endpoint": "https://127.0.0.1:1", "ca_file": str(file)}), ManualClock(), Pace(0)
    )
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(Invalid, match=r"ca\.pem: it is a pipe"):
        list(source.quotes())


# Pace


class Second:
    """Real time that a test decides."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def test_a_call_waits_for_a_second_from_the_end_of_the_one_before() -> None:
    time = Second()
    pace = Pace(1.0, lambda: time.now_s, time.sleep)
    with pace.turn():
        time.now_s += 4.0
    time.now_s += 0.25
    with pace.turn():
        assert time.slept == [0.75]
        time.now_s += 0.5
    with pace.turn():
        assert time.slept == [0.75, 1.0]
    time.now_s += 1.5
    with pace.turn():
        assert time.slept == [0.75, 1.0]


def test_a_call_that_failed_counts() -> None:
    time = Second()
    pace = Pace(1.0, lambda: time.now_s, time.sleep)
    with pytest.raises(ZeroDivisionError), pace.turn():
        raise ZeroDivisionError
    with pace.turn():
        assert time.slept == [1.0]


# Settings


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("http://cloud.lambda.ai/api/v1", "must be https"),
        ("cloud.lambda.ai", "is no URL"),
        ("https://[::1/api", "is no URL"),
        ("ftp://127.0.0.1/", "is no URL"),
    ],
)
def test_an_endpoint_that_would_give_the_key_away_is_refused(endpoint: str, words: str) -> None:
    with pytest.raises(SettingsError, match=rf"clouds\.lambda\.endpoint: .*{words}"):
        parse({"endpoint": endpoint})


def test_whose_endpoint_it_is() -> None:
    assert vendor_endpoints({}) == ["https://cloud.lambda.ai/api/v1"]
    assert vendor_endpoints({"endpoint": "https://cloud.lambdalabs.com/api/v1"})
    assert vendor_endpoints({"endpoint": "https://cloud.lambda.ai.example.org/api/v1"}) == []
    assert vendor_endpoints({"endpoint": "https://127.0.0.1:8443/api/v1"}) == []


def test_a_region_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"clouds\.lambda\.regions\[0\]"):
        parse({"regions": ["us/east"]})


# Regions that nobody knows


def test_a_region_is_forgotten_a_week_after_it_was_named_last() -> None:
    regions = Regions()
    regions.take(["eu-north-9", "us-east-1"], 0)
    regions.take([], 7 * DAY)
    assert set(regions.known()) == {*REGIONS, "eu-north-9"}
    regions.take([], 7 * DAY + 1)
    assert set(regions.known()) == set(REGIONS)


def test_a_region_that_is_named_stays() -> None:
    regions = Regions()
    for day in range(30):
        regions.take(["eu-north-9"] * (day % 5 == 0), day * DAY)
    assert "eu-north-9" in regions.known()


def test_regions_that_are_invented_are_bounded_and_take_no_place_of_those_that_were_there() -> None:
    regions = Regions()
    regions.take(["eu-north-9"], 0)
    for poll in range(20):
        regions.take([f"xy-zz-{number}" for number in range(100)] + [f"r{poll}"], poll)
    assert len(regions.known()) == len(REGIONS) + MOST_NEW
    assert "eu-north-9" in regions.known()
    assert len(regions.refused) == 100 - (MOST_NEW - 1) + 1


def test_doctor_tells_of_regions_that_are_left_out(served: Asked) -> None:
    names = [{"name": f"r{number}", "description": ""} for number in range(3000)]
    entry = row() | {"regions_with_capacity_available": names}
    source = served(lambda _: Reply.of_json({"data": {"gpu_1x_a10": entry}}))
    assert len(list(source.quotes())) == len(REGIONS)
    check = source.check()[-1]
    assert (check.name, check.ok) == ("lambda: regions", None)
    assert "names 3000 that look like none, or are too many" in check.detail
    assert len(check.detail) < 200
