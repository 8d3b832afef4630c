"""``/api/v1`` of the market: what is shown of a quote, prices over time, feeds, and what an operator does with doubts."""

from dataclasses import replace

import pytest

from broker.core.availability import Availability, Signal
from broker.core.offer import Market, MarketSnapshot, Offer, Quote, RawQuote
from broker.core.time import DAY_S, HOUR_S, MS
from broker.market.intake import take_in
from broker.market.quarantine import sift
from broker.store.history import Poll, PollKind
from tests.unit.serve.conftest import OFFER, OWNED

CHEAP = replace(OFFER, zone="use1-az1")
SMALL = replace(OFFER, zone="use1-az2", instance_type="p5.4xlarge", gpus=1)
GCP = replace(OFFER, cloud="gcp", region="us-central1", zone="us-central1-a", market=Market.ON_DEMAND)

COREWEAVE = replace(
    OFFER, cloud="coreweave", region="US-EAST", zone="US-EAST-04A", instance_type="gd-8xh100ib-i128"
)
AZURE = Offer(
    "azure", "eastus", "eastus", "Standard_NC40ads_H100_v5", Market.ON_DEMAND, "H100-NVL-94GB", 1, vcpus=40
)


@pytest.fixture
def viewer(bench):
    return bench.token("viewer")


@pytest.fixture
def operator(bench):
    return bench.token("operator", "olga")


def get(bench, path, headers, **query):
    return bench.client.get(f"/api/v1{path}", params=query, headers=headers)


def post(bench, path, headers, **body):
    return bench.client.post(f"/api/v1{path}", json=body, headers=headers)


def put(bench, offer, usd_h, at_ms=None, source="aws:spot_history"):
    at_ms = bench.clock.now_ms() - 60_000 if at_ms is None else at_ms
    bench.history.ingest([Quote(offer, round(usd_h * 1e6), at_ms, at_ms, source)])


def keys(answer):
    return [item["key"] for item in answer.json()["items"]]


def test_all_that_is_known_of_a_quote(bench, viewer):
    now_ms = bench.clock.now_ms()
    snapshot = MarketSnapshot(
        now_ms,
        bench.history.now(),
        empty_until_ms={OFFER.key: now_ms + 1000},
        hints={
            OFFER.key: (Availability(OFFER.key, Signal.PLACEMENT_SCORE, 8, 8, now_ms, "aws:placement_score"),)
        },
        prices_only=frozenset({"local"}),
        list_micro_usd_h={OFFER.key: 48_000_000},
    )
    object.__setattr__(bench.services, "snapshot", lambda: snapshot)
    spot, owned = (
        get(bench, "/prices", viewer, cloud=cloud).json()["items"][0] for cloud in ("aws", "local")
    )
    assert (spot["price_micro_usd_h"], spot["list_micro_usd_h"]) == (24_000_000, 48_000_000)
    assert spot["micro_usd_per_gpu_h"] == 3_000_000
    assert spot["micro_usd_per_pflop_h"] == round(3_000_000 / 0.791)
    assert spot["hints"][0] | {"observed_at_ms": 0} == {
        "offer_key": OFFER.key,
        "signal": "placement_score",
        "low": 8.0,
        "high": 8.0,
        "observed_at_ms": 0,
        "source": "aws:placement_score",
    }
    assert spot["refused_until_ms"] == now_ms + 1000
    assert (spot["prices_only"], owned["prices_only"]) == (False, True)
    assert owned["list_micro_usd_h"] is None
    assert owned["note"] == "prices only"


