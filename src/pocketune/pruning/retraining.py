"""Retrain a whole network: to recover accuracy after pruning, or to pretrain added modules.

Lightning Fabric runs the same loop on one CPU or on several GPUs. It is an optional package:
`pip install "pocketune[retrain]"`.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pocketune.data import ImageDataset, training_images
from pocketune.device.train.progress import Progress
from pocketune.device.train.schedule import CosineSchedule
from pocketune.distillation.checkpoint import EpochCheckpoint, hash_photos, hash_values
from pocketune.distillation.epochs import Epochs
from pocketune.distillation.fabric import gpus, make_fabric, own_loader
from pocketune.distillation.optimizer import set_rate, sgd
from pocketune.distillation.predictions import Predictions
from pocketune.errors import PocketuneError
from pocketune.layers import QuantizedConv2d
from pocketune.networks import about
from pocketune.networks.probe import probing
from pocketune.pruning.recipe import Recipe
from pocketune.pruning.teacher import Blocks
from pocketune.weights import save_network
from pocketune.weights.saved import check_saveable


def retrain(
    network: nn.Module,
    photos: ImageDataset | str | PathLike[str],
    out: str | PathLike[str],
    *,
    recipe: Recipe | None = None,
    teacher: nn.Module | None = None,
    accelerator: str = "auto",
    devices: int = 1,
    progress: Progress | None = None,
) -> list[float]:
    """Retrain a network in place, and write it to `out` after each epoch.

    All of its parameters are trained, or those up to the last pruned block if it follows the blocks
    of a teacher.

    A stopped run resumes from its last complete epoch when it is called again with the same
    arguments, the values of the network among them: seed what is random. Until it ends, its
    progress is in the folder of `out`, in a file with the suffix `.progress.safetensors`. The
    caller's random state stays unchanged.

    Args:
        network: A network of ours that is not adapted: a pruned one, or one with lite residual
            modules from `TinyTL.insert_modules`, which are then pretrained together with it.
        photos: A folder or file as `train` takes it, of which the training split is used; or a
            dataset. Photos of other classes need a teacher, which is then the only objective.
        out: A `.safetensors` file, which `create_network` takes as weights.
        recipe: None stands for the defaults of `Recipe`.
        teacher: The unpruned network, which is followed as the recipe says, in evaluation mode. Its
            values and modes stay as they are.
        accelerator: `"cpu"`, `"cuda"` or `"auto"`, as Lightning Fabric takes it.
        devices: Number of devices; each has its own batches.
        progress: Receives each step, to show the time left; None shows nothing.

    Returns:
        The mean loss of each epoch that this call has trained.

    Raises:
        PocketuneError: The network is adapted, has frozen parameters or cannot be saved in `out`;
            the photos or the teacher do not match it; the progress has another recipe, other
            photos, another teacher or another network; or Lightning Fabric is not installed.
    """
    recipe, out = recipe or Recipe(), Path(out)
    _require_trainable(network)
    check_saveable(network, out)
    photos = training_images(photos)
    if recipe.class_weights == "balanced":
        photos = replace(photos, task=photos.labeled.balanced(photos.labels))
    objective = _objective(network, photos, recipe, teacher)
    fabric = make_fabric(accelerator, devices, "retraining")
    fabric.launch()
    identity = {
        "recipe": asdict(recipe),
        "photos": hash_photos(photos),
        "teacher": hash_values(teacher),
        "network": hash_values(network),
    }
    retraining = _Retraining(network, photos, out, recipe, objective, identity, fabric)
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(gpus(fabric)))
        if objective.teacher is not None:
            stack.enter_context(probing(objective.teacher, gradients=None))
        return retraining.run(progress)


class _Retraining:
    """What stays the same over the epochs."""

    def __init__(
        self,
        network: nn.Module,
        photos: ImageDataset,
        out: Path,
        recipe: Recipe,
        objective: Predictions | Blocks,
        identity: dict[str, Any],
        fabric: Any,
    ) -> None:
        self.recipe, self.objective, self.fabric = recipe, objective, fabric
        optimizer = sgd(objective.model, recipe.peak_lr, recipe.weight_decay)
        path = out.with_suffix(".progress.safetensors")
        self.epochs = Epochs(
            EpochCheckpoint(path, network, optimizer, identity),
            own_loader(photos, fabric, size=recipe.size, batch=recipe.batch, seed=recipe.seed),
            fabric,
            partial(save_network, network, out),
        )
        fabric.to_device(network)  # all of it, even if only a part is trained
        self.model, self.optimizer = fabric.setup(objective.model, optimizer)
        self.steps = len(self.epochs.loader)
        self.schedule = CosineSchedule(recipe.peak_lr, recipe.epochs * self.steps)

    def run(self, shown: Progress | None) -> list[float]:
        """All epochs, or those that a stopped run has left."""
        count, losses = self.recipe.epochs, list[float]()
        first = self.epochs.checkpoint.resume()
        if self.objective.teacher is not None:
            self.fabric.to_device(self.objective.teacher)
        display = self.epochs.display(count, first, shown)
        for epoch in range(first, count):
            words = f"epoch {epoch + 1}/{count}"
            words += f"  loss {losses[-1]:.3f}" if losses else ""
            losses.append(self._epoch(epoch, partial(display.step, words)))
            self.epochs.save(epoch + 1)
        display.close()
        self.epochs.finish(losses)
        return losses

    def _epoch(self, epoch: int, advance: Callable[[], None]) -> float:
        """The mean loss of an epoch."""
        self.model.train()
        total = 0.0
        for step, (images, labels) in enumerate(self.epochs.batches(epoch)):
            set_rate(self.optimizer, self.schedule(epoch * self.steps + step))
            loss = self.objective.loss(self.model(images), images, labels)
            self.optimizer.zero_grad()
            self.fabric.backward(loss)
            self.optimizer.step()
            total += float(loss.detach())
            advance()
        return total / self.steps


def _require_trainable(network: nn.Module) -> None:
    """Raise if the network is adapted, or has 8-bit kernels or frozen parameters."""
    if (method := about(network).method) is not None:
        raise PocketuneError(
            f"the network is adapted to {method}, which trains a part of it; retrain the "
            "network that it was adapted from"
        )
    if any(isinstance(module, QuantizedConv2d) for module in network.modules()):
        raise PocketuneError(
            "8-bit kernels cannot be trained; retrain a network created from float32 weights"
        )
    frozen = (name for name, value in network.named_parameters() if not value.requires_grad)
    if (name := next(frozen, None)) is not None:
        raise PocketuneError(
            f"{name} is frozen, and all parameters are to be trained: call "
            "network.requires_grad_(True) first"
        )


def _objective(
    network: nn.Module, photos: ImageDataset, recipe: Recipe, teacher: nn.Module | None
) -> Predictions | Blocks:
    if recipe.follow == "blocks":
        return Blocks(network, teacher)
    return Predictions(
        network,
        photos,
        teacher,
        share=recipe.distillation,
        temperature=recipe.temperature,
        label_smoothing=recipe.label_smoothing,
    )
