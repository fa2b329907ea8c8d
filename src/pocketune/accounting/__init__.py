"""What a training step really takes, in bytes and FLOPs."""

from pocketune.accounting.costs import Flops, LayerCost
from pocketune.accounting.flops import OperatorFlops, register_flops
from pocketune.accounting.report import Report, account
from pocketune.accounting.timeline import Memory, Snapshot

__all__ = [
    "Flops",
    "LayerCost",
    "Memory",
    "OperatorFlops",
    "Report",
    "Snapshot",
    "account",
    "register_flops",
]
