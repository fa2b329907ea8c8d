"""The memory of a process that is about to train, without a kit."""

from __future__ import annotations

from pocketune.device.memory.process import process_memory, reclaim


def training_baseline() -> int:
    """Resident bytes of this process once it has imported all that a run needs.

    A run measures the same before it opens its kit. The figure is too large in a process that has
    imported more, such as PyTorch.
    """
    from pocketune.device.engine import onnx  # noqa: F401
    from pocketune.device.train import run  # noqa: F401

    reclaim()
    return process_memory().current
