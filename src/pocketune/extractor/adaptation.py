"""The first phase: a supernet is adapted to photos, a random sub-network a step.

TinyTL, section 3.3: kernels stay frozen, and the biases of norms, the lite residual modules and the
classifier are trained.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.data import ImageDataset, Loader, Purpose, random_stream
from pocketune.device.head import fit_head
from pocketune.device.train.defaults import default_rates
from pocketune.device.train.schedule import CosineSchedule
from pocketune.extractor.genome import Genome
from pocketune.extractor.measuring import CALIBRATION, in_parts, plain_subnet
from pocketune.extractor.settings import ExtractorSettings
from pocketune.extractor.spaces import config_of
from pocketune.files import reading
from pocketune.layers import LiteResidual
from pocketune.networks import normalize
from pocketune.objectives import objective_of
from pocketune.supernet import Supernet
from pocketune.surgery import BRANCH
from pocketune.weights import estimate_batch_norm
from pocketune.weights.formats.files import write_state

CHECKPOINT_SECONDS = 30.0
DEALT = 8
"""Sub-networks whose embeddings give the first classifier; each photo is seen by one of them."""
TIMED = 4
"""Steps that are timed to learn how many there is time for; they change nothing."""
HEADER = "pocketune.extractor"
MOMENTS = ("exp_avg", "exp_avg_sq", "step")

Shown = Callable[[int, int, float], None]
"""Called with what is done, how much there is, and the seconds that are left."""


class Adaptation:
    """A supernet in training on photos; the state is on disk after some time and at the end.

    Which sub-network a step trains, its photos and its dropout mask depend on the seed and the
    step's number, so that a resumed run ends with the same values.

    Args:
        supernet: Changed in place; its classes are those of the photos.
        genome: The sub-networks to train.
        photos: The labeled photos to adapt to.
        settings: Epochs, batch and seed.
        path: File of the state.

    Attributes:
        done: Completed steps.
    """

    def __init__(
        self,
        supernet: Supernet,
        genome: Genome,
        photos: ImageDataset,
        settings: ExtractorSettings,
        path: Path,
    ) -> None:
        self._supernet, self._genome = supernet, genome
        self._settings, self._path = settings, path
        self._loader = Loader(
            photos,
            size=genome.sizes[-1],
            batch=settings.batch,
            train=True,
            seed=settings.seed,
        )
        self._objective = objective_of(photos.labeled)
        rates = default_rates("adam", settings.batch)
        groups: dict[float, list[nn.Parameter]] = {}
        self._trained = dict(trained_parameters(supernet))
        supernet.requires_grad_(False)
        for name, parameter in self._trained.items():
            parameter.requires_grad_(True)
            rate = rates.head if _in_head(name) else rates.side if BRANCH in name else rates.bias
            groups.setdefault(rate, []).append(parameter)
        self._peaks = list(groups)
        self._optimizer = torch.optim.Adam([{"params": each} for each in groups.values()])
        self.done = 0

    @property
    def whole(self) -> int:
        """Steps of all epochs."""
        return self._settings.epochs * len(self._loader)

    def start(self) -> None:
        """Go on from the file, or compute the first classifier from the photos."""
        if self._path.exists():
            self._load()
        else:
            self._fit_classifier()

    def fitting(self, seconds: float) -> int:
        """The number of steps that there is time for, all of them at most.

        So few steps that timing them would take as long are not timed.

        Args:
            seconds: Infinite for no limit.
        """
        if self.whole <= TIMED or math.isinf(seconds):
            return self.whole
        before = {name: value.clone() for name, value in self._supernet.state_dict().items()}
        steps = self._steps(self.whole)
        next(steps)  # opens the photos
        began = time.monotonic()
        for _ in range(TIMED):
            next(steps)
        each = (time.monotonic() - began) / TIMED
        steps.close()
        self._supernet.load_state_dict(before)
        self._optimizer.state.clear()
        self.done = 0
        return max(1, min(self.whole, int(seconds / each)))

    def run(self, steps: int, shown: Shown) -> None:
        """Train until so many steps are complete, and write the state.

        An interrupted call has written the state of a moment ago.
        """
        began, first, written = time.monotonic(), self.done, time.monotonic()
        for _ in self._steps(steps):
            now = time.monotonic()
            shown(self.done, steps, (now - began) / (self.done - first) * (steps - self.done))
            if now - written > CHECKPOINT_SECONDS and self.done < steps:
                self._save()
                written = now
        self._save()

    def _steps(self, steps: int) -> Generator[None, None, None]:
        """Train on, a step at a time."""
        schedule = [CosineSchedule(peak, steps) for peak in self._peaks]
        batches = self._batches()
        self._supernet.train()
        with torch.random.fork_rng(devices=()):
            while self.done < steps:
                for group, rate in zip(self._optimizer.param_groups, schedule, strict=True):
                    group["lr"] = rate(self.done)
                self._step(*next(batches))
                self.done += 1
                yield

    def _step(self, images: Tensor, labels: Tensor) -> None:
        rng = random_stream(self._settings.seed, Purpose.SUBNET, self.done)
        config = config_of(self._supernet.space, self._genome, self._genome.sample(rng, 1)[0])
        torch.default_generator.manual_seed(int(rng.integers(2**31)))  # for dropout
        if images.shape[-1] != config.size:
            images = F.interpolate(images, (config.size,) * 2, mode="bilinear", antialias=True)
        self._supernet.activate(config)
        loss = self._objective.loss(self._supernet(images), labels)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        epoch, start = divmod(self.done, len(self._loader))
        while True:
            for batch in self._loader.epoch(epoch, start):
                images = normalize(self._supernet, batch.images)
                yield images, torch.from_numpy(batch.labels)
            epoch, start = epoch + 1, 0

    @torch.no_grad()
    def _fit_classifier(self) -> None:
        """The classifier in closed form, of embeddings by several sub-networks.

        Each photo is seen by one of them, so that no photo is left out and there all the same.
        Batch norms have the statistics of the first photos that it sees.
        """
        photos, rng = self._loader.dataset, np.random.default_rng(self._settings.seed)
        dealt = np.array_split(rng.permutation(len(photos)), min(DEALT, max(1, len(photos) // 16)))
        genes = self._genome.sample(rng, len(dealt))
        genes[0], genes[-1] = self._genome.smallest[0], self._genome.largest[0]
        blocks = []
        for chosen, row in zip(dealt, genes, strict=True):
            config = config_of(self._supernet.space, self._genome, row)
            network = plain_subnet(self._supernet, config)
            part = Loader(
                photos.subset(chosen),
                size=config.size,
                batch=CALIBRATION,
                train=False,
            )
            for number, batch in enumerate(part.epoch(0)):
                images = normalize(self._supernet, batch.images)
                if not number:
                    estimate_batch_norm(network, [images])
                maps = in_parts(network.features, images)
                blocks.append((maps.mean((2, 3)).numpy(), batch.labels))
        head = fit_head(lambda: iter(blocks), photos.labeled)
        if head is not None:
            layer = self._supernet.network.get_submodule("classifier.1")
            assert isinstance(layer, nn.Linear)
            layer.weight.copy_(torch.from_numpy(head.weight))
            layer.bias.copy_(torch.from_numpy(head.bias))

    def _save(self) -> None:
        tensors = {f"value.{name}": each.detach() for name, each in self._trained.items()}
        for name, each in self._trained.items():
            for moment in MOMENTS:
                if moment in self._optimizer.state[each]:
                    tensors[f"{moment}.{name}"] = self._optimizer.state[each][moment]
        write_state(self._path, tensors, HEADER, {"steps": self.done})

    @torch.no_grad()
    def _load(self) -> None:
        damage = (SafetensorError, KeyError, ValueError, RuntimeError)  # of other names or shapes
        with (
            reading(self._path, *damage, remedy="remove it to start over"),
            safe_open(self._path, "pt") as file,
        ):
            self.done = int(json.loads((file.metadata() or {})[HEADER])["steps"])
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            for name, each in self._trained.items():
                each.copy_(found[f"value.{name}"])
                state = {m: found[f"{m}.{name}"] for m in MOMENTS if f"{m}.{name}" in found}
                if state:
                    self._optimizer.state[each] = state


def trained_parameters(supernet: Supernet) -> Iterator[tuple[str, nn.Parameter]]:
    """What is trained: the classifier, the modules, and the biases of all norms.

    In a block with a module, the last bias of the module is frozen, as in `TinyTL`: the block's own
    does the same.
    """
    for name, parameter in supernet.network.named_parameters():
        module = f".{BRANCH}." in name
        repeated = name.endswith(f".{BRANCH}.{LiteResidual.LAST_BIAS}")
        if _in_head(name) or (module and not repeated) or (not module and name.endswith(".bias")):
            yield name, parameter


def _in_head(name: str) -> bool:
    return name.startswith("classifier.")
