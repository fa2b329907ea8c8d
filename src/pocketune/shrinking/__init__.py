"""Pretraining supernets by progressive shrinking.

The names below are looked up when they are first used: a recipe can be read without PyTorch.
"""

from typing import TYPE_CHECKING

from pocketune.lazy import lazy_names

if TYPE_CHECKING:
    from pocketune.shrinking.pretraining import pretrain_supernet as pretrain_supernet
    from pocketune.shrinking.recipe import ShrinkingRecipe as ShrinkingRecipe

_HOMES = {
    "pretraining": ["pretrain_supernet"],
    "recipe": ["ShrinkingRecipe"],
}

if not TYPE_CHECKING:  # with a `__getattr__` every name would be right to a type checker
    __getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
