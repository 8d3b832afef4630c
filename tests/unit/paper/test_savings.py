"""An observed run tells what an acting run of the same market saves: both on a whole daemon with real rows."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.cli.app import main
from broker.cli.records import Clouds, records_of
from broker.cli.savings import Account, account
from broker.core.model import JobState, Purpose
from broker.market.overlay import Overlay
from broker.settings import Settings
from broker.store.history import Poll
from broker.store.recorded import PriceRecord, reading_state
from tests.unit.migration.island import Island

pytestmark = pytest.mark.xdist_group("savings")

AZ6 = "aws/use1-az6/p5.4xlarge/spot"
GCP = "gcp/us-central1-a/a3-highgpu-1g/spot"
DEAR = {"aws/*/p5.4xlarge/*": "6.00", AZ6: "3.00", "gcp/*/a3-highgpu-1g/*": "5.00"}
RULES = """\
objective: cheapest
candidates: {max_quote_age: 10m}
place: {order: [spot, on_demand]}
migrate: {min_saving: 20%, min_saving_usd: 0, max_payback: 6h, hold: 1m, cooldown: 5m}
verify: {on_inconclusive: accept}
limits: {migrations_per_job_per_day: 20}
"""
STAYS = "policy: island\nmode: act\nobjective: cheapest\nplace: {order: [spot, on_demand]}\nmigrate: never\nverify: {on_inconclusive: accept}\n"
TURN_S = 20
STEPS = 5400
# By turn: the other cloud becomes cheap once the job trains; later it is the other way round.
SHOCKS = {40: {GCP: 2_400_000, AZ6: 5_700_000}, 200: {GCP: 6_500_000, AZ6: 2_000_000}}
HALF, ALL = 190, 310


class Recorded(Island):
    """An installation that also keeps its polls, as the poller does."""

    def poll(self):
        super().poll()
        now_ms = self.clock.now_ms()
        for cloud in self.clouds:
            self.history.record_poll(Poll(cloud, now_ms, now_ms, ok=True, offers=1))

    def records(self, tx, prices):
        clouds = Clouds(self.clouds, frozenset(self.clouds))
        return records_of(prices, tx, self.clock.now_ms(), Overlay(), clouds, Settings.parse(""))

    def account(self, since_ms=0):
        policies = self.policies.policies
        with (
            PriceRecord.open(self.folder / "history.db") as prices,
            reading_state(self.folder / "state.db", self.clock) as tx,
        ):
            return account(self.records(tx, prices), tx, policies, since_ms)

    def follow(self, prices, begin, end):
        """The market and the job, turn by turn."""
        for turn in range(begin, end):
            for key, price in prices.get(turn, {}).items():
                self.world.set_price(key, price)
            self.turn(TURN_S)

    def moves(self):
        return [p for p in self.placements() if p.purpose is Purpose.MOVE and p.active_at_ms]


def start(folder, **policies):
    one = Recorded(folder, prices=DEAR)
    one.steps = STEPS
    for file, text in policies.items():
        (folder / "policies" / f"{file}.yaml").write_text(text)
    one.policies.reload()
    assert not one.policies.errors
    one.submit()
    return one


@dataclass(frozen=True)
class Run:
    """The same market twice, to the end of both jobs.

    Attributes:
        half: What was accounted at half time.
        half_moves: Of the one that acts, until then.
        half_saved_micro_usd: By the world's own bills, until then.
    """

    acts: Recorded
    observes: Recorded
    half: Account
    half_moves: int
    half_saved_micro_usd: int


@pytest.fixture(scope="module")
def run():
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        acts = start(Path(folder) / "acts", island=f"policy: island\nmode: act\n{RULES}")
        observes = start(
            Path(folder) / "observes", island=STAYS, eager=f"policy: eager\nmode: observe\n{RULES}"
        )
        for island in (acts, observes):
            island.follow(SHOCKS, 0, HALF)
        half = observes.account(), len(acts.moves()), paid(observes) - paid(acts)
        for island in (acts, observes):
            island.follow(SHOCKS, HALF, ALL)
        yield Run(acts, observes, *half)
        acts.stop()
        observes.stop()


@pytest.fixture
def both(run):
    """(acting, observing)"""
    return run.acts, run.observes


def jobs_of(*islands):
    for island in islands:
        with island.store.read() as tx:
            (job,) = tx.jobs()
        yield job


def paid(island):
    """By the world's own bill."""
    return sum(line.cost_micro_usd for line in island.world.bill())


