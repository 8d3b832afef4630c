"""The picture of a rehearsal: whole, of every placement, and at the right places."""

import xml.etree.ElementTree as ET
from typing import Any

from lab.demo.timeline import draw

FIRST = "aws/use1-az6/p5.4xlarge/spot"
SECOND = "gcp/us-central1-a/a3-highgpu-1g/spot"
SVG = "{http://www.w3.org/2000/svg}"


def placement(name: str, offer: str, **times: int | None) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(
        ("ready_at_ms", "active_at_ms", "training_at_ms", "stopped_at_ms", "gone_at_ms", "resumed_step")
    )
    return row | {"id": name, "offer": offer, "reason": f"why <{name}>", "last_step": 9} | times


def minutes(at: float) -> int:
    return round(at * 60_000)


def rehearsal() -> dict[str, Any]:
    return {
        "seed": 7,
        "final_weights_sha256": "same",
        "uninterrupted_weights_sha256": "same",
        "ledger": {"paid_usd": 1.234, "stay_usd": 2.5},
        "prices": {
            FIRST: [[minutes(-5), 3_000_000], [minutes(2), 6_000_000]],
            SECOND: [[minutes(-5), 2_000_000]],
        },
        "placements": [
            placement("p1", SECOND, created_at_ms=0, gone_at_ms=minutes(0.1)),
            placement("p2", FIRST, created_at_ms=0, active_at_ms=minutes(1), training_at_ms=minutes(1), stopped_at_ms=minutes(5), gone_at_ms=minutes(6)),
            placement("p3", SECOND, created_at_ms=minutes(3), active_at_ms=minutes(5), training_at_ms=minutes(5), stopped_at_ms=minutes(10), gone_at_ms=minutes(10)),
        ],
        "migrations": [{"from": FIRST, "to": SECOND, "cutover_at": minutes(5), "resumed_step": 5, "steps_redone": 1, "pause_s": 7.4}],
        "interruptions": [],
    }  # fmt: skip


def drawn(report: dict[str, Any]) -> ET.Element:
    return ET.fromstring(draw(report))


def boxes(picture: ET.Element, kind: str) -> list[tuple[float, float]]:
    """(left, right) of the boxes of the lanes; the legend's are 16 wide."""
    found = [box for box in picture.iter(f"{SVG}rect") if box.get("class") == kind]
    return [
        (float(box.attrib["x"]), float(box.attrib["x"]) + float(box.attrib["width"])) for box in found[:-1]
    ]


def test_a_bar_is_as_long_as_its_placement_trained() -> None:
    first, second = boxes(drawn(rehearsal()), "train")
    minute = (first[1] - first[0]) / 4
    assert second[1] - second[0] == round(5 * minute, 1)
    assert second[0] == first[1]


def test_what_the_cloud_refused_is_a_cross_with_its_reason() -> None:
    (cross, _legend) = [mark for mark in drawn(rehearsal()).iter(f"{SVG}path") if mark.get("class") == "refused"]  # fmt: skip
    assert cross.findtext(f"{SVG}title") == "why <p1>"


def test_prices_are_drawn_from_the_one_in_force() -> None:
    texts = [text.text for text in drawn(rehearsal()).iter(f"{SVG}text") if text.get("class") == "usd"]
    assert texts == ["$3.00/h", "$6.00/h", "$2.00/h"]


def test_a_hand_over_says_what_it_cost() -> None:
    (text,) = [text.text for text in drawn(rehearsal()).iter(f"{SVG}text") if text.get("class") == "cut-text"]
    assert text == "moved: step 5, 1 redone, pause 7 s"


def test_different_weights_are_not_hidden() -> None:
    assert "DIFFERENT" in draw(rehearsal() | {"final_weights_sha256": "other"})


def test_a_run_without_prices_and_hand_overs_is_drawn() -> None:
    report = rehearsal() | {"migrations": []}
    del report["prices"]
    assert len(boxes(drawn(report), "land")) == 2