def test_filters_and_both_orders(bench, viewer):
    put(bench, CHEAP, 16)
    put(bench, SMALL, 2.5)
    put(bench, replace(SMALL, zone="use1-az3", gpu="L4-24GB"), 0.5)
    assert keys(get(bench, "/prices", viewer, gpu="h100")) == [CHEAP.key, SMALL.key, OFFER.key]
    assert keys(get(bench, "/prices", viewer, gpu="H100", count=8)) == [CHEAP.key, OFFER.key]
    assert keys(get(bench, "/prices", viewer, gpu="H100", max_count=4)) == [SMALL.key]
    assert keys(get(bench, "/prices", viewer, min_vram_gib=640)) == [CHEAP.key, OFFER.key]
    assert keys(get(bench, "/prices", viewer, region="us-*", max_price_micro_usd_h=2_500_000)) == [
        "aws/use1-az3/p5.4xlarge/spot",
        SMALL.key,
    ]
    cheapest = get(bench, "/prices", viewer, market="spot", limit=1)
    fastest = get(bench, "/prices", viewer, market="spot", limit=1, order="flop")
    assert keys(cheapest) == ["aws/use1-az3/p5.4xlarge/spot"]
    assert keys(fastest) == [CHEAP.key]
    assert get(bench, "/prices", viewer, gpu="H101").json()["hint"] == "did you mean H100?"


def test_an_answer_says_how_many_quotes_pass_beyond_its_limit(bench, viewer):
    put(bench, CHEAP, 16)
    put(bench, SMALL, 2.5)
    some = get(bench, "/prices", viewer, gpu="H100", limit=2).json()
    assert (len(some["items"]), some["total"], some["truncated"]) == (2, 3, True)
    every = get(bench, "/prices", viewer, gpu="H100", limit=3).json()
    assert (len(every["items"]), every["total"], every["truncated"]) == (3, 3, False)


@pytest.mark.parametrize(
    ("query", "reasons"),
    [
        ({"gpu": "H100", "count": 3}, ["H100 is sold with 1 and 8"]),
        ({"gpu": "H100", "market": "reserved"}, ["no cloud's reserved prices are read"]),
        ({"gpu": "A100", "market": "spot"}, ["A100 is sold owned, and not spot"]),
        ({"gpu": "B200"}, ["no price of B200 is known"]),
        ({"gpu": "A100", "cloud": "aws"}, ["A100 is sold by local"]),
        ({"gpu": "H100", "max_price_micro_usd_h": 1}, ["the cheapest costs $2.50 an hour"]),
        ({"market": "spot", "min_gpu_memory_gib": 81}, ["one GPU has 80 GiB at most"]),
        ({"market": "spot", "min_vram_gib": 641}, ["all GPUs of an instance have 640 GiB at most"]),
        ({"gpu": "H100"}, []),
    ],
)
def test_where_nothing_passes_what_is_in_the_way_is_told(bench, viewer, query, reasons):
    put(bench, SMALL, 2.5)
    assert get(bench, "/prices", viewer, **query).json()["why_none"] == reasons


def test_regions_are_each_clouds_own_and_who_is_left_out_is_told(bench, viewer):
    for offer in (CHEAP, COREWEAVE, AZURE, replace(AZURE, zone="eastus2", region="eastus2")):
        put(bench, offer, 2.5 * offer.gpus)
    answer = get(bench, "/prices", viewer, region="us-*", min_vram_gib=90)
    assert set(keys(answer)) == {CHEAP.key, OFFER.key, COREWEAVE.key}, "upper and lower case aside"
    assert answer.json()["elsewhere"] == [{"cloud": "azure", "offers": 2, "region": "eastus"}]
    only = get(bench, "/prices", viewer, region="EU-*", cloud="AWS").json()
    assert (only["items"], only["elsewhere"]) == ([], [{"cloud": "aws", "offers": 2, "region": "us-east-1"}])
    assert get(bench, "/prices", viewer, gpu="H100").json()["elsewhere"] == []