# What turns of 20 s may come to: a hand-over takes the daemon up to three of them, and none on paper.
PER_MOVE = 3 * TURN_S * (6_500_000 + 2_400_000) // 3600


def test_at_half_time_the_saving_is_what_both_have_paid_and_owe(run):
    assert run.half_moves == 1
    (one,) = run.half.savings
    assert (one.policy, one.paper.moves, one.paper.at) == ("eager", 1, GCP)
    assert not one.real.finished
    assert not one.paper.finished
    # Training stood still for the move: the one that stayed is ahead by that.
    assert 0 < one.paper.owed_micro_usd < 2_400_000 // 10
    assert one.saved_micro_usd + one.paper.owed_micro_usd == pytest.approx(
        run.half_saved_micro_usd, abs=PER_MOVE
    )


def test_what_an_observing_policy_would_have_saved_is_what_an_acting_one_saves(both):
    acts, observes = both
    assert [job.state for job in jobs_of(*both)] == [JobState.SUCCEEDED] * 2
    assert len(acts.moves()) == 2, "the market moves it there and back"
    assert not observes.moves(), "nothing is done"
    (one,) = observes.account().savings
    assert (one.paper.moves, one.paper.at, one.paper.finished) == (2, AZ6, True)
    saved = paid(observes) - paid(acts)
    assert saved > 8 * PER_MOVE, "or it would prove nothing"
    assert one.saved_micro_usd == pytest.approx(saved, abs=2 * PER_MOVE)
    assert one.real.owed_micro_usd == one.paper.owed_micro_usd == 0, "both are done"


def test_only_wishes_of_observing_policies_in_the_window_are_accounted(both):
    acts, observes = both
    assert not acts.account().savings, "what was done is no wish"
    last_ms = observes.account().savings[0].wish.at_ms
    assert not observes.account(since_ms=last_ms + 1).savings
    text = (observes.folder / "policies" / "eager.yaml").read_text()
    (observes.folder / "policies" / "eager.yaml").unlink()
    observes.policies.reload()
    found = observes.account()
    assert not found.savings
    assert [why for _, _, why in found.unplayed] == ["there is no such policy any more"]
    (observes.folder / "policies" / "eager.yaml").write_text(text)
    observes.policies.reload()


def test_without_the_poll_that_saw_it_a_price_moves_nothing(both):
    _, observes = both
    (job,) = jobs_of(observes)
    with (
        PriceRecord.open(observes.folder / "history.db") as prices,
        reading_state(observes.folder / "state.db", observes.clock) as tx,
    ):
        records = observes.records(tx, prices)
        policy = observes.policies.policies["eager"]
        market = records.market(job.spec, [policy], job.created_at_ms)
        cheap_ms = next(
            p.effective_at_ms for p in market.points(offer(market, GCP)) if p.price_micro_usd_h == 2_400_000
        )
        before, at = market.quotes(cheap_ms - 1)[GCP], market.quotes(cheap_ms + TURN_S * 1000)[GCP]
    assert before.price_micro_usd_h == 5_000_000
    assert at.price_micro_usd_h == 2_400_000
    assert at.age_s(cheap_ms + TURN_S * 1000) < TURN_S
    assert not market.assumed_looks


def offer(market, key):
    return market.quotes(2**53)[key].offer


def test_the_command_tells_it_with_what_it_assumes(both, capfd, tmp_path):
    _, observes = both
    config = tmp_path / "broker.toml"
    config.write_text(
        f'[state]\ndir = "{observes.folder}"\n[policies]\ndir = "{observes.folder / "policies"}"\n'
        '[clouds.aws]\nregions = ["us-east-1"]\n[clouds.gcp]\nproject = "p"\nregions = ["us-central1"]\n'
    )
    since = ("savings", "--config", str(config), "--since", "2026-01-01T00:00:00Z")
    capfd.readouterr()
    assert main([*since, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    (one,) = told["items"]
    assert one["saved_micro_usd"] == told["saved_micro_usd_by_policy"]["eager"]
    assert one["saved_micro_usd"] == one["real"]["paid_micro_usd"] - one["paper"]["paid_micro_usd"]
    assert len(told["assumptions"]) >= 5
    assert main([*since]) == 0
    out, err = capfd.readouterr()
    assert out.split("\t")[2] == "eager"
    assert "eager: saved $" in err
    assert "assumed: capacity is not recorded" in err
