"""Memory and FLOPs: by the papers' conventions, and as they are."""

from pocketune.accounting.conventions.repnet import by_block
from pocketune.accounting.published import published_flops, published_memory
from pocketune.accounting.rules import counts_as
from pocketune.accounting.walk import Call, Walk, walk

__all__ = [
    "Call",
    "Walk",
    "by_block",
    "counts_as",
    "published_flops",
    "published_memory",
    "walk",
]
