"""A recorded market is the market that was recorded: real rows, played."""

import json
from dataclasses import replace

import pytest
from paper_values import GCP, HOUR, MINUTE, NOW, ON_DEMAND, SPEC, SPOT
from recording import POLL, record, records

from broker.cli.app import main
from broker.cli.records import Clouds
from broker.core.model import EndedBy, Segment
from broker.core.offer import Quote
from broker.paper.history import Doings, HistoryMarket, InSight, Recorded, interruptions
from broker.paper.job import submitted
from broker.paper.market import OfferSeries, SeriesMarket
from broker.paper.run import Terms, play
from broker.paper.series import Track
from broker.policy.schema import Migrate, Mode, Policy
from broker.store.recorded import Look, PriceRecord

POLICY = Policy(
    "eager", "0" * 64, "eager.yaml", mode=Mode.ACT, migrate=Migrate(hold_s=600, min_saving_micro_usd=0)
)
CLOUDS = Clouds({}, frozenset({"aws", "gcp"}))
SERIES = {
    SPOT: [(NOW, 3_000_000), (NOW + 2 * HOUR, 9_000_000), (NOW + 6 * HOUR, 2_000_000)],
    ON_DEMAND: [(NOW, 12_000_000)],
    GCP: [(NOW, 5_000_000), (NOW + 5 * HOUR, 8_000_000)],
}


def job(hours=10):
    return submitted(SPEC, hours * 3600, {"H100-SXM5-80GB": 1.0}, NOW)


def recorded_market(folder, now_ms, **options):
    with records(folder, now_ms, CLOUDS) as found:
        return found.market(SPEC, [POLICY], NOW, **options)


def test_a_run_over_rows_is_the_run_over_the_series_that_they_were_written_from(tmp_path):
    until = NOW + 14 * HOUR
    record(tmp_path, SERIES, NOW, until)
    series = {
        offer.key: OfferSeries(offer, Track(*(tuple(column) for column in zip(*points, strict=True))))
        for offer, points in SERIES.items()
    }
    told, true = [], []
    recorded = play(job(), POLICY, recorded_market(tmp_path, until), Terms(), until, told.append)
    direct = play(job(), POLICY, SeriesMarket(series, NOW, POLL), Terms(), until, true.append)
    assert recorded.moves == 2, "there and back, or it would prove nothing"
    assert [(s.at_ms, s.decision.kind, s.to, s.effect) for s in told] == [
        (s.at_ms, s.decision.kind, s.to, s.effect) for s in true
    ]
    assert recorded.cost_micro_usd == direct.cost_micro_usd
    assert recorded.finished_ms == direct.finished_ms


def test_a_price_is_as_old_as_the_last_whole_poll_of_its_cloud(tmp_path):
    record(tmp_path, SERIES, NOW, NOW + 4 * HOUR, blind=[(NOW + HOUR, NOW + 3 * HOUR)])
    market = recorded_market(tmp_path, NOW + 4 * HOUR)
    at = NOW + 2 * HOUR + 30 * MINUTE
    assert market.quotes(at)[SPOT.key].price_micro_usd_h == 3_000_000, "nobody saw it become dear"
    assert market.quotes(at)[SPOT.key].age_s(at) == 95 * 60
    assert market.next_poll_ms(NOW + HOUR - POLL) == NOW + 3 * HOUR
    seen = market.quotes(NOW + 3 * HOUR)[SPOT.key]
    assert (seen.price_micro_usd_h, seen.age_s(NOW + 3 * HOUR)) == (9_000_000, 0)
    outcome = play(job(1), POLICY, market, Terms(), NOW + 4 * HOUR)
    assert outcome.finished_ms is not None


@pytest.mark.parametrize("observed", [NOW, NOW + 50 * MINUTE])
def test_a_price_is_known_from_when_it_was_observed(observed):
    points = (
        Quote(SPOT, 3_000_000, NOW - HOUR, NOW - HOUR, "t"),
        Quote(SPOT, 4_000_000, NOW - 30 * MINUTE, observed, "t"),
    )
    looks = [Look(at, at + 1000) for at in range(NOW - HOUR, NOW + 2 * HOUR, POLL)]
    market = HistoryMarket([Recorded(SPOT, points, NOW + 2 * HOUR)], {"aws": looks}, NOW, NOW + 2 * HOUR)
    assert market.quotes(observed - 1)[SPOT.key].price_micro_usd_h == 3_000_000
    assert market.quotes(observed + 1000)[SPOT.key].price_micro_usd_h == 4_000_000
    assert [q.price_micro_usd_h for q in market.points(SPOT)] == [3_000_000, 4_000_000], "of the bill"


