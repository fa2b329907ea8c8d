"""Names of a package that are looked up when they are first used."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package that imports its modules on demand.

    Type checkers do not see through it: the package imports the same names for them, under
    `TYPE_CHECKING`.

    Args:
        package: its `__name__`.
        homes: by the name of a module in it, what is taken from there.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def look_up(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next time it is found at once
        return value

    return look_up, lambda: sorted(home), list(home)
