"""Compare networks, methods and kits on sets of photos, over several seeds.

This package starts processes: one builds a kit, one trains and evaluates a run. It loads neither
PyTorch nor ONNX Runtime itself. The names below are imported on first use.
"""

from typing import TYPE_CHECKING

from pocketune.lazy import lazy_names

if TYPE_CHECKING:
    from pocketune.comparison.cell import Cell as Cell
    from pocketune.comparison.grid import Grid as Grid
    from pocketune.comparison.result import Comparison as Comparison
    from pocketune.comparison.row import Row as Row
    from pocketune.comparison.run import compare as compare

_HOMES = {
    "cell": ["Cell"],
    "result": ["Comparison"],
    "row": ["Row"],
    "grid": ["Grid"],
    "run": ["compare"],
}

if not TYPE_CHECKING:  # a `__getattr__` would make type checkers accept any name
    __getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
