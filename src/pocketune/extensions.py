"""Methods, networks and tasks of other installed packages, found by their entry points.

    [project.entry-points."pocketune.methods"]
    leaky = "my_package.leaky"

An entry point has the name of what its module registers. The module is imported when that name is
asked for, or when all names are listed: whoever uses none does not search the installed packages.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal

from pocketune.errors import PocketuneError, warn

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = Literal["methods", "networks", "objectives", "tasks"]


def import_extension(kind: Kind, name: str) -> None:
    """Import the module that registers a name, if an installed package has one.

    Raises:
        PocketuneError: It cannot be imported.
    """
    if name in (found := _entry_points(kind)):
        _import(kind, found[name])


def import_extensions(kind: Kind) -> None:
    """Import the modules of all names; warns of those that cannot be imported."""
    for point in _entry_points(kind).values():
        try:
            _import(kind, point)
        except PocketuneError as error:
            warn(str(error))


@cache
def _entry_points(kind: Kind) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # most runs do not need it

    return {point.name: point for point in entry_points(group=f"pocketune.{kind}")}


def _import(kind: Kind, point: EntryPoint) -> None:
    try:
        point.load()
    except Exception as error:  # a stranger's module may raise anything
        package = f"the package {point.dist.name}" if point.dist else "an installed package"
        raise PocketuneError(
            f"the {kind[:-1]} {point.name!r} of {package} cannot be imported, "
            f"{type(error).__name__}: {error}; repair the package or uninstall it"
        ) from error
