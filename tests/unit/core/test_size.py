"""Sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.size import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("80GiB", 80 * 2**30), ("1.5 TiB", 3 * 2**39), ("300GB", 300 * 10**9), ("7B", 7), (" 1KiB ", 1024)],
)
def test_parse(text: str, size: int):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["80", "80G", "80gib", "-1GiB", "1e3MiB", "GiB", "", "1,5GiB"])
def test_not_a_size(text: str):
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@given(st.integers(0, 2**50))
def test_what_is_written_reads_back_within_a_tenth(size: int):
    assert abs(parse_size(format_size(size)) - size) <= size * 0.05
