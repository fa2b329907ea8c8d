"""The building blocks of methods: small changes to a network, in place, by module name."""

from pocketune.surgery.branch import BRANCH, add_branches
from pocketune.surgery.chain import chain_filters
from pocketune.surgery.freeze import (
    batch_norms,
    freeze_batch_norms,
    freeze_convolutions,
    parameters_under,
    separate_batch_norms,
    train_only,
)
from pocketune.surgery.heads import settle_output
from pocketune.surgery.norms import (
    group_norms,
    kernels_before_norms,
    settle_kernels,
    use_norms,
)
from pocketune.surgery.prune import prune
from pocketune.surgery.quantize import (
    dequantize,
    float_shapes,
    in_float,
    quantize_frozen,
    quantized,
)
from pocketune.surgery.swap import (
    mask_activations,
    masked_activations,
    separate,
    signed_activations,
    signed_after,
    swap,
)
from pocketune.surgery.truncate import truncate

__all__ = [
    "BRANCH",
    "add_branches",
    "batch_norms",
    "chain_filters",
    "dequantize",
    "float_shapes",
    "freeze_batch_norms",
    "freeze_convolutions",
    "group_norms",
    "in_float",
    "kernels_before_norms",
    "mask_activations",
    "masked_activations",
    "parameters_under",
    "prune",
    "quantize_frozen",
    "quantized",
    "separate",
    "separate_batch_norms",
    "settle_kernels",
    "settle_output",
    "signed_activations",
    "signed_after",
    "swap",
    "train_only",
    "truncate",
    "use_norms",
]