def test_a_poll_counts_from_its_end_and_dates_its_prices_by_its_start():
    points = (Quote(SPOT, 3_000_000, NOW, NOW, "t"),)
    looks = [Look(NOW, NOW + MINUTE), Look(NOW + POLL, NOW + POLL + MINUTE)]
    market = HistoryMarket([Recorded(SPOT, points, NOW + POLL)], {"aws": looks}, NOW, NOW + HOUR)
    assert market.quotes(NOW + MINUTE - 1) == {}
    assert market.quotes(NOW + MINUTE)[SPOT.key].observed_at_ms == NOW
    assert market.first_ms == NOW + MINUTE
    assert market.next_poll_ms(NOW) == NOW + MINUTE


def test_an_offer_that_is_gone_grows_old_and_an_import_alone_is_never_fresh():
    old = (Quote(SPOT, 3_000_000, NOW, NOW, "t"),)
    looks = [Look(at, at) for at in range(NOW, NOW + 3 * HOUR, POLL)]
    gone = HistoryMarket([Recorded(SPOT, old, NOW + HOUR)], {"aws": looks}, NOW, NOW + 3 * HOUR)
    assert gone.quotes(NOW + 2 * HOUR)[SPOT.key].age_s(NOW + 2 * HOUR) == 3600


def test_polls_that_are_not_kept_any_more_are_assumed_and_told():
    points = (Quote(SPOT, 3_000_000, NOW, NOW, "t"),)
    kept = [Look(NOW + 2 * HOUR, NOW + 2 * HOUR)]
    market = HistoryMarket([Recorded(SPOT, points, NOW + 2 * HOUR)], {"aws": kept}, NOW, NOW + 3 * HOUR)
    assert market.assumed_looks
    assert market.quotes(NOW + HOUR)[SPOT.key].age_s(NOW + HOUR) == 0
    whole = HistoryMarket(
        [Recorded(SPOT, points, NOW + HOUR)], {"aws": [Look(NOW, NOW)]}, NOW, NOW + 3 * HOUR
    )
    assert not whole.assumed_looks
    assert whole.quotes(NOW + HOUR)[SPOT.key].age_s(NOW + HOUR) == 3600


def test_where_a_cloud_took_a_node_of_ours_the_job_on_paper_is_lost_too(tmp_path):
    until = NOW + 3 * HOUR
    lost = Segment("n", "p", "other", "default", SPOT, NOW, NOW + HOUR, EndedBy.CLOUD)
    by_us = replace(lost, node_token="m", ended_at_ms=NOW + 90 * MINUTE, ended_by=EndedBy.US)
    assert interruptions([lost, by_us]) == {SPOT.key: [NOW + HOUR]}
    points = (Quote(SPOT, 3_000_000, NOW, NOW, "t"),)
    looks = [Look(at, at) for at in range(NOW, until, POLL)]
    market = HistoryMarket(
        [Recorded(SPOT, points, until)],
        {"aws": looks},
        NOW,
        until,
        doings=Doings(interrupted=interruptions([lost])),
    )
    outcome = play(job(2), POLICY, market, Terms(), until)
    assert outcome.interruptions == 1
    (first, again) = outcome.job.placements[:2]
    assert first.gone_at_ms == NOW + HOUR
    assert again.created_at_ms >= NOW + HOUR + 15 * MINUTE, "nothing is to be had there for a while"


