"""Memory and FLOPs: by the papers' conventions, and as they are."""

from pocketune.accounting.costs import Account, Cost, Work
from pocketune.accounting.flops import Flops, register_flops
from pocketune.accounting.real import account
from pocketune.accounting.timeline import Memory, Moment

__all__ = [
    "Account",
    "Cost",
    "Flops",
    "Memory",
    "Moment",
    "Work",
    "account",
    "register_flops",
]
