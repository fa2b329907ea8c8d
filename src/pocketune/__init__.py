"""Fine-tune a vision network on the device where its data lives, inside a memory budget.

The names below are looked up when they are first used, so that `import pocketune` brings in
neither PyTorch (the author half) nor ONNX Runtime (the device half).
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "errors": ["PocketuneError"],
    "networks": [
        "anatomy",
        "create_network",
        "list_networks",
        "load_network",
        "restore_batch_norm",
        "save_network",
    ],
    "surgery": ["calibrate", "prune"],
    "pruning": ["plan_pruning", "profile_memory", "prune_for_memory", "retrain"],
    "methods": [
        "BiasAndLast",
        "FullFineTune",
        "GradientFilter",
        "LastLayer",
        "MobileTL",
        "NormAndLast",
        "RepNet",
        "SignedBackward",
        "TinyTL",
        "TopBlocks",
        "adapt",
        "create_method",
        "list_methods",
        "trainable",
    ],
    "accounting": ["account", "register_flops"],
    "compiler": ["Calibration", "compile"],
    "device": ["Kit", "evaluate", "export", "predict", "resume", "train"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [*_HOME, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pocketune' has no attribute {name!r}")
    value = getattr(import_module(f"pocketune.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