def test_a_price_of_a_dated_list_says_of_which_day(bench, viewer):
    put(bench, COREWEAVE, 40, source="coreweave:price_list:2026-09-20+discount")
    put(bench, CHEAP, 16)
    dates = {item["key"]: item["list_date"] for item in get(bench, "/prices", viewer).json()["items"]}
    assert dates == {OFFER.key: None, OWNED.key: None, CHEAP.key: None, COREWEAVE.key: "2026-09-20"}
    bench.history.record_poll(Poll("coreweave", bench.clock.now_ms(), 0, True, 1))
    bench.history.record_poll(Poll("aws", bench.clock.now_ms(), 0, True, 1))
    feeds = get(bench, "/market/polls", viewer).json()["items"]
    assert [(feed["cloud"], feed["list_date"]) for feed in feeds] == [
        ("aws", None),
        ("coreweave", "2026-09-20"),
    ]


def test_an_estimated_speed_is_told_from_a_measured_one(bench, viewer):
    put(bench, replace(SMALL, gpu="H200-SXM-141GB"), 3)
    told = {
        item["offer"]["gpu"]: (item["speed_tflops"], item["speed_measured"])
        for item in get(bench, "/prices", viewer, cloud="aws").json()["items"]
    }
    assert told == {"H100-SXM5-80GB": (791, True), "H200-SXM-141GB": (pytest.approx(0.7 * 989), False)}


def unread(bench, viewer, **query):
    answer = get(bench, "/prices", viewer, **query).json()["unread"]
    return {cloud["cloud"]: cloud["why"] for cloud in answer}


class TestUnread:
    """The bench has aws in its broker.toml, to be polled every five minutes, and an old price of local."""

    def poll(self, bench, minutes_ago, error="", cloud="aws"):
        at_ms = bench.clock.now_ms() - round(minutes_ago * 60_000)
        bench.history.record_poll(Poll(cloud, at_ms, at_ms, not error, 10, error=error))

    def test_what_is_read_as_it_should_be_needs_no_word(self, bench, viewer):
        self.poll(bench, 20, "timed out")
        self.poll(bench, 14)
        assert unread(bench, viewer, cloud="AWS") == {}

    def test_one_that_has_never_been_polled(self, bench, viewer):
        assert unread(bench, viewer) == {"aws": "not read yet", "local": "not configured"}

    def test_one_that_has_never_answered(self, bench, viewer):
        self.poll(bench, 6, "timed out")
        self.poll(bench, 1, "denied")
        (aws,) = get(bench, "/prices", viewer, cloud="aws").json()["unread"]
        assert (aws["age_s"], aws["failed_in_row"], aws["error"]) == (None, 2, "denied")
        assert aws["why"] == "never read: the last 2 polls have failed: denied"

    def test_one_that_is_down_now(self, bench, viewer):
        self.poll(bench, 12)
        self.poll(bench, 2, "connection refused")
        why = "prices are 12m old: the last poll has failed: connection refused"
        assert unread(bench, viewer, cloud="aws") == {"aws": why}

    def test_one_that_has_failed_more_often_than_is_counted(self, bench, viewer):
        self.poll(bench, 2000)
        for minutes in range(101):
            self.poll(bench, minutes, "denied")
        why = "prices are 1d9h old: at least 100 polls have failed: denied"
        assert unread(bench, viewer, cloud="aws") == {"aws": why}

    def test_one_that_nobody_has_polled_for_long(self, bench, viewer):
        self.poll(bench, 16)
        assert unread(bench, viewer, cloud="aws") == {"aws": "prices are 16m old, due every 5m"}

    def test_one_that_is_not_configured(self, bench, viewer):
        assert unread(bench, viewer, cloud="azure") == {"azure": "not configured"}
        self.poll(bench, 60, cloud="gcp")
        assert unread(bench, viewer, cloud="gcp") == {"gcp": "not configured any more; its prices are 1h old"}

    def test_one_that_cannot_be_asked_at_all(self, bench, viewer):
        object.__setattr__(
            bench.services, "closed_clouds", {"aws": "aws needs boto3, which is not installed"}
        )
        why = "never read: it cannot be asked: aws needs boto3, which is not installed"
        assert unread(bench, viewer, cloud="aws") == {"aws": why}


