"""Networks with weights: creating them, and the formats that weights come in."""

from pocketune.weights.batch_norm import estimate_batch_norm, restore_batch_norm
from pocketune.weights.create import create_network, load_network
from pocketune.weights.measured import sample_batches
from pocketune.weights.saved import save_network

__all__ = [
    "create_network",
    "estimate_batch_norm",
    "load_network",
    "restore_batch_norm",
    "sample_batches",
    "save_network",
]
