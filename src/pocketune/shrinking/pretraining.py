"""Pretrain a supernet by progressive shrinking, on one CPU or on several GPUs.

Cai et al., Once for All: Train One Network and Specialize it for Efficient Deployment, ICLR 2020,
section 3.4: first the largest sub-network, then smaller kernels, fewer blocks and fewer channels as
well, each phase with the sub-networks of those before it.
"""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.data import ImageDataset, training_images
from pocketune.data.streams import Purpose, random_stream
from pocketune.device.train.progress import Progress
from pocketune.device.train.schedule import CosineSchedule
from pocketune.distillation.checkpoint import EpochCheckpoint, hash_photos, hash_values
from pocketune.distillation.epochs import Epochs
from pocketune.distillation.fabric import gpus, make_fabric, own_loader
from pocketune.distillation.optimizer import set_rate, sgd
from pocketune.distillation.predictions import Predictions
from pocketune.errors import PocketuneError
from pocketune.networks.anatomy.modules import is_norm
from pocketune.shrinking.phases import LARGEST, Phase, phases
from pocketune.shrinking.recipe import BATCH, ShrinkingRecipe
from pocketune.supernet import Space, Supernet, save_supernet
from pocketune.supernet.files import check_saveable
from pocketune.weights import load_network, save_network

STEP = 4
"""Between the sides of the images that a batch may have, in pixels."""


def pretrain_supernet(
    supernet: Supernet,
    photos: ImageDataset | str | PathLike[str],
    out: str | PathLike[str],
    *,
    recipe: ShrinkingRecipe | None = None,
    teacher: nn.Module | None = None,
    accelerator: str = "auto",
    devices: int = 1,
    progress: Progress | None = None,
) -> list[float]:
    """Pretrain all sub-networks of a supernet in place, and write it to `out` after each epoch.

    Every step draws sub-networks uniformly from the choices of the phase, the same on all devices,
    and adds their gradients; every batch has a size drawn from the smallest and the largest of the
    space and the multiples of 4 px between them. A teacher's soft labels are added to the labels.

    A stopped run resumes from its last complete epoch when it is called again with the same
    arguments, the values of the supernet among them, and then gives the same values, bit for bit.
    Until it ends, its progress is in the folder of `out`. The caller's random state stays
    unchanged.

    Args:
        supernet: Random, or from `Supernet.from_network` or `load_supernet`.
        photos: A folder or file as `train` takes it, of which the training split is used; or a
            dataset. Photos of other classes need a teacher, which is then the only objective.
        out: A `.safetensors` file for `load_supernet`.
        recipe: None stands for the defaults of `ShrinkingRecipe`. With 0 epochs the channels are
            sorted, and nothing is trained.
        teacher: A network of the same classes, in evaluation mode. None stands for the largest
            sub-network before it is shrunk, with the statistics of each batch.
        accelerator: `"cpu"`, `"cuda"` or `"auto"`, as Lightning Fabric takes it.
        devices: Number of devices; each has its own photos.
        progress: Receives each step, to show the time left; None shows nothing.

    Returns:
        The mean loss of each epoch that this call has trained.

    Raises:
        PocketuneError: The photos or the teacher do not match the supernet; its space has nothing
            to shrink from the phase `start` on; `out` cannot be written; the progress is of another
            run; or Lightning Fabric is not installed.
    """
    recipe, out = recipe or ShrinkingRecipe(), Path(out)
    check_saveable(out)
    photos = training_images(photos)
    if photos.task is not None and photos.task.dense:
        raise PocketuneError(
            "pretraining a supernet needs classes of whole images, and these photos have masks"
        )
    if not recipe.epochs:
        supernet.sort_channels()
        save_supernet(supernet, out)
        return []
    fabric = make_fabric(accelerator, devices, "pretraining a supernet")
    fabric.launch()
    shrinking = _Shrinking(supernet, photos, out, recipe, teacher, fabric)
    with torch.random.fork_rng(gpus(fabric)):
        return shrinking.run(progress)