NUMBERS = {
    "/prices": (
        *("count", "min_count", "max_count", "min_gpu_memory_gib", "min_vram_gib"),
        *("max_price_micro_usd_h", "limit"),
    ),
    "/prices/history": ("since_ms", "count", "limit", "points"),
    "/jobs/train/decisions": ("limit",),
    "/jobs/train/events": ("after", "limit"),
    "/jobs/train/logs": ("offset",),
    "/events": ("after", "since_s"),
}


@pytest.mark.parametrize("number", ["9" * 20, "9" * 5000, "-1", "1_3", "\u0663", "1.5"])
def test_a_number_that_is_none_or_too_large_is_refused_with_its_place(bench, viewer, number):
    for path, names in NUMBERS.items():
        for name in names:
            answer = get(bench, path, viewer, gpu="H100", follow="false", **{name: number})
            assert answer.status_code == 422, (path, name)
            assert answer.json()["detail"].startswith(f"query.{name}: ")
            assert len(answer.text) < 400


def test_history_shows_the_cheapest_of_each_cloud_and_market(bench, viewer):
    now_ms = bench.clock.now_ms()
    for days, usd in ((40, 20), (10, 30), (2, 16)):
        put(bench, CHEAP, usd, now_ms - days * DAY_S * MS)
    put(bench, GCP, 88, now_ms - HOUR_S * MS)
    answer = get(bench, "/prices/history", viewer, gpu="H100").json()
    assert [item["key"] for item in answer["items"]] == [CHEAP.key, GCP.key]
    first = answer["items"][0]
    assert [p["price_micro_usd_h"] for p in first["points"]] == [20_000_000, 30_000_000, 16_000_000]
    assert (first["low_micro_usd_h"], first["high_micro_usd_h"]) == (16_000_000, 30_000_000)
    assert keys(get(bench, "/prices/history", viewer, gpu="H100", every=True)) == [
        CHEAP.key,
        OFFER.key,
        GCP.key,
    ]
    assert keys(get(bench, "/prices/history", viewer, gpu="H100", cloud="GCP")) == [GCP.key]
    short = get(bench, "/prices/history", viewer, gpu="H100", cloud="aws", since_ms=now_ms - 5 * DAY_S * MS)
    # 20 no longer held when the window began; 30 did.
    assert short.json()["items"][0]["high_micro_usd_h"] == 30_000_000
    assert len(short.json()["items"][0]["points"]) == 2
    cut = get(bench, "/prices/history", viewer, gpu="H100", cloud="aws", points=1).json()["items"][0]
    assert (cut["cut"], len(cut["points"])) == (True, 1)


def test_a_price_that_moved_only_before_the_window_is_its_high_and_low(bench, viewer):
    now_ms = bench.clock.now_ms()
    put(bench, CHEAP, 16, now_ms - 40 * DAY_S * MS)
    item = get(bench, "/prices/history", viewer, gpu="H100").json()["items"][0]
    assert (item["low_micro_usd_h"], item["high_micro_usd_h"]) == (16_000_000, 16_000_000)


def test_feeds_say_how_well_each_cloud_was_read(bench, viewer):
    now_ms = bench.clock.now_ms()
    for poll in (
        Poll("aws", now_ms - 2 * DAY_S * MS, 0, True, 900, 50),
        Poll("aws", now_ms - 600_000, 0, True, 1000, 7),
        Poll("aws", now_ms - 300_000, 0, False, error="timed out"),
        Poll("aws", now_ms - 10_000, 0, False, error="denied"),
        Poll("aws", now_ms - 5_000, 0, True, 4000, kind=PollKind.HISTORY),
        Poll("gcp", now_ms - 90_000, 0, False, error="no key"),
    ):
        bench.history.record_poll(poll)
    bench.history.quarantine(RawQuote(CHEAP, "0", "USD", None, "s"), now_ms, "the price is zero")
    aws, gcp = get(bench, "/market/polls", viewer).json()["items"]
    assert (aws["age_s"], aws["prices"], aws["ok"], aws["error"]) == (600, 1000, False, "denied")
    assert (aws["polls_1d"], aws["failed_1d"], aws["changes_1d"], aws["failed_in_row"]) == (3, 2, 7, 2)
    assert (aws["doubted"], aws["history"], aws["history_points"]) == (1, "read", 4000)
    assert (gcp["age_s"], gcp["configured"], gcp["history"]) == (None, False, "none")


