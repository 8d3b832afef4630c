"""Markets that could have been: whole days of one that was, and chance that repeats itself."""

import json
from itertools import pairwise
from statistics import mean

import pytest
from paper_values import GCP, HOUR, MINUTE, NOW, ON_DEMAND, SPEC, SPOT
from recording import record

from broker.cli.app import main
from broker.cli.spread_plots import as_svg, in_terminal
from broker.core.offer import Quote
from broker.paper.resample import Resampled, chance, cheapest_of, cut, percentiles
from broker.paper.run import EMPTY_POOL_S

DAY = 24 * HOUR


def points(offer, *changes):
    return [Quote(offer, price, at, at, "t") for at, price in changes]


# Day by day 1, 2, 3 dollars; at noon of each day half of it.
DAYS = cut(
    {
        SPOT: points(
            SPOT,
            *(
                (NOW + d * DAY + h * HOUR, (d + 1) * 1_000_000 // (1 + h // 12))
                for d in range(3)
                for h in (0, 12)
            ),
        ),
        ON_DEMAND: points(ON_DEMAND, (NOW, 12_000_000)),
        GCP: points(GCP, (NOW + DAY, 9_000_000)),
    },
    NOW,
    NOW + 3 * DAY + HOUR,
    HOUR,
)
LATER = NOW + 100 * DAY


def market(run=0, seed=1, days=DAYS, hold_ms=10 * MINUTE, **lives_s):
    return Resampled(
        days, LATER, LATER + 5 * DAY, asking=days.asking(hold_ms), lives_s=lives_s, seed=seed, run=run
    )


def drawn(market):
    """The day of the history that each day was drawn from, by its morning and afternoon."""
    for day in range(5):
        morning, afternoon = (
            market.quotes(LATER + day * DAY + hours * HOUR)[SPOT.key].price_micro_usd_h for hours in (1, 13)
        )
        assert afternoon == morning // 2, "a day stays whole, and its noon is noon"
        yield morning // 1_000_000


def test_days_are_drawn_whole_evenly_and_the_same_for_the_same_seed():
    assert DAYS.count == 3
    all_of = [tuple(drawn(market(run))) for run in range(60)]
    assert len(set(all_of)) > 50
    counts = [sum(days.count(day) for days in all_of) for day in (1, 2, 3)]
    assert min(counts) > 70, counts
    assert tuple(drawn(market(7))) == all_of[7]
    assert tuple(drawn(market(7, seed=2))) != all_of[7]


def test_offers_of_a_day_stay_together_and_one_without_a_price_yet_is_not_there():
    for run in range(10):
        one = market(run)
        for day, was in enumerate(drawn(one)):
            assert (GCP.key in one.quotes(LATER + day * DAY + HOUR)) == (was > 1)


def test_a_policy_is_asked_at_news_and_again_when_its_hold_is_over():
    one, asked, at = market(), [], LATER - 1
    while (at := one.next_poll_ms(at)) is not None:
        asked.append(at)
    assert asked[:2] == [LATER, LATER + 10 * MINUTE]
    assert LATER + 12 * HOUR in asked, "the price of the afternoon"
    assert LATER + 12 * HOUR + 10 * MINUTE in asked
    assert LATER + 3 * HOUR in asked, "time itself"
    assert LATER + 4 * HOUR not in asked
    seen = one.quotes(LATER + 12 * HOUR + 10 * MINUTE)[SPOT.key]
    assert seen.observed_at_ms == LATER + 12 * HOUR + 10 * MINUTE, "seen again, or no hold would ever be over"
    assert all(a < b for a, b in pairwise(asked))


def test_spot_is_taken_back_as_often_as_its_life_says_and_on_demand_never():
    name = f"{SPOT.cloud}/{SPOT.zone}/{SPOT.instance_type}"
    firsts = [
        market(run, **{name: 4 * 3600.0}).next_shortage_ms(SPOT, 1, LATER) or LATER + 5 * DAY
        for run in range(400)
    ]
    assert mean(at - LATER for at in firsts) / HOUR == pytest.approx(4, rel=0.15)
    one = market(3, **{name: 4 * 3600.0})
    at = one.next_shortage_ms(SPOT, 1, LATER)
    assert one.stock(SPOT, at - 1) is None
    assert one.stock(SPOT, at) == one.stock(SPOT, at + EMPTY_POOL_S * 1000 - 1) == 0
    assert one.stock(SPOT, at + EMPTY_POOL_S * 1000) is None
    assert one.next_shortage_ms(SPOT, 1, at) > at
    assert one.next_shortage_ms(ON_DEMAND, 1, LATER) is None
    assert one.stock(ON_DEMAND, at) is None


def test_only_the_cheapest_are_in_sight_and_what_was_asked_for_stays():
    few = cheapest_of(DAYS, SPEC, 1)
    one = market(next(run for run in range(9) if next(drawn(market(run))) == 2), days=few)
    assert set(one.quotes(LATER)) == {SPOT.key, ON_DEMAND.key}
    one.stock(GCP, LATER)
    assert set(one.quotes(LATER)) == {SPOT.key, ON_DEMAND.key, GCP.key}


def test_chance_is_even_and_percentiles_are_values_that_were():
    drawn = [chance(1, "a", n) for n in range(2000)]
    assert all(0 <= value < 1 for value in drawn)
    assert mean(drawn) == pytest.approx(0.5, abs=0.03)
    assert percentiles(range(1, 101)) == [10, 50, 90]
    assert percentiles([3.0]) == [3.0, 3.0, 3.0]


def test_the_command_tells_how_costs_are_spread_and_the_same_seed_tells_the_same(tmp_path, capfd):
    hours = range(0, 72, 6)
    series = {
        SPOT: [(NOW + h * HOUR, 2_000_000 + h * 70_000) for h in hours],
        ON_DEMAND: [(NOW, 12_000_000)],
    }
    record(tmp_path, series, NOW, NOW + 2 * HOUR)
    record(tmp_path, series, NOW + 70 * HOUR, NOW + 73 * HOUR)
    from broker.store.past import PastStore

    past = PastStore.open(tmp_path / "history.db")
    past.add([quote for offer, held in series.items() for quote in points(offer, *held[:-1])], confirmed=True)
    past.close()
    (tmp_path / "train.yaml").write_text(
        "name: t\nrun: sleep 1\nresources: {gpus: H100}\ncheckpoint: {dir: c}\n"
    )
    (tmp_path / "p.yaml").write_text("policy: p\nmode: act\nobjective: cheapest\n")
    (tmp_path / "broker.toml").write_text(f'[state]\ndir = "{tmp_path}"\n')
    asked = (
        "simulate", str(tmp_path / "train.yaml"), "--policy", str(tmp_path / "p.yaml"), "--runs", "30", "--work", "10h",
        "--since", "2026-01-01T00:00:00Z", "--config", str(tmp_path / "broker.toml"),
    )  # fmt: skip
    capfd.readouterr()
    assert main([*asked, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    spot, on_demand = told["items"]
    assert (spot["name"], on_demand["name"]) == ("p", "on_demand")
    assert spot["cost_usd"]["p10"] < spot["cost_usd"]["p50"] <= spot["cost_usd"]["p90"]
    assert spot["cost_usd"]["p90"] < on_demand["cost_usd"]["p10"] == on_demand["cost_usd"]["p90"]
    assert on_demand["interruptions"]["p90"] == 0
    assert spot["interruptions"]["p90"] >= 1, "six hours is what a life is expected to last"
    assert spot["hours"]["p50"] > 10
    assert main([*asked, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["items"] == told["items"]
    assert main([*asked, "--seed", "2", "--svg", str(tmp_path / "o.svg")]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[1].split("\t")[:2] == ["on_demand", f"${on_demand['cost_usd']['p10']:.2f}"]
    assert "whole days of your history" in err
    assert (tmp_path / "o.svg").read_text().startswith("<")


def test_costs_are_drawn_as_the_share_of_runs_that_cost_no_more(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    costs = [("p", [1.0, 2.0, 3.0, 4.0]), ("on_demand", [9.0] * 4)]
    text = in_terminal(costs)
    assert "100 %" in text
    assert "$0.60" in text
    assert text.endswith("1 p\n         2 on_demand")
    assert as_svg(costs).count("<polyline") + as_svg(costs).count("<path") >= 2
