"""Train all of a network again: to win back what pruning has cost, or to pretrain added modules.

On Lightning Fabric, which brings the same loop from one processor to several GPUs. It is an
optional package: `pip install "pocketune[retrain]"`.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from pocketune.data import ImageDataset, Loader, training_images
from pocketune.device.train.optimizer import CosineSchedule
from pocketune.errors import PocketuneError
from pocketune.files import reading, replacing
from pocketune.layers import QuantizedConv2d
from pocketune.networks import about, normalize
from pocketune.pruning.objectives import Blocks, Predictions
from pocketune.weights import save_network
from pocketune.weights.saved import check_saveable

HEADER = "pocketune.retraining"
MOMENTUM = "momentum_buffer"
LEARNING_RATES = {"predictions": 0.01, "blocks": 0.05}
"""By what is followed of a teacher."""


@dataclass(frozen=True)
class Recipe:
    """How a network is retrained: SGD with momentum and Nesterov, one cosine to 0.

    Attributes:
        epochs: passes over the photos.
        lr: highest learning rate; 0.01 where none is given, 0.05 to follow blocks.
        batch: images of a step, on each device.
        size: side of the images, in pixels.
        weight_decay: decay of weights, not of biases and norms.
        label_smoothing: share of the target that is spread over all classes.
        follow: what of the teacher: its `"predictions"`, or the maps behind its `"blocks"`, for
            which a few hundred photos are enough; see `pocketune.pruning.objectives`.
        distillation: share of the loss that follows the teacher's predictions, beside labels.
        temperature: by which the teacher's and the network's logits are divided.
        seed: of order and crops.

    Raises:
        PocketuneError: for a value out of range.
    """

    epochs: int = 10
    lr: float | None = None
    batch: int = 32
    size: int = 160
    weight_decay: float = 4e-5
    label_smoothing: float = 0.0
    follow: str = "predictions"
    distillation: float = 0.5
    temperature: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.follow not in LEARNING_RATES:
            known = " or ".join(LEARNING_RATES)
            raise PocketuneError(f"follow={self.follow!r} must be {known}")
        # a batch of one image has no statistics for norms
        for name, least in (("epochs", 1), ("batch", 2), ("size", 1)):
            if getattr(self, name) < least:
                raise PocketuneError(f"{name}={getattr(self, name)} must be at least {least}")
        for name, value in (("lr", self.highest_lr), ("temperature", self.temperature)):
            if not 0 < value < float("inf"):
                raise PocketuneError(f"{name}={value} must be above 0")
        for name in ("label_smoothing", "distillation"):
            if not 0 <= getattr(self, name) <= 1:
                raise PocketuneError(f"{name}={getattr(self, name)} must lie in [0, 1]")

    @property
    def highest_lr(self) -> float:
        """`lr`, or what suits that which is followed."""
        return LEARNING_RATES[self.follow] if self.lr is None else self.lr


def retrain(
    network: nn.Module,
    photos: ImageDataset | str | PathLike[str],
    out: str | PathLike[str],
    *,
    recipe: Recipe | None = None,
    teacher: nn.Module | None = None,
    accelerator: str = "auto",
    devices: int = 1,
) -> list[float]:
    """Train a network again, in place, and write it to `out` after each epoch.

    All of its parameters; to follow the blocks of a teacher, those up to the last pruned block.

    A run that was stopped goes on from its last whole epoch when it is called again with the
    same arguments: beside `out` lies `out` with the suffix `.progress.safetensors` until it ends.

    Args:
        network: of ours, not adapted: a pruned one, or one to which `TinyTL.insert_modules` has
            added lite residual modules, which are then pretrained together with it.
        photos: as `train` takes them, of which those that train are taken; or a dataset. Where
            they have other classes than the network, labels mean nothing to it and a teacher is
            needed, which it then follows alone.
        out: a `.safetensors` file, which `create_network` and the commands take as weights.
        recipe: how; the defaults of `Recipe` where none is given.
        teacher: the unpruned network, which is followed as the recipe says.
        accelerator: `"cpu"`, `"cuda"` or `"auto"`, as Lightning Fabric takes it.
        devices: how many of them; each takes batches of its own.

    Returns:
        The mean loss of each epoch that this call has trained.

    Raises:
        PocketuneError: for an adapted network or one that cannot be saved in `out`, photos and a
            teacher that do not go with it, progress with another recipe, other photos or another
            teacher, or where Lightning Fabric is not installed.
    """
    recipe, out = recipe or Recipe(), Path(out)
    if (method := about(network).method) is not None:
        raise PocketuneError(
            f"the network is adapted to {method}, which trains a part of it; retrain the "
            "one that it was adapted from"
        )
    if any(isinstance(module, QuantizedConv2d) for module in network.modules()):
        raise PocketuneError(
            "kernels of 8 bits are not trained; retrain a network created from float32 weights"
        )
    check_saveable(network, out)
    photos = training_images(photos)
    objective = _objective(network, photos, recipe, teacher)
    fabric = _fabric(accelerator, devices)
    fabric.launch()
    progress = out.with_suffix(".progress.safetensors")
    identity = _identity(recipe, photos, teacher)
    optimizer = _optimizer(objective.model, recipe)
    loader = _loader(photos, recipe, fabric.global_rank, fabric.world_size)
    schedule = CosineSchedule(recipe.highest_lr, recipe.epochs * len(loader))
    fabric.to_device(network)  # all of it, where a part is trained
    model, wrapped = fabric.setup(objective.model, optimizer)
    first = _resume(progress, network, optimizer, identity)
    if objective.teacher is not None:
        fabric.to_device(objective.teacher.eval().requires_grad_(False))
    losses = []
    for epoch in range(first, recipe.epochs):
        model.train()
        # of dropout: an epoch draws the same whether the run was stopped before it or not
        torch.manual_seed(hash((recipe.seed, epoch, fabric.global_rank)))
        total = 0.0
        for step, (images, labels) in enumerate(_batches(network, loader, epoch, fabric)):
            for group in wrapped.param_groups:
                group["lr"] = schedule(epoch * len(loader) + step)
            loss = objective.loss(model(images), images, labels)
            wrapped.zero_grad()
            fabric.backward(loss)
            wrapped.step()
            total += float(loss.detach())
        losses.append(total / len(loader))
        if fabric.is_global_zero:
            _save(progress, network, optimizer, identity, epoch + 1)
            save_network(network, out)
        fabric.barrier()
    if fabric.is_global_zero:
        progress.unlink(missing_ok=True)
    return losses


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


def _fabric(accelerator: str, devices: int) -> Any:
    try:
        from lightning_fabric import Fabric
    except ModuleNotFoundError as error:
        raise PocketuneError(
            "retraining needs lightning-fabric, which is not installed here; install it with: "
            'pip install "pocketune[retrain]"'
        ) from error
    try:
        return Fabric(accelerator=accelerator, devices=devices)
    except (ValueError, TypeError, RuntimeError) as error:
        raise PocketuneError(
            f"accelerator={accelerator!r} with devices={devices} cannot be had here "
            f"({str(error).splitlines()[0]}); use accelerator 'cpu' and one device"
        ) from error


def _optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.SGD:
    parameters = list(network.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=recipe.highest_lr, momentum=0.9, nesterov=True)


def _loader(photos: ImageDataset, recipe: Recipe, rank: int, world: int) -> Loader:
    """This process's part of the photos: as many as every other's, so that none waits."""
    whole = len(photos) // world * world
    part = photos.subset(list(range(rank, whole, world)))
    return Loader(part, size=recipe.size, batch=recipe.batch, train=True, seed=recipe.seed)


def _batches(
    network: nn.Module, loader: Loader, epoch: int, fabric: Any
) -> Iterator[tuple[Tensor, Tensor]]:
    for batch in loader.epoch(epoch):
        images = normalize(network, batch.images)
        yield fabric.to_device((images, torch.from_numpy(batch.labels)))


def _identity(recipe: Recipe, photos: ImageDataset, teacher: nn.Module | None) -> dict[str, Any]:
    """What must be the same where a run goes on: the recipe, and hashes of photos and teacher."""
    labeled, taught = hashlib.sha256(), hashlib.sha256()
    photos.add_to(labeled)
    for name, value in {} if teacher is None else teacher.state_dict().items():
        taught.update(name.encode() + value.cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return {
        "recipe": asdict(recipe),
        "photos": labeled.hexdigest(),
        "teacher": None if teacher is None else taught.hexdigest(),
    }


def _save(
    path: Path,
    network: nn.Module,
    optimizer: torch.optim.SGD,
    identity: dict[str, Any],
    epochs: int,
) -> None:
    """All values and momenta after so many epochs, whole or not at all; never a pickle."""
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    for name, parameter in network.named_parameters():
        if MOMENTUM in optimizer.state[parameter]:
            tensors[f"{MOMENTUM}.{name}"] = optimizer.state[parameter][MOMENTUM]
    facts = json.dumps({"epochs": epochs, **identity})
    with replacing(path, SafetensorError) as file:
        save_file({k: v.contiguous() for k, v in tensors.items()}, file, {HEADER: facts})


def _resume(
    path: Path, network: nn.Module, optimizer: torch.optim.SGD, identity: dict[str, Any]
) -> int:
    """Take up what `_save` has left; returns the epochs that are done."""
    if not path.exists():
        return 0
    damage = (SafetensorError, KeyError, ValueError)
    with reading(path, *damage, remedy="remove it to start over"), safe_open(path, "pt") as file:
        facts = json.loads((file.metadata() or {})[HEADER])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if facts["recipe"] != identity["recipe"]:
        raise PocketuneError(
            f"{path} was left by a run of another recipe; remove it to start over, or go on with "
            f"{facts['recipe']}"
        )
    for what, other in (("photos", "other photos"), ("teacher", "another teacher or none")):
        if facts.get(what) != identity[what]:
            raise PocketuneError(
                f"{path} was left by a run with {other}; remove it to start over, or go on with "
                f"the original {what}"
            )
    state = {n.removeprefix("network."): t for n, t in tensors.items() if n.startswith("network.")}
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise PocketuneError(
            f"{path} was left by a run of another network; remove it to start over"
        ) from error
    for name, parameter in network.named_parameters():
        if f"{MOMENTUM}.{name}" in tensors:
            optimizer.state[parameter][MOMENTUM] = tensors[f"{MOMENTUM}.{name}"].to(
                parameter.device
            )
    return int(facts["epochs"])
