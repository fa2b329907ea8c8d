"""Memory and FLOPs: by the papers' conventions, and as they are."""

from pocketune.accounting.published import published_memory
from pocketune.accounting.rules import counts_as
from pocketune.accounting.walk import Call, Walk, walk

__all__ = ["Call", "Walk", "counts_as", "published_memory", "walk"]
