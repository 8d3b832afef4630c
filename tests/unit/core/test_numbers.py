"""Numbers, durations, sizes and money as people write them: what only Python takes for a number is none."""

import pytest

from broker.core.money import micro_usd
from broker.core.size import parse_size
from broker.core.time import parse_duration
from broker.core.whole import parse_whole

ARABIC_3 = "\u0663"


@pytest.mark.parametrize(("text", "number"), [("8", 8), (" 08 ", 8), ("-3", -3), ("9" * 18, 10**18 - 1)])
def test_a_whole_number(text: str, number: int):
    assert parse_whole(text) == number


@pytest.mark.parametrize(
    "text", ["", "1_3", ARABIC_3, "8.0", "+8", "1e3", "8x", "--8", "0x8", "1 3", "9" * 19, "9" * 5000]
)
def test_no_whole_number(text: str):
    with pytest.raises(ValueError, match=r"is not a whole number|more than 18 digits") as told:
        parse_whole(text)
    assert len(str(told.value)) < 100


@pytest.mark.parametrize("text", [f"{ARABIC_3}h", "1_3h", "1h_30m", f"1.{ARABIC_3}h"])
def test_no_duration(text: str):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", [f"{ARABIC_3}GiB", "1_3GiB", f"1.{ARABIC_3}GiB"])
def test_no_size(text: str):
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize("text", [ARABIC_3, "1_3", f"2.{ARABIC_3}"])
def test_no_money(text: str):
    with pytest.raises(ValueError, match="is not an amount of dollars"):
        micro_usd(text)


@pytest.mark.parametrize("text", ["1e13", "1e999999", "1e999999999", "-1e13", "9" * 5000])
def test_money_that_nobody_has_is_refused_before_it_is_written_out(text: str):
    with pytest.raises(ValueError, match="more dollars than there are"):
        micro_usd(text)


def test_money_as_vendors_write_it():
    assert micro_usd("32.7726000000") == 32_772_600
    assert micro_usd("1e-05") == 10
    assert micro_usd(" 3 ") == 3_000_000
