"""The tests of the shipped policies bite: with any line of a policy changed or gone, one of its cases fails."""

from pathlib import Path

import pytest

from broker.paper.testing.judge import judge
from broker.paper.testing.read import read_cases
from providers import tariffs

FOLDER = Path(__file__).parents[2] / "policies"

# Policy, a text in it, what stands there instead. Not here: `job.has_commit`, which the broker asks anyway.
CHANGES = [
    ("default", "mode: observe", "mode: act"),
    ("default", "[owned, spot, on_demand]", "[owned, on_demand, spot]"),
    ("default", "'!job.has_checkpoint'", "'job.nodes < 0'"),
    ("default", "min_saving: 20%", "min_saving: 45%"),
    ("default", "max_payback: 3h", "max_payback: 1m"),
    ("default", "hold: 10m", "hold: 0s"),
    ("default", "hold: 10m", "hold: 30m"),
    ("ride-the-spot", 'deny: ["cn-*"]', 'deny: ["xx-*"]'),
    ("ride-the-spot", "max_quote_age: 10m", "max_quote_age: 9h"),
    ("ride-the-spot", "objective: cheapest_by_deadline", "objective: cheapest"),
    ("ride-the-spot", "[owned, spot, on_demand]", "[owned, on_demand, spot]"),
    ("ride-the-spot", "[owned, spot, on_demand]", "[owned, spot]"),
    ("ride-the-spot", "'market.spot_failure_rate_1h > 0.30'", "'job.nodes < 0'"),
    ("ride-the-spot", "'job.remaining < duration(\"1h\")'", "'job.nodes < -1'"),
    ("ride-the-spot", "'!job.has_checkpoint'", "'job.nodes < -2'"),
    ("ride-the-spot", "min_saving: 20%", "min_saving: 1%"),
    ("ride-the-spot", "min_saving: 20%", "min_saving: 45%"),
    ("ride-the-spot", "min_saving_usd: 25", "min_saving_usd: 2000"),
    ("ride-the-spot", "max_payback: 3h", "max_payback: 1m"),
    ("ride-the-spot", "hold: 10m", "hold: 0s"),
    ("ride-the-spot", "hold: 10m", "hold: 30m"),
    ("ride-the-spot", "cooldown: 2h", "cooldown: 0s"),
    ("ride-the-spot", "cooldown: 2h", "cooldown: 9h"),
    ("finish-cheapest", "'!job.has_checkpoint'", "'job.nodes < 0'"),
    ("finish-cheapest", "min_saving: 10%", "min_saving: 1%"),
    ("finish-cheapest", "min_saving: 10%", "min_saving: 20%"),
    ("finish-cheapest", "min_saving_usd: 10", "min_saving_usd: 3000"),
    ("finish-cheapest", "max_payback: 12h", "max_payback: 1m"),
    ("finish-cheapest", "hold: 30m", "hold: 10m"),
    ("finish-cheapest", "hold: 30m", "hold: 1h"),
    ("finish-cheapest", "cooldown: 6h", "cooldown: 1h"),
    ("finish-cheapest", "cooldown: 6h", "cooldown: 9h"),
    ("finish-cheapest", "'saving.usd > 3.0 * migration.cost_usd'", "'job.nodes > 0'"),
    ("demo", "clouds: [aws, gcp]", "clouds: [aws, gcp, lambda]"),
    ("demo", "order: [spot, on_demand]", "order: [on_demand, spot]"),
    ("demo", "min_saving: 20%", "min_saving: 60%"),
    ("demo", "min_saving_usd: 0", "min_saving_usd: 1"),
    ("demo", "hold: 1m", "hold: 0s"),
    ("demo", "hold: 1m", "hold: 5m"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text", "instead"), CHANGES)
def test_a_changed_policy_fails_a_case(name: str, text: str, instead: str, tmp_path: Path) -> None:
    policy = (FOLDER / f"{name}.yaml").read_text()
    assert text in policy
    (tmp_path / f"{name}.yaml").write_text(policy.replace(text, instead))
    (tmp_path / f"{name}.test.yaml").write_text((FOLDER / f"{name}.test.yaml").read_text())
    file, errors = read_cases(tmp_path / f"{name}.test.yaml")
    assert file is not None, errors
    played = (judge(case, tariffs.billing_rule, tariffs.egress_micro_usd_per_gib) for case in file.cases)
    assert not all(verdict.passed for verdict in played)
