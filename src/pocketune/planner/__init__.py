"""Choosing what to train on a user's photos, within limits of memory and time.

The names below are imported on first use, so that limits can be read without the runtime.
"""

from typing import TYPE_CHECKING

from pocketune.lazy import lazy_names

if TYPE_CHECKING:
    from pocketune.planner.plan import Plan as Plan

_HOMES = {
    "plan": ["Plan"],
}

if not TYPE_CHECKING:  # a `__getattr__` would make type checkers accept any name
    __getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
