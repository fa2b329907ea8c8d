"""Fine-tuning methods: what is trained, what is replaced, what is added."""

from pocketune.methods.baselines import BiasAndLast, FullFineTune, LastLayer, NormAndLast, TopBlocks
from pocketune.methods.calibrate import Calibrate
from pocketune.methods.few_bit import FewBitBackward
from pocketune.methods.gradient_filter.choice import FilterChoice, measure_filters
from pocketune.methods.gradient_filter.method import GradientFilter
from pocketune.methods.gradient_filter.quality import LayerSNR, dc_energy, dc_ratio, gradient_snr
from pocketune.methods.lora import LoRA
from pocketune.methods.low_rank_backward import LowRankBackward
from pocketune.methods.method import Method, Sum, TrainableCount, adapt, final_plan, trainable
from pocketune.methods.mobiletl import MobileTL, SignedBackward
from pocketune.methods.plan import MethodConflict, Pass, Plan
from pocketune.methods.pruned_activations import ActivationPruning
from pocketune.methods.registry import (
    compose_method,
    create_method,
    describe_method,
    list_methods,
    method_from_dict,
    method_to_dict,
    register_method,
)
from pocketune.methods.repnet import RepNet
from pocketune.methods.tinytl import TinyTL

__all__ = [
    "ActivationPruning",
    "BiasAndLast",
    "Calibrate",
    "FewBitBackward",
    "FilterChoice",
    "FullFineTune",
    "GradientFilter",
    "LastLayer",
    "LayerSNR",
    "LoRA",
    "LowRankBackward",
    "Method",
    "MethodConflict",
    "MobileTL",
    "NormAndLast",
    "Pass",
    "Plan",
    "RepNet",
    "SignedBackward",
    "Sum",
    "TinyTL",
    "TopBlocks",
    "TrainableCount",
    "adapt",
    "compose_method",
    "create_method",
    "dc_energy",
    "dc_ratio",
    "describe_method",
    "final_plan",
    "gradient_snr",
    "list_methods",
    "measure_filters",
    "method_from_dict",
    "method_to_dict",
    "register_method",
    "trainable",
]
