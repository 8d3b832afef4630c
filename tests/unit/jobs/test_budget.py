"""What budgets are held against: bills by job, by epoch and by policy and month."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from broker.core.model import Job, Placement, Progress, Purpose, Segment
from broker.core.offer import Market, Offer, Quote
from broker.core.spec import GpuRequest, JobSpec, Resources
from broker.core.tariff import BillingRule
from broker.core.time import from_iso
from broker.jobs.budget import month_start_ms, tally
from broker.jobs.ledger import bill

HOUR = 3_600_000
NOW = from_iso("2026-12-01T03:00:00Z")
DECEMBER = from_iso("2026-12-01T00:00:00Z")
OFFER = Offer("aws", "us-east-1", "use1-az6", "p5.48xlarge", Market.SPOT, "H100-SXM5-80GB", 8)
RULE = BillingRule(unit_s=1)
JOB = Job("j1", JobSpec("t", "true", Resources((GpuRequest("H100"),))), "default", "ada", 0)
PLACEMENT = Placement("p1", "j1", 1, OFFER, 36_000_000, Purpose.PLACE, "default", "policy:nights", 0)


def paid(start_ms: int, end_ms: int | None, usd_h: float = 10, job_id: str = "j1", placement_id: str = "p1", priced_from: int = 0):  # fmt: skip
    segment = Segment("bk-a-0", placement_id, job_id, "default", OFFER, start_ms, end_ms, None)
    return bill(segment, [Quote(OFFER, round(usd_h * 1e6), priced_from, priced_from, "test")], RULE, NOW)


def dollars(amounts) -> dict[str, float]:
    return {name: amount / 1e6 for name, amount in amounts.items()}


def test_the_month_begins_in_utc() -> None:
    assert month_start_ms(NOW) == DECEMBER
    assert month_start_ms(DECEMBER) == DECEMBER
    assert month_start_ms(DECEMBER - 1) == from_iso("2026-11-01T00:00:00Z")


def test_a_bill_over_the_end_of_a_month_is_shared_out() -> None:
    found = tally([paid(DECEMBER - 2 * HOUR, None)], {"p1": PLACEMENT}, {"j1": JOB}, NOW)
    assert dollars(found.run) == {"j1": 50}
    assert dollars(found.month) == {"nights": 30}
    assert found.epoch == found.run, "no epoch was ever reported"


def test_an_epoch_is_paid_for_from_when_it_began() -> None:
    job = replace(JOB, progress=Progress(NOW, epoch=2.3, epoch_since_ms=NOW - HOUR // 2))
    bills = [paid(NOW - 3 * HOUR, NOW - HOUR, 100), paid(NOW - HOUR, None)]
    found = tally(bills, {"p1": PLACEMENT}, {"j1": job}, NOW)
    assert (dollars(found.run), dollars(found.epoch)) == ({"j1": 210}, {"j1": 5})


def test_money_is_of_the_policy_that_rented_the_node_and_of_jobs_that_are_over_too() -> None:
    other = replace(PLACEMENT, id="p2", created_by="policy:days")
    nobody = replace(PLACEMENT, id="p3", created_by="ada")
    bills = [
        paid(NOW - HOUR, None),
        paid(NOW - HOUR, None, 20, placement_id="p2"),
        paid(NOW - HOUR, NOW, 40, job_id="over"),
        paid(NOW - HOUR, NOW, 80, placement_id="p3"),
    ]
    found = tally(bills, {p.id: p for p in (PLACEMENT, other, nobody)}, {"j1": JOB}, NOW)
    assert dollars(found.month) == {"nights": 50, "days": 20}
    assert dollars(found.run) == {"j1": 110}


def test_time_without_a_known_price_is_charged_as_the_decision_saw_it() -> None:
    blind = paid(NOW - 2 * HOUR, NOW, 10, priced_from=NOW - HOUR)
    found = tally([blind], {"p1": PLACEMENT}, {"j1": JOB}, NOW)
    assert dollars(found.run) == {"j1": 46}
    assert dollars(found.month) == {"nights": 46}


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(1, 100), st.integers(0, 90)), max_size=5),
    st.integers(0, 300),
)
def test_no_part_is_more_than_the_whole(stretches, since_h: int) -> None:
    bills = [paid(NOW - start * HOUR, min(NOW, NOW - (start - h) * HOUR), usd) for start, h, usd in stretches]
    job = replace(JOB, progress=Progress(NOW, epoch=1.0, epoch_since_ms=NOW - since_h * HOUR))
    found = tally(bills, {"p1": PLACEMENT}, {"j1": job}, NOW)
    run = found.run.get("j1", 0)
    assert run == sum(b.paid_micro_usd for b in bills)
    assert 0 <= found.epoch.get("j1", 0) <= run
    assert 0 <= found.month.get("nights", 0) <= run
