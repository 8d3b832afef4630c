"""Texts from outside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.visible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("6.98", "6.98"),
        ("Größe 1 €", "Größe 1 €"),
        ("\x1b[2J6.98\r\n", r"\x1b[2J6.98\r\n"),
        ("6.98\u202e", r"6.98\u202e"),
        ("\ud800", r"\ud800"),
        ("9" * 21, "9" * 17 + "..."),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert visible(text, 20) == shown


@given(st.text(st.characters()))
def test_it_is_short_and_can_be_written(text: str) -> None:
    shown = visible(text, 30)
    assert len(shown) <= 30
    assert shown.isprintable()
    shown.encode()