class _Shrinking:
    """What stays the same over the phases."""

    def __init__(
        self,
        supernet: Supernet,
        photos: ImageDataset,
        out: Path,
        recipe: ShrinkingRecipe,
        teacher: nn.Module | None,
        fabric: Any,
    ) -> None:
        self.supernet, self.out, self.recipe, self.fabric = supernet, out, recipe, fabric
        self.photos, self.given = photos, teacher
        start = recipe.start or LARGEST
        self.phases = phases(supernet.space, recipe.epochs, start)
        if not self.phases:
            raise PocketuneError(
                f"the space has no smaller choices that the phase {start} or a later one would "
                "train: give more of them, or start earlier; with epochs=0 nothing is trained"
            )
        _make_equal(supernet, fabric)
        fabric.to_device(supernet)
        self.optimizer = sgd(supernet, recipe.lr, recipe.weight_decay)
        self.own_teacher = out.with_suffix(".teacher.safetensors")
        identity = {
            "recipe": {**asdict(recipe), "space": supernet.space.to_dict()},
            "photos": hash_photos(photos),
            "teacher": hash_values(teacher),
            "network": hash_values(supernet),
        }
        path, size = out.with_suffix(".progress.safetensors"), supernet.space.sizes[-1]
        self.epochs = Epochs(
            EpochCheckpoint(path, supernet, self.optimizer, identity),
            own_loader(photos, fabric, size=size, batch=recipe.batch, seed=recipe.seed),
            fabric,
            self._write,
        )
        shrinks_at_once = self.phases[0].stage.name != LARGEST
        # photos that do not fit are refused at once
        self._objective(teacher or (supernet.network if shrinks_at_once else None))

    def run(self, shown: Progress | None) -> list[float]:
        """All phases, or those that a stopped run has left."""
        done, first = self.epochs.checkpoint.resume(), 0
        losses: list[float] = []
        display = self.epochs.display(sum(phase.epochs for phase in self.phases), done, shown)
        for number, phase in enumerate(self.phases):
            if done < first + phase.epochs:
                objective = self._prepare(number, starts=done <= first)
                for epoch in range(max(done, first), first + phase.epochs):
                    words = f"{phase.stage.name}, epoch {epoch - first + 1}/{phase.epochs}"
                    words += f"  loss {losses[-1]:.3f}" if losses else ""
                    advance = partial(display.step, words)
                    losses.append(self._epoch(phase, epoch, epoch - first, objective, advance))
                    self.epochs.save(epoch + 1)
            first += phase.epochs
        display.close()
        self.epochs.finish(losses)
        if self.fabric.is_global_zero:
            self.own_teacher.unlink(missing_ok=True)
        return losses

    def _prepare(self, number: int, *, starts: bool) -> Predictions:
        """What precedes the epochs of a phase; `starts`, unless a stopped run has done it."""
        phase, before = self.phases[number], self.phases[:number][-1:]
        if starts:
            self.optimizer.state.clear()  # each phase has its own momenta
            if phase.sorts:
                self.supernet.sort_channels(phase.keep)
        teacher = self.given
        if teacher is None and phase.stage.name != LARGEST:
            shrinks_first = all(phase.stage.name == LARGEST for phase in before)
            if starts and shrinks_first and self.fabric.is_global_zero:
                save_network(self.supernet.subnet(self.supernet.largest), self.own_teacher)
            self.fabric.barrier()
            teacher = load_network(self.own_teacher)
        if teacher is not None:
            self.fabric.to_device(teacher)
            _set_mode(teacher, statistics_of_batch=self.given is None)
        return self._objective(teacher)

    def _objective(self, teacher: nn.Module | None) -> Predictions:
        """The loss with labels and a teacher's soft labels."""
        recipe = self.recipe
        return Predictions(
            self.supernet.network,
            self.photos,
            teacher,
            share=recipe.distillation / (1 + recipe.distillation),
            temperature=1.0,
            label_smoothing=recipe.label_smoothing,
        )

    def _epoch(
        self,
        phase: Phase,
        epoch: int,
        number: int,
        objective: Predictions,
        advance: Callable[[], None],
    ) -> float:
        """An epoch, the `number`-th of its phase; the mean loss of its sub-networks."""
        recipe, fabric, count = self.recipe, self.fabric, len(self.epochs.loader)
        peak = recipe.lr * phase.stage.lr * recipe.batch * fabric.world_size / BATCH
        steps = phase.epochs * count
        schedule = CosineSchedule(peak, steps, round(phase.stage.warmup * steps))
        self.supernet.train()
        total = 0.0
        for step, (images, labels) in enumerate(self.epochs.batches(epoch)):
            set_rate(self.optimizer, schedule(number * count + step))
            rng = random_stream(recipe.seed, Purpose.SUBNET, epoch, step)
            images = _resized(images, _size(self.supernet.space, rng))
            self.optimizer.zero_grad()
            total += self._add_gradients(phase, rng, objective, images, labels)
            _average_gradients(self.supernet, fabric)
            self.optimizer.step()
            advance()
        return total / count

    def _add_gradients(
        self,
        phase: Phase,
        rng: np.random.Generator,
        objective: Predictions,
        images: Tensor,
        labels: Tensor,
    ) -> float:
        """Backward passes of the sub-networks of a step; their mean loss."""
        wanted, total = objective.targets(images), 0.0
        scale = 1 + self.recipe.distillation if objective.has_both_parts else 1.0
        for _ in range(phase.stage.subnets):
            self.supernet.activate(phase.space.sample(rng))
            loss = scale * objective.loss_to(wanted, self.supernet(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        return total / phase.stage.subnets

    def _write(self) -> None:
        self.supernet.activate(self.supernet.largest)
        save_supernet(self.supernet, self.out)


def _size(space: Space, rng: np.random.Generator) -> int:
    """The side of the images of a batch."""
    smallest, largest = space.sizes[0], space.sizes[-1]
    between = range(smallest - smallest % STEP + STEP, largest, STEP)
    return int(rng.choice(sorted({smallest, *between, largest})))


def _resized(images: Tensor, size: int) -> Tensor:
    """Images (N, 3, S, S), smaller: (N, 3, size, size)."""
    if images.shape[-1] == size:
        return images
    return F.interpolate(images, (size, size), mode="bilinear", antialias=True)


def _set_mode(teacher: nn.Module, *, statistics_of_batch: bool) -> None:
    """Evaluation mode, or with the statistics of each batch in place of the running ones."""
    teacher.eval()
    for module in teacher.modules():
        if statistics_of_batch and is_norm(module):
            module.train()


def _make_equal(supernet: Supernet, fabric: Any) -> None:
    """Give every process the values of the first: each may have drawn its own."""
    if fabric.world_size > 1:
        supernet.load_state_dict(fabric.broadcast(supernet.state_dict()))


def _average_gradients(network: nn.Module, fabric: Any) -> None:
    """Average the gradients over all processes, which have drawn the same sub-networks.

    A wrapper for distributed training would average after each backward pass, and would wait for
    gradients of blocks that do not run.
    """
    if fabric.world_size == 1:
        return
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    flat = fabric.all_reduce(torch.cat([g.flatten() for g in gradients]), reduce_op="mean")
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
