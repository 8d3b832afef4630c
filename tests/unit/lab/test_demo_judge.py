"""What the rehearsal forgives: less than a cent between ledger and bill, and nothing else about money."""

import io

import pytest
from rich.console import Console

from lab.demo.checker import FIRST, GCP, judge
from lab.demo.screen import last_screen


def found(paid_usd: float) -> dict:
    handover = {"from": FIRST, "to": GCP, "pause_s": 30.0, "resumed_step": 300, "steps_redone": 0}
    return {
        "final_weights_sha256": "a" * 64,
        "uninterrupted_weights_sha256": "a" * 64,
        "nodes_created": 3,
        "nodes_left": 0,
        "steps": 380,
        "migrations": [handover],
        "interruptions": [handover | {"from": GCP, "to": FIRST}],
        "ledger": {
            "paid_usd": paid_usd,
            "lab_bill_usd": 1.8573,
            "stay_usd": 2.5,
            "stay_usd_h": 5.66,
            "here_usd_h": 2.95,
        },
        "price_points": 9,
        "probe_reports": [{}, {}, {}],
        "placements": [],
        "clock_rate": 20.0,
        "wall_s": 90.0,
    }


@pytest.mark.parametrize(
    ("paid_usd", "wrong"), [(1.8591, 0), (1.8573, 0), (1.8672, 0), (1.8674, 1), (1.8470, 1)]
)
def test_ledger_and_bill_agree_within_a_cent(paid_usd: float, wrong: int) -> None:
    assert len(judge(found(paid_usd))) == wrong


def test_the_last_screen_says_why_they_are_not_equal() -> None:
    console = Console(record=True, width=300, file=io.StringIO())
    placement = {
        "id": "j-p1", "offer": FIRST, "created_at_ms": 0, "training_at_ms": 1000, "stopped_at_ms": 2000,
        "gone_at_ms": None, "resumed_step": None, "reason": "finished",
    }  # fmt: skip
    last_screen(console, found(1.8591) | {"placements": [placement]})
    text = console.export_text()
    assert (
        "paid $1.8591 (the lab's own bill: $1.8573, within a cent: EC2 tells when a machine was launched"
        in text
    )
