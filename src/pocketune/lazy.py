"""Names of a package that are imported on first use."""

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

_one_at_a_time = threading.RLock()
"""Held while a module is imported. Threads that begin to import a package at different submodules,
numpy's or ours, would see each other's unfinished ones: Python does not wait where each thread has
begun what the other asks for."""


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package that imports its modules on demand.

    Type checkers cannot follow it, so the package also imports the names under `TYPE_CHECKING`.

    Args:
        package: The package's `__name__`.
        homes: The names to take from each module of the package, by the module's name.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def look_up(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with _one_at_a_time:
            value = getattr(import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)  # found directly from now on
        return value

    return look_up, lambda: sorted(home), list(home)
