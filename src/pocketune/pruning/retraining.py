"""Retrain a whole network: to recover accuracy after pruning, or to pretrain added modules.

Lightning Fabric runs the same loop on one CPU or on several GPUs. It is an optional package:
`pip install "pocketune[retrain]"`.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from pocketune.data import ImageDataset, Loader, training_images
from pocketune.device.train.optimizer import CosineSchedule
from pocketune.errors import PocketuneError
from pocketune.files import reading, replacing
from pocketune.layers import QuantizedConv2d
from pocketune.networks import about, normalize
from pocketune.pruning.objectives import Blocks, Predictions
from pocketune.pruning.recipe import Recipe
from pocketune.weights import save_network
from pocketune.weights.saved import check_saveable

HEADER = "pocketune.retraining"
MOMENTUM = "momentum_buffer"


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
    """Retrain a network in place, and write it to `out` after each epoch.

    All of its parameters are trained, or those up to the last pruned block if it follows the blocks
    of a teacher.

    A stopped run resumes from its last complete epoch when it is called again with the same
    arguments. Until it ends, its progress is in the folder of `out`, in a file with the suffix
    `.progress.safetensors`. The caller's random state stays unchanged.

    Args:
        network: a network of ours that is not adapted: a pruned one, or one with lite residual
            modules from `TinyTL.insert_modules`, which are then pretrained together with it.
        photos: a folder or file as `train` takes it, of which the training split is used; or a
            dataset. Photos of other classes need a teacher, which is then the only objective.
        out: a `.safetensors` file, which `create_network` takes as weights.
        recipe: None stands for the defaults of `Recipe`.
        teacher: the unpruned network, which is followed as the recipe says.
        accelerator: `"cpu"`, `"cuda"` or `"auto"`, as Lightning Fabric takes it.
        devices: number of devices; each has its own batches.

    Returns:
        The mean loss of each epoch that this call has trained.

    Raises:
        PocketuneError: the network is adapted or cannot be saved in `out`; the photos or the
            teacher do not match it; the progress has another recipe, other photos or another
            teacher; or Lightning Fabric is not installed.
    """
    recipe, out = recipe or Recipe(), Path(out)
    _require_trainable(network)
    check_saveable(network, out)
    photos = training_images(photos)
    if photos.task is not None and photos.task.dense:
        raise PocketuneError(
            "retraining needs classes or attributes of whole images, and these photos have masks; "
            "retrain the backbone as a classifier"
        )
    objective = _objective(network, photos, recipe, teacher)
    fabric = _fabric(accelerator, devices)
    fabric.launch()
    identity = _identity(recipe, photos, teacher)
    optimizer = _optimizer(objective.model, recipe)
    progress = _Progress(out.with_suffix(".progress.safetensors"), network, optimizer, identity)
    loader = _loader(photos, recipe, fabric.global_rank, fabric.world_size)
    fabric.to_device(network)  # all of it, even if only a part is trained
    model, wrapped = fabric.setup(objective.model, optimizer)
    first = progress.resume()
    if objective.teacher is not None:
        fabric.to_device(objective.teacher.eval().requires_grad_(False))
    schedule = CosineSchedule(recipe.peak_lr, recipe.epochs * len(loader))
    losses = []
    with torch.random.fork_rng(_gpus(fabric)):
        for epoch in range(first, recipe.epochs):
            # for dropout: an epoch draws the same masks in a resumed run
            torch.manual_seed(hash((recipe.seed, epoch, fabric.global_rank)))
            batches = _batches(network, loader, epoch, fabric)
            rates = (schedule(epoch * len(loader) + step) for step in range(len(loader)))
            total = _train_epoch(
                model, wrapped, objective, zip(rates, batches, strict=True), fabric
            )
            losses.append(total / len(loader))
            if fabric.is_global_zero:
                progress.save(epoch + 1)
                save_network(network, out)
            fabric.barrier()
    if fabric.is_global_zero:
        progress.path.unlink(missing_ok=True)
    return losses


def _train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    objective: Predictions | Blocks,
    batches: Iterable[tuple[float, tuple[Tensor, Tensor]]],
    fabric: Any,
) -> float:
    """One step for each batch, which comes with its learning rate; the sum of their losses."""
    model.train()
    total = 0.0
    for rate, (images, labels) in batches:
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = objective.loss(model(images), images, labels)
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
        total += float(loss.detach())
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


def _gpus(fabric: Any) -> list[int]:
    """The GPU of this process, whose random state is to be restored; none on a CPU."""
    return [fabric.device.index] if fabric.device.type == "cuda" else []


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
            f"accelerator={accelerator!r} with devices={devices} is not available here "
            f"({str(error).splitlines()[0]}); use accelerator 'cpu' and one device"
        ) from error


def _optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.SGD:
    parameters = list(network.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=recipe.peak_lr, momentum=0.9, nesterov=True)


def _loader(photos: ImageDataset, recipe: Recipe, rank: int, world: int) -> Loader:
    """The part of the photos for this process: as many as for every other, so that none waits."""
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
    """What must stay the same for a run to resume: the recipe, and hashes of photos and teacher."""
    labeled, taught = hashlib.sha256(), hashlib.sha256()
    photos.add_to(labeled)
    for name, value in {} if teacher is None else teacher.state_dict().items():
        taught.update(name.encode() + value.cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return {
        "recipe": asdict(recipe),
        "photos": labeled.hexdigest(),
        "teacher": None if teacher is None else taught.hexdigest(),
    }


@dataclass(frozen=True)
class _Progress:
    """The file from which a stopped run resumes: all values and momenta; never a pickle."""

    path: Path
    network: nn.Module
    optimizer: torch.optim.SGD
    identity: dict[str, Any]

    def save(self, epochs: int) -> None:
        """Write the state after so many epochs, whole or not at all."""
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        for name, parameter in self.network.named_parameters():
            if MOMENTUM in self.optimizer.state[parameter]:
                tensors[f"{MOMENTUM}.{name}"] = self.optimizer.state[parameter][MOMENTUM]
        facts = json.dumps({"epochs": epochs, **self.identity})
        with replacing(self.path, SafetensorError) as file:
            file.write_bytes(save({k: v.contiguous() for k, v in tensors.items()}, {HEADER: facts}))

    def resume(self) -> int:
        """Load what `save` has written; returns how many epochs are done."""
        if not self.path.exists():
            return 0
        facts, tensors = self._read()
        self._require_same(facts)
        self._load(tensors)
        return int(facts["epochs"])

    def _read(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        damage = (SafetensorError, KeyError, ValueError)
        with (
            reading(self.path, *damage, remedy="remove it to start over"),
            safe_open(self.path, "pt") as file,
        ):
            facts = json.loads((file.metadata() or {})[HEADER])
            return facts, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def _require_same(self, facts: dict[str, Any]) -> None:
        if facts["recipe"] != self.identity["recipe"]:
            raise PocketuneError(
                f"{self.path} was left by a run with another recipe; remove it to start over, or "
                f"continue with {facts['recipe']}"
            )
        for what, other in (("photos", "other photos"), ("teacher", "another teacher or none")):
            if facts.get(what) != self.identity[what]:
                raise PocketuneError(
                    f"{self.path} was left by a run with {other}; remove it to start over, or "
                    f"continue with the original {what}"
                )

    def _load(self, tensors: dict[str, Tensor]) -> None:
        prefix = "network."
        state = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        try:
            self.network.load_state_dict(state)
        except RuntimeError as error:
            raise PocketuneError(
                f"{self.path} was left by a run of another network; remove it to start over"
            ) from error
        for name, parameter in self.network.named_parameters():
            if (momentum := tensors.get(f"{MOMENTUM}.{name}")) is not None:
                self.optimizer.state[parameter][MOMENTUM] = momentum.to(parameter.device)
