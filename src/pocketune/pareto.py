"""The Pareto front of a cost and a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def pareto_front(
    found: Iterable[T], cost: Callable[[T], float], value: Callable[[T], float]
) -> list[T]:
    """Those whose value no other reaches at the same or a smaller cost, in the order of their cost.

    Of equal ones, the first is on the front.

    >>> pareto_front([(3, 0.5), (1, 0.4), (2, 0.3)], lambda x: x[0], lambda x: x[1])
    [(1, 0.4), (3, 0.5)]
    """
    front: list[T] = []
    for each in sorted(found, key=lambda each: (cost(each), -value(each))):
        if not front or value(each) > value(front[-1]):
            front.append(each)
    return front