def test_a_shadow_stands_where_the_market_has_brought_it(tmp_path, capfd, monkeypatch):
    state, now = tmp_path / "state", NOW + 14 * HOUR
    state.mkdir()
    record(state, SERIES, NOW, now)
    (tmp_path / "train.yaml").write_text(
        "name: train\nrun: sleep 1\nresources: {gpus: H100}\ncheckpoint: {dir: ckpt}\n"
    )
    (tmp_path / "eager.yaml").write_text(
        "policy: eager\nmode: observe\nobjective: cheapest\nmigrate: {min_saving_usd: 0, hold: 10m}\n"
    )
    policies = tmp_path / "policies"
    policies.mkdir()
    (tmp_path / "broker.toml").write_text(
        f'[state]\ndir = "{state}"\n[policies]\ndir = "{policies}"\n[clock]\nrate = 1.0\n'
    )
    asked = (
        "shadow",
        str(tmp_path / "train.yaml"),
        "--policy",
        str(tmp_path / "eager.yaml"),
        "--work",
        "10h",
    )
    more = ("--since", "2026-01-01T00:00:00Z", "--config", str(tmp_path / "broker.toml"))
    capfd.readouterr()
    assert main([*asked, *more, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["from_ms"] == NOW, "before that no price was known"
    eager, staying, on_demand = told["items"]
    assert (eager["name"], eager["moves"], staying["moves"]) == ("eager", 2, 0)
    assert eager["cost_micro_usd"] < staying["cost_micro_usd"] < on_demand["cost_micro_usd"]
    assert on_demand["cost_micro_usd"] == pytest.approx(12_000_000 * 10.2, rel=0.02)
    assert main([*asked, *more, "--steps"]) == 0
    out, err = capfd.readouterr()
    assert [line.split("\t")[0] for line in out.splitlines()] == ["eager", "eager, staying", "on_demand"]
    assert "launched: moves to gcp/" in err
    assert "assumed: the job needs 10h of training on H100-SXM5-80GB" in err


def test_no_price_for_a_job_is_said_and_no_standing_of_nothing(tmp_path, capfd):
    record(tmp_path, {SPOT: [(NOW, 3_000_000)]}, NOW, NOW + HOUR)
    (tmp_path / "train.yaml").write_text("name: t\nrun: sleep 1\nresources: {gpus: L4}\n")
    (tmp_path / "p.yaml").write_text("policy: p\nmode: act\nobjective: cheapest\n")
    (tmp_path / "broker.toml").write_text(f'[state]\ndir = "{tmp_path}"\n')
    asked = ("shadow", str(tmp_path / "train.yaml"), "--policy", str(tmp_path / "p.yaml"))
    assert main([*asked, "--config", str(tmp_path / "broker.toml")]) == 3
    assert "no price that this job and policy could take is on record" in capfd.readouterr().err


def test_reading_beside_a_daemon_writes_nothing(tmp_path):
    record(tmp_path, SERIES, NOW, NOW + HOUR)
    before = (tmp_path / "history.db").read_bytes()
    with PriceRecord.open(tmp_path / "history.db") as prices:
        assert len(prices.curves(["H100-SXM5-80GB"], lambda offer: True, NOW, NOW + HOUR)) == 3
        assert prices.curves(["L4-24GB"], lambda offer: True, NOW, NOW + HOUR) == []
        assert len(prices.looks(["aws"], NOW, NOW + HOUR)["aws"]) == 12
        assert len(prices.looks(["aws"], NOW + POLL + 1, NOW + HOUR)["aws"]) == 11, "and the one before"
    assert (tmp_path / "history.db").read_bytes() == before


def test_what_is_out_of_sight_would_not_have_been_chosen():
    until = NOW + 20 * HOUR
    looks = [Look(at, at) for at in range(NOW, until, POLL)]
    rows = []
    for zone in range(12):
        offer = replace(SPOT, zone=f"use1-az{zone}")
        prices = ((NOW + h * HOUR, 3_000_000 + (zone * 7 + h * 5) % 13 * 400_000) for h in range(0, 20, 2))
        rows.append(Recorded(offer, tuple(Quote(offer, price, at, at, "t") for at, price in prices), until))
    taken = Doings(interrupted={rows[3].offer.key: [NOW + 3 * HOUR, NOW + 9 * HOUR]})

    def played(in_sight):
        market = HistoryMarket(rows, {"aws": looks}, NOW, until, doings=taken, in_sight=in_sight)
        outcome = play(
            job(), replace(POLICY, migrate=replace(POLICY.migrate, cooldown_s=600)), market, Terms(), until
        )
        return outcome, len(market.quotes(NOW))

    (whole, of_all), (few, of_few) = played(None), played(InSight(SPEC, 3))
    assert whole.moves > 1, "or it would prove nothing"
    assert (of_all, 3 <= of_few < 8) == (12, True)
    assert [(p.offer.key, p.created_at_ms) for p in few.job.placements] == [
        (p.offer.key, p.created_at_ms) for p in whole.job.placements
    ]
    assert few.cost_micro_usd == whole.cost_micro_usd
