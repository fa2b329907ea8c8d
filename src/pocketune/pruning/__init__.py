"""Pruning networks to a memory target, and retraining them.

The names below are looked up when they are first used: a recipe can be read without PyTorch.
"""

from typing import TYPE_CHECKING

from pocketune.lazy import lazy_names

if TYPE_CHECKING:
    from pocketune.pruning.plan import PruningPlan as PruningPlan
    from pocketune.pruning.plan import plan_pruning as plan_pruning
    from pocketune.pruning.plan import prune_for_memory as prune_for_memory
    from pocketune.pruning.profile import MemoryProfile as MemoryProfile
    from pocketune.pruning.profile import profile_memory as profile_memory
    from pocketune.pruning.recipe import Recipe as Recipe
    from pocketune.pruning.retraining import retrain as retrain

_HOMES = {
    "plan": ["PruningPlan", "plan_pruning", "prune_for_memory"],
    "profile": ["MemoryProfile", "profile_memory"],
    "recipe": ["Recipe"],
    "retraining": ["retrain"],
}

if not TYPE_CHECKING:  # with a `__getattr__` every name would be right to a type checker
    __getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
