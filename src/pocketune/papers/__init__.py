"""The papers' own ways to count, and their tables."""

from pocketune.papers.conventions.repnet import by_block
from pocketune.papers.published import published_flops, published_memory
from pocketune.papers.rules import counts_as
from pocketune.papers.trace import Call, Walk, walk

__all__ = [
    "Call",
    "Walk",
    "by_block",
    "counts_as",
    "published_flops",
    "published_memory",
    "walk",
]
