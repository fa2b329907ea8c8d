"""Memory and FLOPs: by the papers' conventions, and as they are."""

from pocketune.accounting.conventions.repnet import by_block
from pocketune.accounting.costs import Account, Cost, Work
from pocketune.accounting.flops import Flops, register_flops
from pocketune.accounting.published import published_flops, published_memory
from pocketune.accounting.real import account
from pocketune.accounting.rules import counts_as
from pocketune.accounting.timeline import Memory, Moment
from pocketune.accounting.walk import Call, Walk, walk

__all__ = [
    "Account",
    "Call",
    "Cost",
    "Flops",
    "Memory",
    "Moment",
    "Walk",
    "Work",
    "account",
    "by_block",
    "counts_as",
    "published_flops",
    "published_memory",
    "register_flops",
    "walk",
]
