"""Retrain a whole network: to recover accuracy after pruning, or to pretrain added modules.

Lightning Fabric runs the same loop on one CPU or on several GPUs. It is an optional package:
`pip install "pocketune[retrain]"`.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

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
    arguments. Until it ends, its progress is in the folder of `out`, in a file with the suffix
    `.progress.safetensors`. The caller's random state stays unchanged.

    Args:
        network: A network of ours that is not adapted: a pruned one, or one with lite residual
            modules from `TinyTL.insert_modules`, which are then pretrained together with it.
        photos: A folder or file as `train` takes it, of which the training split is used; or a
            dataset. Photos of other classes need a teacher, which is then the only objective.
        out: A `.safetensors` file, which `create_network` takes as weights.
        recipe: None stands for the defaults of `Recipe`.
        teacher: The unpruned network, which is followed as the recipe says.
        accelerator: `"cpu"`, `"cuda"` or `"auto"`, as Lightning Fabric takes it.
        devices: Number of devices; each has its own batches.
        progress: Receives each step, to show the time left; None shows nothing.

    Returns:
        The mean loss of each epoch that this call has trained.

    Raises:
        PocketuneError: The network is adapted or cannot be saved in `out`; the photos or the
            teacher do not match it; the progress has another recipe, other photos or another
            teacher; or Lightning Fabric is not installed.
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
    }
    optimizer = sgd(objective.model, recipe.peak_lr, recipe.weight_decay)
    kept = EpochCheckpoint(out.with_suffix(".progress.safetensors"), network, optimizer, identity)
    loader = Loader(
        own_part(photos, fabric),
        size=recipe.size,
        batch=recipe.batch,
        train=True,
        seed=recipe.seed,
    )
    fabric.to_device(network)  # all of it, even if only a part is trained
    model, wrapped = fabric.setup(objective.model, optimizer)
    first = kept.resume()
    if objective.teacher is not None:
        fabric.to_device(objective.teacher.eval().requires_grad_(False))
    schedule = CosineSchedule(recipe.peak_lr, recipe.epochs * len(loader))
    losses: list[float] = []
    display = StepDisplay(
        recipe.epochs * len(loader),
        first * len(loader),
        progress if fabric.is_global_zero else None,
    )
    with torch.random.fork_rng(gpus(fabric)):
        for epoch in range(first, recipe.epochs):
            # for dropout: an epoch draws the same masks in a resumed run
            torch.manual_seed(hash((recipe.seed, epoch, fabric.global_rank)))
            batches = device_batches(network, loader, epoch, fabric)
            rates = (schedule(epoch * len(loader) + step) for step in range(len(loader)))
            last = f"  loss {losses[-1]:.3f}" if losses else ""
            done = partial(display.step, f"epoch {epoch + 1}/{recipe.epochs}{last}")
            with_rates = zip(rates, batches, strict=True)
            total = _train_epoch(model, wrapped, objective, with_rates, fabric, done)
            losses.append(total / len(loader))
            if fabric.is_global_zero:
                kept.save(epoch + 1)
                save_network(network, out)
            fabric.barrier()
    display.close()
    if fabric.is_global_zero:
        if not losses:  # stopped between the last epoch and its file
            save_network(network, out)
        kept.path.unlink(missing_ok=True)
    return losses


def _train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    objective: Predictions | Blocks,
    batches: Iterable[tuple[float, tuple[Tensor, Tensor]]],
    fabric: Any,
    done: Callable[[], None],
) -> float:
    """One step for each batch, which comes with its learning rate; the sum of their losses."""
    model.train()
    total = 0.0
    for rate, (images, labels) in batches:
        set_rate(optimizer, rate)
        loss = objective.loss(model(images), images, labels)
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
        total += float(loss.detach())
        done()
    return total


def _require_trainable(network: nn.Module) -> None:
    """Raise if the network is adapted, or has 8-bit kernels."""
    if (method := about(network).method) is not None:
        raise PocketuneError(
            f"the network is adapted to {method}, which trains a part of it; retrain the "
            "network that it was adapted from"
        )
    if any(isinstance(module, QuantizedConv2d) for module in network.modules()):
        raise PocketuneError(
            "8-bit kernels cannot be trained; retrain a network created from float32 weights"
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
