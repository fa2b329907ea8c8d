"""A kit learns any number of classes: a step with another number, compared with PyTorch's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pocketune.arrays import FloatArray
from pocketune.compiler.check import CompileError
from pocketune.compiler.reference import Reference, smooth_images
from pocketune.compiler.settings import CompileSettings
from pocketune.device.engine.base import draw_masks
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import MaskSpec
from pocketune.networks.copies import copy_network, copy_shapes
from pocketune.networks.probe import float_type, probing
from pocketune.networks.shapes import RememberedShapes
from pocketune.objectives import objective_of
from pocketune.tasks import numbered

_TOLERANCE = 1e-2
"""Largest error of a gradient of the output layer, as a share of its largest magnitude. Where the
traced number of classes is built in, errors are of the size of the gradients; rounding is far
below. Layers before it may have gradients that are rounding alone, as a bias before a norm."""
_ATTEMPTS = 3
"""Batches tried: an activation on its kink, where rounding decides, is not there in all of them."""


def check_other_classes(
    kit: Kit, network: nn.Module, settings: CompileSettings, masks: Iterable[MaskSpec] = ()
) -> None:
    """Check that a kit trains for another number of classes than it was traced with.

    Nothing is run if the scores of the output layer are those of the network, as usual: nothing
    then depends on their number.

    Args:
        kit: The kit.
        network: The adapted network, its dropouts replaced by `SuppliedDropout`.
        settings: The settings of the kit.
        masks: The dropout masks that the engine draws.

    Raises:
        CompileError: The kit fails, or computes other gradients of the output layer than PyTorch.
    """
    if _ends_with_output_layer(network, settings):
        return
    classes = len(settings.task.classes) + 1
    try:
        error = _gradient_error(kit, network, settings, masks, classes)
    except PocketuneError:
        problem = f"a step with {classes} classes fails"
    else:
        if error <= _TOLERANCE:
            return
        problem = f"the gradients of {classes} classes are off by {error:.0%}"
    raise CompileError(
        f"what {type(network).__name__} does with its class scores depends on their number, and a "
        f"kit is for any number ({problem}); let it return the scores of its output layer"
    )


def _gradient_error(
    kit: Kit,
    network: nn.Module,
    settings: CompileSettings,
    masks: Iterable[MaskSpec],
    classes: int,
) -> float:
    """The largest error of a gradient of the output layer, on the best of a few batches."""
    rng = np.random.default_rng(0)
    state = kit.state()
    for name, shape in kit.manifest.shapes(classes).items():
        if state[name].shape != shape:
            state[name] = rng.normal(0, 0.1, shape).astype(np.float32)
    task = replace(settings.task, classes=numbered(classes))
    engine, objective = OnnxEngine(kit, state), objective_of(task)
    for value in engine.inputs.values():
        value[...] = rng.uniform(0.5, 1.5, value.shape)
    objective.inputs = {name: torch.from_numpy(v) for name, v in engine.inputs.items()}
    reference = Reference(_with_classes(network, task.head, classes), objective)
    start = {**reference.buffers(), **state}
    least = np.inf
    for attempt in range(_ATTEMPTS):
        images = smooth_images(rng, settings.batch, settings.size)
        shape = (settings.batch, *task.label_shape(settings.size, classes))
        labels = objective.draw_labels(rng, shape)
        found = engine.gradients(images, labels, np.random.default_rng(attempt)).values
        drawn = draw_masks(masks, np.random.default_rng(attempt))
        truth = reference.step(start, images, labels, drawn, lr=0.0)
        errors = (_error(truth[f"gradient of {name}"], found[name]) for name in task.head)
        least = min(least, max(errors))
        if least <= _TOLERANCE:
            break
    return least


def _error(exact: NDArray[np.float64], found: FloatArray) -> float:
    """The largest error of a tensor, as a share of its largest magnitude."""
    return float(np.abs(found - exact).max() / max(np.abs(exact).max(), 1e-4))


def _ends_with_output_layer(network: nn.Module, settings: CompileSettings) -> bool:
    """Whether what the output layer returns is what the network returns."""
    layer, returned = settings.task.output_layer, list[Tensor]()
    if layer is None:
        return False
    copied = copy_shapes(network).eval()
    images = torch.empty(
        1, 3, settings.size, settings.size, device="meta", dtype=float_type(copied)
    )

    def note(_path: str, _module: nn.Module, made: list[Tensor]) -> None:
        returned.extend(made)

    with probing(copied, paths=[layer], leave=note), RememberedShapes():
        scores = copied(images)
    return len(returned) == 1 and returned[0] is scores


def _with_classes(network: nn.Module, head: Iterable[str], classes: int) -> nn.Module:
    """A copy with as many rows in the parameters of the output layer."""
    copied = copy_network(network)
    for name in head:
        path, _, attribute = name.rpartition(".")
        owner, old = copied.get_submodule(path), copied.get_parameter(name)
        setattr(owner, attribute, nn.Parameter(old.new_empty(classes, *old.shape[1:])))
    return copied
