"""Curves as an SVG: where its window ends, and what is written below it."""

import re
from xml.etree import ElementTree

import pytest

from broker.cli.curve_plots import as_svg
from broker.core.time import DAY_S, HOUR_S, MS

NOW_MS = 1_763_564_341_000  # 2025-11-19T14:59:01Z
WIDTH = 830.0


@pytest.mark.parametrize(
    ("hours", "last_label"),
    [(0, None), (2, "19 Nov 14:30"), (30, "19 Nov 12:00"), (288, "18 Nov"), (9000, "18 Sep 2025")],
)
def test_the_axis_ends_now_and_has_no_label_of_the_future(hours, last_label):
    began_ms = NOW_MS - round(hours * HOUR_S * MS)
    point = {"effective_at_ms": began_ms, "price_micro_usd_h": 3_000_000, "observed_at_ms": began_ms}
    item = {"key": "k", "offer": {"gpus": 1}, "points": [point], "last_seen_ms": NOW_MS}
    root = ElementTree.fromstring(as_svg("t", [item], NOW_MS - 400 * DAY_S * MS, NOW_MS))
    (path,) = [element.get("d") for element in root.iter() if element.get("d")]
    corners = [float(number) for number in re.findall(r"[0-9.]+", path)]
    assert corners[-2] == pytest.approx(WIDTH)
    if last_label is not None:
        assert corners[0] == pytest.approx(0)
    texts = [element for element in root.iter() if element.tag.endswith("text")]
    labels = [text for text in texts if re.match(r"\d\d \w{3}", text.text or "")]
    assert all(0 <= float(label.get("x", "nan")) <= WIDTH for label in labels)
    assert (labels[-1].text if labels else None) == last_label
