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

from pocketune.data import ImageDataset, Loader, training_images
from pocketune.device.train.progress import Progress
from pocketune.device.train.schedule import CosineSchedule
from pocketune.distillation.checkpoint import EpochCheckpoint, hash_photos, hash_values
from pocketune.distillation.display import StepDisplay
from pocketune.distillation.fabric import device_batches, gpus, make_fabric, own_part
from pocketune.distillation.optimizer import set_rate, sgd
from pocketune.distillation.predictions import Predictions
from pocketune.errors import PocketuneError
from pocketune.layers import QuantizedConv2d
from pocketune.networks import about
from pocketune.networks.probe import probing
from pocketune.pruning.objectives import Blocks
from pocketune.pruning.recipe import Recipe
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
    training = _Training(network, photos, out, recipe, objective, identity, fabric)
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(gpus(fabric)))
        if objective.teacher is not None:
            stack.enter_context(probing(objective.teacher, gradients=None))
        return training.run(progress)


class _Training:
    """A run: what stays the same over its epochs."""

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
        self.network, self.out, self.recipe = network, out, recipe
        self.objective, self.fabric = objective, fabric
        optimizer = sgd(objective.model, recipe.peak_lr, recipe.weight_decay)
        path = out.with_suffix(".progress.safetensors")
        self.progress = EpochCheckpoint(path, network, optimizer, identity)
        self.loader = Loader(
            own_part(photos, fabric),
            size=recipe.size,
            batch=recipe.batch,
            train=True,
            seed=recipe.seed,
        )
        fabric.to_device(network)  # all of it, even if only a part is trained
        self.model, self.optimizer = fabric.setup(objective.model, optimizer)
        self.schedule = CosineSchedule(recipe.peak_lr, recipe.epochs * len(self.loader))

    def run(self, shown: Progress | None) -> list[float]:
        """All epochs, or those that a stopped run has left."""
        epochs, steps = self.recipe.epochs, len(self.loader)
        first, losses = self.progress.resume(), list[float]()
        if self.objective.teacher is not None:
            self.fabric.to_device(self.objective.teacher)
        display = StepDisplay(
            epochs * steps, first * steps, shown if self.fabric.is_global_zero else None
        )
        for epoch in range(first, epochs):
            words = f"epoch {epoch + 1}/{epochs}"
            words += f"  loss {losses[-1]:.3f}" if losses else ""
            losses.append(self._epoch(epoch, partial(display.step, words)))
            self._save(epoch + 1)
        display.close()
        if self.fabric.is_global_zero:
            if not losses:  # stopped between the last epoch and its file
                save_network(self.network, self.out)
            self.progress.path.unlink(missing_ok=True)
        return losses

    def _epoch(self, epoch: int, advance: Callable[[], None]) -> float:
        """The mean loss of an epoch."""
        # for dropout: an epoch draws the same masks in a resumed run
        torch.manual_seed(hash((self.recipe.seed, epoch, self.fabric.global_rank)))
        self.model.train()
        count, total = len(self.loader), 0.0
        batches = device_batches(self.network, self.loader, epoch, self.fabric)
        for step, (images, labels) in enumerate(batches):
            set_rate(self.optimizer, self.schedule(epoch * count + step))
            loss = self.objective.loss(self.model(images), images, labels)
            self.optimizer.zero_grad()
            self.fabric.backward(loss)
            self.optimizer.step()
            total += float(loss.detach())
            advance()
        return total / count

    def _save(self, epochs: int) -> None:
        if self.fabric.is_global_zero:
            self.progress.save(epochs)
            save_network(self.network, self.out)
        self.fabric.barrier()


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