def test_a_feed_says_when_it_is_read_next(bench, viewer):
    now_ms = bench.clock.now_ms()
    bench.history.record_poll(Poll("gcp", now_ms - 90_000, 0, False, error="no key"))
    bench.next_polls_ms["aws"] = now_ms + 30_000
    aws, gcp = get(bench, "/market/polls", viewer).json()["items"]
    assert (aws["next_at_ms"], gcp["next_at_ms"]) == (now_ms + 30_000, None)


class TestPollOnDemand:
    def poll(self, bench, cloud):
        return bench.client.post(f"/api/v1/market/polls/{cloud}", headers=bench.token("operator"))

    def test_its_outcome_is_the_answer(self, bench):
        answer = self.poll(bench, "AWS").json()
        assert answer == {
            "cloud": "aws",
            "ok": True,
            "error": "",
            "prices": 12,
            "changes": 3,
            "took_s": 2.0,
        }
        assert bench.polled == ["aws"]

    def test_a_cloud_that_nobody_knows_or_that_cannot_be_opened_is_not_polled(self, bench):
        assert self.poll(bench, "awz").status_code == 422
        object.__setattr__(bench.services, "closed_clouds", {"aws": "no boto3"})
        refused = bench.client.post("/api/v1/market/polls/aws", headers=bench.token("operator", "second"))
        assert (refused.status_code, refused.json()["detail"]) == (409, "aws cannot be asked: no boto3")
        assert bench.polled == []


