"""Train all of a network again: to win back what pruning has cost, or to pretrain added modules.

On Lightning Fabric, which brings the same loop from one processor to several GPUs. It is an
optional package: `pip install "pocketune[retrain]"`.
"""

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
from torch.nn import functional as F

from pocketune.compiler.loss import mean_loss
from pocketune.compiler.trace import normalize
from pocketune.data import ImageDataset, Loader
from pocketune.device.schedule import CosineSchedule
from pocketune.errors import PocketuneError
from pocketune.networks import anatomy, save_network
from pocketune.networks.recorded import check_saveable

HEADER = "pocketune.retraining"
MOMENTUM = "momentum_buffer"


@dataclass(frozen=True)
class Recipe:
    """How a network is retrained: SGD with momentum and Nesterov, one cosine to 0.

    Attributes:
        epochs: passes over the photos.
        lr: highest learning rate.
        batch: images of a step, on each device.
        size: side of the images, in pixels.
        weight_decay: decay of weights, not of biases and norms.
        label_smoothing: share of the target that is spread over all classes.
        distillation: share of the loss that follows the teacher, where there is one.
        temperature: by which the teacher's and the network's logits are divided.
        seed: of order and crops.

    Raises:
        PocketuneError: for a value out of range.
    """

    epochs: int = 10
    lr: float = 0.01
    batch: int = 32
    size: int = 160
    weight_decay: float = 4e-5
    label_smoothing: float = 0.0
    distillation: float = 0.5
    temperature: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "size"):
            if getattr(self, name) < 1:
                raise PocketuneError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("lr", "temperature"):
            if not 0 < getattr(self, name) < float("inf"):
                raise PocketuneError(f"{name}={getattr(self, name)} must be above 0")
        for name in ("label_smoothing", "distillation"):
            if not 0 <= getattr(self, name) <= 1:
                raise PocketuneError(f"{name}={getattr(self, name)} must lie in [0, 1]")


def retrain(
    network: nn.Module,
    photos: ImageDataset,
    out: str | PathLike[str],
    *,
    recipe: Recipe | None = None,
    teacher: nn.Module | None = None,
    accelerator: str = "auto",
    devices: int = 1,
) -> list[float]:
    """Train every parameter of `network`, in place, and write it to `out` after each epoch.

    A run that was stopped goes on from its last whole epoch when it is called again with the
    same arguments: beside `out` lies `out` with the suffix `.progress.safetensors` until it ends.

    Args:
        network: of ours, not adapted: a pruned one, or one to which `TinyTL.insert_modules` has
            added lite residual modules, which are then pretrained together with it.
        photos: labelled images. Where they have other classes than the network, labels mean
            nothing to it and a teacher is needed, which it then follows alone.
        out: a `.safetensors` file, which `create_network` and the commands take as weights.
        recipe: how; the defaults of `Recipe` where none is given.
        teacher: the unpruned network, with as many classes; the loss then is partly the
            divergence of its predictions (Hinton et al., Distilling the Knowledge in a Neural
            Network, 2015).
        accelerator: `"cpu"`, `"cuda"` or `"auto"`, as Lightning Fabric takes it.
        devices: how many of them; each takes batches of its own.

    Returns:
        The mean loss of each epoch that this call has trained.

    Raises:
        PocketuneError: for an adapted network or one that cannot be saved in `out`, photos of
            other classes without a teacher, a teacher of other classes, progress of another
            recipe, or where Lightning Fabric is not installed.
    """
    recipe, out = recipe or Recipe(), Path(out)
    if hasattr(network, "method"):
        raise PocketuneError(
            f"the network is adapted to {network.method}, which trains a part of it; retrain the "
            "one that it was adapted from"
        )
    check_saveable(network, out)
    share = _teacher_share(network, photos, recipe, teacher)
    fabric = _fabric(accelerator, devices)
    fabric.launch()
    progress = out.with_suffix(".progress.safetensors")
    optimizer = _optimizer(network, recipe)
    loader = _loader(photos, recipe, fabric.global_rank, fabric.world_size)
    schedule = CosineSchedule(recipe.lr, recipe.epochs * len(loader))
    model, wrapped = fabric.setup(network, optimizer)
    first = _resume(progress, network, optimizer, recipe)
    if teacher is not None:
        teacher = fabric.to_device(teacher.eval().requires_grad_(False))
    losses = []
    for epoch in range(first, recipe.epochs):
        model.train()
        # of dropout: an epoch draws the same whether the run was stopped before it or not
        torch.manual_seed(hash((recipe.seed, epoch, fabric.global_rank)))
        total = 0.0
        for step, (images, labels) in enumerate(_batches(network, loader, epoch, fabric)):
            for group in wrapped.param_groups:
                group["lr"] = schedule(epoch * len(loader) + step)
            loss = _loss(model(images), labels, images, teacher, share, recipe)
            wrapped.zero_grad()
            fabric.backward(loss)
            wrapped.step()
            total += float(loss.detach())
        losses.append(total / len(loader))
        if fabric.is_global_zero:
            _save(progress, network, optimizer, recipe, epoch + 1)
            save_network(network, out)
        fabric.barrier()
    if fabric.is_global_zero:
        progress.unlink(missing_ok=True)
    return losses


