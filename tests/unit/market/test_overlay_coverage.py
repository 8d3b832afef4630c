"""A commitment is full as long as there are nodes for it, and never more than full."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from readings import ON_DEMAND, SPOT

from broker.core.model import Segment
from broker.market.coverage import covered
from broker.market.overlay import Commitment, Overlay

NOW = 100


def segment(token, start, end, offer=ON_DEMAND):
    return Segment(token, "p", "j", "default", offer, start, end, None)


def overlay(count, offers="*/on_demand"):
    return Overlay(committed=(Commitment(offers=offers, micro_usd_h=1, count=count),))


def test_the_room_of_one_that_ends_goes_to_who_has_waited_longest():
    segments = [segment("a", 0, 10), segment("b", 2, 30), segment("c", 3, None), segment("d", 5, 8)]
    assert covered(overlay(1), segments, NOW) == {"a": ((0, 10),), "b": ((10, 30),), "c": ((30, NOW),)}


def test_other_offers_take_no_room():
    segments = [segment("a", 0, 10, SPOT), segment("b", 2, 9)]
    assert covered(overlay(1), segments, NOW) == {"b": ((2, 9),)}


def test_an_offer_counts_towards_the_first_commitment_that_matches():
    both = Overlay(committed=(*overlay(1, ON_DEMAND.key).committed, *overlay(5, "*").committed))
    elsewhere = replace(ON_DEMAND, zone="z")
    segments = [segment("a", 0, 10), segment("b", 1, 10), segment("c", 1, 10, elsewhere)]
    assert covered(both, segments, NOW) == {"a": ((0, 10),), "c": ((1, 10),)}


def test_the_next_year_has_a_commitment_of_its_own():
    first, then = overlay(1).committed[0], overlay(2).committed[0]
    years = Overlay(committed=(replace(first, until_ms=50), replace(then, from_ms=50, until_ms=80)))
    segments = [segment("a", 0, None), segment("b", 1, None), segment("c", 2, None)]
    assert covered(years, segments, NOW) == {"a": ((0, 50), (50, 80)), "b": ((50, 80),)}


spans = st.tuples(st.integers(0, 30), st.one_of(st.none(), st.integers(0, 30)))


@given(st.lists(spans, max_size=8), st.integers(1, 3))
def test_at_every_moment_as_many_are_inside_as_can_be(given_spans, count):
    segments = [
        segment(f"n{at}", start, None if length is None else start + length)
        for at, (start, length) in enumerate(given_spans)
    ]
    found = covered(overlay(count), segments, NOW)
    for moment in range(70):
        running = {
            s.node_token
            for s in segments
            if s.started_at_ms <= moment and (s.ended_at_ms is None or moment < s.ended_at_ms)
        }
        inside = {token for token, stretches in found.items() if any(a <= moment < b for a, b in stretches)}
        assert inside <= running
        assert len(inside) == min(count, len(running))
    for stretches in found.values():
        assert len(stretches) == 1, "once inside, it stays inside until it ends"