class TestQuarantine:
    def doubt(self, bench, price="900", offer=OFFER):
        raw = RawQuote(offer, price, "USD", None, "aws:spot_history")
        at_ms = bench.clock.now_ms()
        doubts = sift([raw], at_ms, bench.history.now(), {}).doubts
        assert offer.key in doubts
        bench.history.quarantine(raw, at_ms, doubts[offer.key].reason)
        return raw

    def test_what_is_doubted_is_shown_with_what_holds_meanwhile(self, bench, viewer):
        self.doubt(bench)
        bench.clock.advance(60)
        self.doubt(bench)
        (item,) = get(bench, "/quarantine", viewer).json()["items"]
        assert (item["key"], item["price_text"], item["price_micro_usd_h"]) == (OFFER.key, "900", 24_000_000)
        assert item["times_seen"] == 2
        assert item["last_seen_ms"] - item["first_seen_ms"] == 60_000
        assert "can cost" in item["reason"]
        assert keys(get(bench, "/quarantine", viewer, cloud="gcp")) == []

    def test_a_confirmed_price_holds_and_is_not_doubted_by_the_next_poll(self, bench, operator):
        raw = self.doubt(bench)
        bench.clock.advance(60)
        answer = post(bench, "/quarantine/confirm", operator, offer=OFFER.key, price_text="900").json()
        assert answer == {
            "key": OFFER.key,
            "price_micro_usd_h": 900_000_000,
            "before_micro_usd_h": 24_000_000,
            "by": "olga",
        }
        quote = bench.history.now()[OFFER.key]
        assert (quote.price_micro_usd_h, quote.source) == (900_000_000, "aws:spot_history+confirmed")
        assert quote.age_s(bench.clock.now_ms()) == 60, "no younger than the reading was"
        assert bench.history.quarantined() == {}
        assert bench.wakes == 1
        bench.clock.advance(300)
        again = sift([raw], bench.clock.now_ms(), bench.history.now(), {})
        assert not again.doubts
        bench.history.ingest(again.quotes)
        assert bench.history.now()[OFFER.key].source == "aws:spot_history+confirmed"
        with bench.store.read() as tx:
            (event,) = [e for e in tx.events() if e.kind == "quote.confirmed"]
        assert (event.actor, event.data["offer"], event.data["price_text"]) == ("olga", OFFER.key, "900")

    def test_a_reading_that_names_an_old_time_is_the_price_all_the_same(self, bench, operator):
        raw = RawQuote(OFFER, "900", "USD", bench.clock.now_ms() - DAY_S * MS, "aws:spot_history")
        bench.history.quarantine(raw, bench.clock.now_ms(), "jumped")
        assert post(bench, "/quarantine/confirm", operator, offer=OFFER.key).status_code == 200
        assert bench.history.now()[OFFER.key].price_micro_usd_h == 900_000_000

    @pytest.mark.parametrize(
        ("offer", "price", "words"),
        [(OFFER, "0", "the price is zero"), (replace(OFFER, gpu="H900"), "3", "unknown GPU 'H900'")],
    )
    def test_what_can_be_no_price_cannot_be_confirmed(self, bench, operator, offer, price, words):
        self.doubt(bench, price, offer)
        answer = post(bench, "/quarantine/confirm", operator, offer=OFFER.key)
        assert (answer.status_code, answer.json()["exit_code"]) == (403, 6)
        assert words in answer.json()["detail"]
        assert OFFER.key in bench.history.quarantined()

    def test_only_what_was_shown_is_confirmed_or_dropped(self, bench, operator):
        self.doubt(bench, "900")
        for path in ("/quarantine/confirm", "/quarantine/drop"):
            answer = post(bench, path, operator, offer=OFFER.key, price_text="800")
            assert (answer.status_code, answer.json()["exit_code"]) == (409, 5)
            assert post(bench, path, operator, offer=OWNED.key).json()["exit_code"] == 3
        assert OFFER.key in bench.history.quarantined()
        with bench.store.read() as tx:
            assert not [e for e in tx.events() if e.kind.startswith("quote.")]

    def test_a_dropped_reading_is_doubted_again_when_it_comes_again(self, bench, operator):
        raw = self.doubt(bench)
        assert post(bench, "/quarantine/drop", operator, offer=OFFER.key).json()["by"] == "olga"
        assert bench.history.quarantined() == {}
        assert bench.history.now()[OFFER.key].price_micro_usd_h == 24_000_000
        assert sift([raw], bench.clock.now_ms() + 1000, bench.history.now(), {}).doubts
        with bench.store.read() as tx:
            assert [e.actor for e in tx.events() if e.kind == "quote.dropped"] == ["olga"]

    def test_for_how_long_it_has_stayed_and_must_is_shown(self, bench, viewer):
        for price in ("6.98", "7.40", "7.40"):
            bench.clock.advance(300)
            take_in(
                bench.history, [RawQuote(AZURE, price, "USD", None, "azure:retail")], bench.clock.now_ms()
            )
        (item,) = get(bench, "/quarantine", viewer).json()["items"]
        assert (item["times_seen"], item["held_s"], item["needed_s"]) == (2, 300, 12 * 3600)

    def test_what_is_forgotten_is_counted_anew(self, bench, operator):
        def read(price):
            bench.clock.advance(300)
            take_in(
                bench.history, [RawQuote(AZURE, price, "USD", None, "azure:retail")], bench.clock.now_ms()
            )

        read("6.98")
        read("7.40")
        assert post(bench, "/quarantine/drop", operator, offer=AZURE.key).status_code == 200
        read("7.40")
        assert bench.history.quarantined()[AZURE.key].times_seen == 1
        assert bench.history.now()[AZURE.key].price_micro_usd_h == 6_980_000
