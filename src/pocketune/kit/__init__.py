"""The kit: the format that the author half writes and the device half reads.

The names below are imported on first use: the list of bundled kits needs no numpy.
"""

from typing import TYPE_CHECKING

from pocketune.lazy import lazy_names

if TYPE_CHECKING:
    from pocketune.kit.kit import Kit as Kit
    from pocketune.kit.manifest import KitError as KitError
    from pocketune.kit.manifest import Manifest as Manifest

_HOMES = {"kit": ["Kit"], "manifest": ["KitError", "Manifest"]}

if not TYPE_CHECKING:  # a `__getattr__` would make type checkers accept any name
    __getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
