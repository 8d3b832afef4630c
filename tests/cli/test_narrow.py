"""Tables on terminals of several widths."""

import sys

import pytest

from broker.cli.output import show_table

COLUMNS = (
    *("OFFER", "GPU", "COUNT", "$/H", "$/GPU/H", "LIST", "AGE", "SOURCE", "OBTAIN", "LINK", "REGION", "NOTE"),
)
KEY = "azure/eastus/Standard_NC40ads_H100_v5/on_demand"
ROWS = [
    (
        *("gcp/us-central1-a/a3-highgpu-1g/spot", "H100-SXM5-80GB", 1, "$2.95", "$2.95", None, "3m42s"),
        *("gcp:capacity_history", "90 % · preempted 12 %", "gpudirect", "us-central1", ""),
    ),
    (
        *(KEY, "H100-NVL-94GB", 1, "$6.98", "$6.98", None, "42s"),
        *("azure:retail", "evicted 5–10 %/h", "pcie", "eastus", "prices only"),
    ),
]
SPARE = ("SOURCE", "REGION", "LINK")


@pytest.fixture
def shown(monkeypatch, capsys):
    def show(width):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(width))
        show_table(COLUMNS, ROWS, spare=SPARE)
        return [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip(" ─")]

    return show


def test_a_wide_terminal_has_every_column(shown):
    head, *lines = shown(200)
    assert all(name in head for name in COLUMNS if name != "LIST")
    assert len(lines) == len(ROWS)


def test_columns_that_can_be_spared_go_before_anything_is_folded(shown):
    head, *lines = shown(160)
    assert ("SOURCE" in head, "REGION" in head, "LINK" in head) == (False, False, True)
    assert len(lines) == len(ROWS)
    head, *lines = shown(140)
    assert not any(name in head for name in SPARE)
    assert len(lines) == len(ROWS), "a line an offer"
    assert "prices only" in lines[1]


def test_an_offer_takes_two_lines_of_80_columns_and_its_key_is_whole(shown):
    lines = shown(80)
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if not line.startswith(" ")] == [lines[0], lines[2]]
    assert len(lines) == 2 * len(ROWS)
    assert lines[2].startswith(f"{KEY}  gpu ")
    assert "azure:retail" not in "".join(lines)


def test_an_id_wider_than_the_terminal_is_not_cut(shown):
    assert KEY in shown(30)


def test_what_is_short_stays_on_one_line_with_its_name(shown):
    assert "$/h $6.98;" in " ".join(line for line in shown(80) if "$/h" in line)
    assert not any(line.endswith("$/h") for width in range(70, 90) for line in shown(width))
