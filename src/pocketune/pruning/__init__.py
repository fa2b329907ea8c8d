"""Pruning networks to a memory target, and retraining them."""

from pocketune.pruning.plan import PruningPlan, plan_pruning, prune_for_memory
from pocketune.pruning.profile import MemoryProfile, profile_memory
from pocketune.pruning.retraining import Recipe, retrain

__all__ = [
    "MemoryProfile",
    "PruningPlan",
    "Recipe",
    "plan_pruning",
    "profile_memory",
    "prune_for_memory",
    "retrain",
]
