"""`broker policy check` with warnings, as JSON, and against a market: the daemon's, or that of a state folder."""

import json
from dataclasses import replace

from broker.core.offer import Market, Quote
from tests.unit.serve.conftest import OFFER

DEAR = replace(OFFER, market=Market.ON_DEMAND)
POLICY = """\
policy: nights
candidates:
  max_quote_age: 1h
  where: ['offer.gpus == 8', 'offer.price < 50.0', 'job.nodes == 1']
"""


def put(history, now_ms):
    for offer, usd_h in ((OFFER, 30.0), (DEAR, 98.0), (replace(OFFER, zone="use1-az2", gpus=4), 16.0)):
        history.ingest(
            [Quote(offer, round(usd_h * 1e6), now_ms - 60_000, now_ms - 60_000, "aws:spot_history")]
        )


def test_warnings_are_told_and_are_no_mistake(cli, tmp_path):
    file = tmp_path / "nights.yaml"
    file.write_text(POLICY + "migrate: {where: ['saving.fraction > 20.0']}\n")
    code, out, err = cli("policy", "check", file)
    assert (code, out) == (0, "")
    assert f"{file}:5:20: warning: saving.fraction is a share, 1.0 at most: 20 is beyond it\n" in err
    assert err.endswith("1 policy, 0 mistakes, 1 warning\n")
    code, out, _ = cli("policy", "check", file, "--format", "json")
    answer = json.loads(out)
    assert code == 0
    assert [w["line"] for w in answer["warnings"]] == [5]
    assert "market" not in answer
    assert cli("policy", "check", file, "--format", "yaml")[0] == 2


def test_what_the_daemons_market_leaves_of_a_policy(cli, daemon, tmp_path):
    put(daemon.history, daemon.clock.now_ms())
    file = tmp_path / "nights.yaml"
    file.write_text(POLICY)
    code, out, err = cli("policy", "check", file, "--market")
    assert code == 0
    assert [line.split("\t") for line in out.splitlines()] == [
        ["nights", "place.order: [owned, spot, on_demand]", "0", "0", "4", ""],
        ["nights", "candidates.max_quote_age: 1h", "0", "0", "4", ""],
        ["nights", "offer.gpus == 8", "2", "2", "2", f"{file}:4"],
        ["nights", "offer.price < 50.0", "1", "1", "1", f"{file}:4"],
        ["nights", "job.nodes == 1", "by the job", "", "1", f"{file}:4"],
    ]
    assert (
        f"nights: 1 of 4 offers are left; the cheapest is {OFFER.key} at $24.00/h" in err
    )  # less the overlay's discount


def test_a_market_of_which_nothing_is_left(cli, daemon, tmp_path):
    put(daemon.history, daemon.clock.now_ms())
    file = tmp_path / "nights.yaml"
    file.write_text(POLICY.replace("50.0", "5.0"))
    code, _, err = cli("policy", "check", file, "--market")
    assert code == 0
    assert "nights: no offer is left: offer.price < 5.0 takes the last one out" in err


def test_a_state_folder_is_read_without_a_daemon(cli, bench, tmp_path):
    put(bench.history, bench.clock.now_ms() - 86_400_000)
    file = tmp_path / "nights.yaml"
    file.write_text(POLICY)
    code, out, _ = cli("policy", "check", file, "--state-dir", bench.services.settings.state_dir, "--json")
    (found,) = json.loads(out)["market"]
    assert (code, found["total"], found["left"], found["cheapest"]) == (0, 4, 1, OFFER.key)
    code, _, err = cli("policy", "check", file, "--state-dir", tmp_path / "nowhere")
    assert (code, "there is no" in err) == (2, True)