def _teacher_share(
    network: nn.Module, photos: ImageDataset, recipe: Recipe, teacher: nn.Module | None
) -> float:
    """Share of the loss that follows the teacher: all of it, where labels mean nothing."""
    classes = _classes(network)
    if teacher is not None and _classes(teacher) != classes:
        raise PocketuneError(
            f"the teacher has {_classes(teacher)} classes and the network {classes}; give the "
            "network that it was pruned from"
        )
    if len(photos.classes) == classes:
        return recipe.distillation if teacher is not None else 0.0
    if teacher is None:
        raise PocketuneError(
            f"the photos have {len(photos.classes)} classes and the network {classes}: give the "
            "unpruned network as teacher, which needs no labels, or photos of the same classes"
        )
    return 1.0


def _classes(network: nn.Module) -> int:
    layer = network.get_submodule(anatomy(network).classifier[-1])
    assert isinstance(layer, nn.Linear)
    return layer.out_features


def _fabric(accelerator: str, devices: int) -> Any:
    try:
        from lightning_fabric import Fabric
    except ModuleNotFoundError as error:
        raise PocketuneError(
            "retraining needs lightning-fabric, which is not installed here; install it with: "
            'pip install "pocketune[retrain]"'
        ) from error
    return Fabric(accelerator=accelerator, devices=devices)


def _optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.SGD:
    parameters = list(network.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=recipe.lr, momentum=0.9, nesterov=True)


def _loader(photos: ImageDataset, recipe: Recipe, rank: int, world: int) -> Loader:
    """This process's part of the photos: as many as every other's, so that none waits."""
    whole = len(photos) // world * world
    part = photos.subset(list(range(rank, whole, world)))
    return Loader(part, size=recipe.size, batch=recipe.batch, train=True, seed=recipe.seed)


def _batches(
    network: nn.Module, loader: Loader, epoch: int, fabric: Any
) -> Iterator[tuple[Tensor, Tensor]]:
    norm: Any = network.normalization
    for batch in loader.epoch(epoch):
        images = normalize(torch.from_numpy(batch.images), norm.mean, norm.std)
        yield fabric.to_device((images, torch.from_numpy(batch.labels)))


def _loss(
    logits: Tensor,
    labels: Tensor,
    images: Tensor,
    teacher: nn.Module | None,
    share: float,
    recipe: Recipe,
) -> Tensor:
    """The labels' own loss and the divergence from the teacher, whose gradients are of one size."""
    loss = logits.new_zeros(())
    if share < 1:
        loss = (1 - share) * mean_loss(logits, labels, recipe.label_smoothing)
    if teacher is not None and share > 0:
        with torch.no_grad():
            wanted = F.log_softmax(teacher(images) / recipe.temperature, 1)
        given = F.log_softmax(logits / recipe.temperature, 1)
        apart = F.kl_div(given, wanted, reduction="batchmean", log_target=True)
        loss = loss + share * recipe.temperature**2 * apart
    return loss


def _save(
    path: Path, network: nn.Module, optimizer: torch.optim.SGD, recipe: Recipe, epochs: int
) -> None:
    """All values and momenta after so many epochs, whole or not at all; never a pickle."""
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    for name, parameter in network.named_parameters():
        if MOMENTUM in optimizer.state[parameter]:
            tensors[f"{MOMENTUM}.{name}"] = optimizer.state[parameter][MOMENTUM]
    facts = json.dumps({"epochs": epochs, "recipe": asdict(recipe)})
    partial = path.with_name(f".{path.name}.partial")
    try:
        save_file({k: v.contiguous() for k, v in tensors.items()}, partial, {HEADER: facts})
        partial.replace(path)
    except (SafetensorError, OSError) as error:
        raise PocketuneError(f"{path} cannot be written ({error})") from error
    finally:
        partial.unlink(missing_ok=True)


def _resume(path: Path, network: nn.Module, optimizer: torch.optim.SGD, recipe: Recipe) -> int:
    """Take up what `_save` has left; returns the epochs that are done."""
    if not path.exists():
        return 0
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {})[HEADER])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise PocketuneError(f"{path} is damaged; remove it to begin anew ({error})") from error
    if facts["recipe"] != asdict(recipe):
        raise PocketuneError(
            f"{path} was left by a run of another recipe; remove it to begin anew, or go on with "
            f"{facts['recipe']}"
        )
    state = {n.removeprefix("network."): t for n, t in tensors.items() if n.startswith("network.")}
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise PocketuneError(
            f"{path} was left by a run of another network; remove it to begin anew"
        ) from error
    for name, parameter in network.named_parameters():
        if f"{MOMENTUM}.{name}" in tensors:
            optimizer.state[parameter][MOMENTUM] = tensors[f"{MOMENTUM}.{name}"].to(
                parameter.device
            )
    return int(facts["epochs"])
