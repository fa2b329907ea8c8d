"""The Pareto front."""

from operator import itemgetter

from hypothesis import given
from hypothesis import strategies as st

from pocketune.pareto import pareto_front

PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)))


def front_of(found):
    return pareto_front(found, itemgetter(0), itemgetter(1))


def test_beaten_ones_have_no_place_on_the_front():
    found = [(3, 0.5), (1, 0.4), (2, 0.3), (4, 0.5), (1, 0.2), (5, 0.6)]
    assert front_of(found) == [(1, 0.4), (3, 0.5), (5, 0.6)]


@given(PAIRS)
def test_each_is_on_the_front_or_beaten_by_one_that_is(found):
    front = front_of(found)
    for cost, value in found:
        reached = [best for own, best in front if own <= cost]
        assert max(reached) >= value
        assert ((cost, value) in front) == ((cost, value) not in beaten(found))


def beaten(found):
    return {
        each
        for each in found
        for other in found
        if other != each and other[0] <= each[0] and other[1] >= each[1]
    }
