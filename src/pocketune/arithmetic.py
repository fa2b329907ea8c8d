"""How numpy treats overflow, underflow and divisions by zero, whatever the program has set."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from functools import wraps
from typing import TypedDict, TypeVar, cast

import numpy as np

_Function = TypeVar("_Function", bound=Callable[..., object])
_Item = TypeVar("_Item")


class _Treatment(TypedDict):
    divide: str
    over: str
    under: str
    invalid: str


_USUAL = _Treatment(divide="warn", over="warn", under="ignore", invalid="warn")
"""Numpy's defaults. A program may have numpy raise instead, and the exponential of a large negative
number underflows in every run."""


def usual_arithmetic(function: _Function) -> _Function:
    """A function that computes with numpy's default treatment of errors."""

    @wraps(function)
    def computing(*args: object, **options: object) -> object:
        with np.errstate(**_USUAL):  # type: ignore[arg-type]
            return function(*args, **options)

    return cast("_Function", computing)


def usually_computed(items: Generator[_Item, None, None]) -> Iterator[_Item]:
    """The items of a generator, each computed in that way; between them, numpy is as it was."""
    compute = usual_arithmetic(items.__next__)
    with closing(items), suppress(StopIteration):
        while True:
            yield compute()  # not held here: a prediction may be a large map
