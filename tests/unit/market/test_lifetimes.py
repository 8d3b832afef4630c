import pytest
from readings import NOW, ON_DEMAND, SPOT

from broker.core.model import EndedBy, Segment
from broker.core.offer import Offer
from broker.market.lifetimes import Spell, expected_life_s, spot_lives

H = 3600.0


def segment(
    placement: str, hours: float | None, by: EndedBy | None, offer: Offer = SPOT, began_h: float = 30
) -> Segment:
    began_ms = NOW - round(began_h * 3_600_000)
    ended_ms = None if hours is None else began_ms + round(hours * 3_600_000)
    return Segment(f"bk-{placement}", placement, "job", "default", offer, began_ms, ended_ms, by)


def test_nothing_known_is_the_prior() -> None:
    assert expected_life_s([], prior_s=6 * H) == 6 * H


def test_interruptions_are_averaged_with_the_prior() -> None:
    assert expected_life_s([Spell(2 * H, True), Spell(1 * H, True)], prior_s=6 * H) == pytest.approx(3 * H)


def test_a_spell_that_we_ended_counts_as_survived() -> None:
    # One ended at 1 h by us; of the two left one dies at 2 h: 2 + 0.5 x (6 - 2)
    assert expected_life_s([Spell(1 * H, False), Spell(2 * H, True)], prior_s=6 * H) == pytest.approx(4 * H)


def test_a_spell_that_goes_on_is_expected_to_last_as_long_again() -> None:
    # 6 h for sure, then half the curve to 20 h, and as long again
    assert expected_life_s([Spell(20 * H, False)], prior_s=6 * H) == pytest.approx(6 * H + 7 * H + 10 * H)


def test_more_interruptions_never_lengthen_a_life() -> None:
    lives = [expected_life_s([Spell(H, True)] * n) for n in range(20)]
    assert lives == sorted(lives, reverse=True)
    assert lives[-1] > H


def test_by_pool_spot_only() -> None:
    segments = [segment("a", 2, EndedBy.CLOUD), segment("b", 9, EndedBy.CLOUD, ON_DEMAND)]
    assert spot_lives(segments, NOW) == {"aws/use1-az6/p5.4xlarge": pytest.approx(4 * H)}


def test_a_gang_ends_with_its_first_node() -> None:
    gang = [segment("a", 2, EndedBy.CLOUD), segment("a", 3, EndedBy.US), segment("a", 3, EndedBy.US)]
    assert spot_lives(gang, NOW) == {"aws/use1-az6/p5.4xlarge": pytest.approx(4 * H)}


def test_what_runs_still_counts_until_now() -> None:
    # 30 h so far: 6 + 0.5 x 24 + 0.5 x 30
    assert spot_lives([segment("a", None, None)], NOW) == {"aws/use1-az6/p5.4xlarge": pytest.approx(33 * H)}
