"""What methods are made of: small changes to a network, in place, by the names of its modules."""

from pocketune.networks.branch import BRANCH, add_branches
from pocketune.networks.modules import Factory
from pocketune.surgery.activation import masked_activations, signed_activations, signed_after
from pocketune.surgery.calibrate import calibrate, input_formats, observe_formats
from pocketune.surgery.chain import chain_filters
from pocketune.surgery.filter import filter_convolution
from pocketune.surgery.freeze import (
    batch_norms,
    disable_inplace,
    freeze_batch_norms,
    freeze_convolutions,
    parameters_under,
    separate_batch_norms,
    train_only,
)
from pocketune.surgery.group_norm import make_contiguous
from pocketune.surgery.lean import use_lean_layers
from pocketune.surgery.prune import prune
from pocketune.surgery.quantise import (
    dequantise,
    float_shapes,
    in_float,
    quantise_frozen,
    quantised,
)
from pocketune.surgery.shared import separate
from pocketune.surgery.standardize import standardize_convolution
from pocketune.surgery.swap import swap

__all__ = [
    "BRANCH",
    "Factory",
    "add_branches",
    "batch_norms",
    "calibrate",
    "chain_filters",
    "dequantise",
    "disable_inplace",
    "filter_convolution",
    "float_shapes",
    "freeze_batch_norms",
    "freeze_convolutions",
    "in_float",
    "input_formats",
    "make_contiguous",
    "masked_activations",
    "observe_formats",
    "parameters_under",
    "prune",
    "quantise_frozen",
    "quantised",
    "separate",
    "separate_batch_norms",
    "signed_activations",
    "signed_after",
    "standardize_convolution",
    "swap",
    "train_only",
    "use_lean_layers",
]
