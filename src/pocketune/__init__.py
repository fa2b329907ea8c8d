"""Fine-tune a vision network on the device where its data lives, inside a memory budget.

The names below are imported on first use, so that `import pocketune` loads neither PyTorch (the
author half) nor ONNX Runtime (the device half).
"""

import os
from typing import TYPE_CHECKING

from pocketune.lazy import lazy_names

if TYPE_CHECKING:
    from pocketune.accounting import account as account
    from pocketune.accounting import register_flops as register_flops
    from pocketune.comparison import Comparison as Comparison
    from pocketune.comparison import compare as compare
    from pocketune.compiler import Calibration as Calibration
    from pocketune.compiler import compile as compile
    from pocketune.deployment import Reduced as Reduced
    from pocketune.deployment import export_reduced as export_reduced
    from pocketune.deployment import export_tflite as export_tflite
    from pocketune.device import BudgetExceeded as BudgetExceeded
    from pocketune.device import Delta as Delta
    from pocketune.device import Interrupted as Interrupted
    from pocketune.device import Predictor as Predictor
    from pocketune.device import Progress as Progress
    from pocketune.device import evaluate as evaluate
    from pocketune.device import export as export
    from pocketune.device import predict as predict
    from pocketune.device.train import TrainSettings as TrainSettings
    from pocketune.device.train import resume as resume
    from pocketune.device.train import train as train
    from pocketune.eager import calibrate as calibrate
    from pocketune.errors import PocketuneError as PocketuneError
    from pocketune.extractor import ExtractorSettings as ExtractorSettings
    from pocketune.extractor import adapt_extractor as adapt_extractor
    from pocketune.kit import Kit as Kit
    from pocketune.methods import ActivationPruning as ActivationPruning
    from pocketune.methods import BiasAndLast as BiasAndLast
    from pocketune.methods import Calibrate as Calibrate
    from pocketune.methods import FewBitBackward as FewBitBackward
    from pocketune.methods import FullFineTune as FullFineTune
    from pocketune.methods import GradientFilter as GradientFilter
    from pocketune.methods import LastLayer as LastLayer
    from pocketune.methods import LoRA as LoRA
    from pocketune.methods import LowRankBackward as LowRankBackward
    from pocketune.methods import MobileTL as MobileTL
    from pocketune.methods import NormAndLast as NormAndLast
    from pocketune.methods import RepNet as RepNet
    from pocketune.methods import SignedBackward as SignedBackward
    from pocketune.methods import TinyTL as TinyTL
    from pocketune.methods import TopBlocks as TopBlocks
    from pocketune.methods import adapt as adapt
    from pocketune.methods import create_method as create_method
    from pocketune.methods import dc_energy as dc_energy
    from pocketune.methods import dc_ratio as dc_ratio
    from pocketune.methods import gradient_snr as gradient_snr
    from pocketune.methods import list_methods as list_methods
    from pocketune.methods import measure_filters as measure_filters
    from pocketune.methods import trainable as trainable
    from pocketune.networks import Normalization as Normalization
    from pocketune.networks import about as about
    from pocketune.networks import anatomy as anatomy
    from pocketune.networks import list_networks as list_networks
    from pocketune.networks import set_about as set_about
    from pocketune.onnx_import import load_onnx as load_onnx
    from pocketune.papers import published_flops as published_flops
    from pocketune.papers import published_memory as published_memory
    from pocketune.planner.plan import Plan as Plan
    from pocketune.planning import plan as plan
    from pocketune.pruning import Recipe as Recipe
    from pocketune.pruning import plan_pruning as plan_pruning
    from pocketune.pruning import profile_memory as profile_memory
    from pocketune.pruning import prune_for_memory as prune_for_memory
    from pocketune.pruning import retrain as retrain
    from pocketune.reporting import report as report
    from pocketune.shrinking import ShrinkingRecipe as ShrinkingRecipe
    from pocketune.shrinking import pretrain_supernet as pretrain_supernet
    from pocketune.supernet import SubnetConfig as SubnetConfig
    from pocketune.supernet import Supernet as Supernet
    from pocketune.supernet import SupernetSpace as SupernetSpace
    from pocketune.supernet import load_supernet as load_supernet
    from pocketune.supernet import save_supernet as save_supernet
    from pocketune.surgery import prune as prune
    from pocketune.surgery import truncate as truncate
    from pocketune.tasks import Attributes as Attributes
    from pocketune.tasks import Classification as Classification
    from pocketune.tasks import Segmentation as Segmentation
    from pocketune.weights import create_network as create_network
    from pocketune.weights import estimate_batch_norm as estimate_batch_norm
    from pocketune.weights import load_network as load_network
    from pocketune.weights import restore_batch_norm as restore_batch_norm
    from pocketune.weights import sample_batches as sample_batches
    from pocketune.weights import save_network as save_network

__version__ = "0.1.0"

# ONNX Runtime reads this when it is imported. It is set here, before any module can import it, so
# that nothing is ever sent.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

_HOMES = {
    "accounting": ["account", "register_flops"],
    "comparison": ["Comparison", "compare"],
    "compiler": ["Calibration", "compile"],
    "deployment": ["Reduced", "export_reduced", "export_tflite"],
    "device": [
        "BudgetExceeded",
        "Delta",
        "Interrupted",
        "Predictor",
        "Progress",
        "evaluate",
        "export",
        "predict",
    ],
    "device.train": ["TrainSettings", "resume", "train"],
    "eager": ["calibrate"],
    "errors": ["PocketuneError"],
    "extractor": ["ExtractorSettings", "adapt_extractor"],
    "onnx_import": ["load_onnx"],
    "kit": ["Kit"],
    "methods": [
        "ActivationPruning",
        "BiasAndLast",
        "Calibrate",
        "FewBitBackward",
        "FullFineTune",
        "GradientFilter",
        "LastLayer",
        "LoRA",
        "LowRankBackward",
        "MobileTL",
        "NormAndLast",
        "RepNet",
        "SignedBackward",
        "TinyTL",
        "TopBlocks",
        "adapt",
        "create_method",
        "dc_energy",
        "dc_ratio",
        "gradient_snr",
        "list_methods",
        "measure_filters",
        "trainable",
    ],
    "networks": ["Normalization", "about", "anatomy", "list_networks", "set_about"],
    "papers": ["published_flops", "published_memory"],
    "planner.plan": ["Plan"],
    "planning": ["plan"],
    "pruning": ["Recipe", "plan_pruning", "profile_memory", "prune_for_memory", "retrain"],
    "reporting": ["report"],
    "shrinking": ["ShrinkingRecipe", "pretrain_supernet"],
    "supernet": ["SubnetConfig", "Supernet", "SupernetSpace", "load_supernet", "save_supernet"],
    "surgery": ["prune", "truncate"],
    "tasks": ["Attributes", "Classification", "Segmentation"],
    "weights": [
        "create_network",
        "estimate_batch_norm",
        "load_network",
        "restore_batch_norm",
        "sample_batches",
        "save_network",
    ],
}

if not TYPE_CHECKING:  # a `__getattr__` would make type checkers accept any name
    __getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
    __all__ += ["__version__"]
