"""Accuracies of many sub-networks on the same photos; what they share is computed once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pocketune.data import ImageDataset, Loader
from pocketune.extractor.record import Pair
from pocketune.networks import normalize
from pocketune.networks.architectures.parts import PlainNetwork
from pocketune.supernet import Space, SubnetConfig, Supernet
from pocketune.tasks import Labels, Task

CALIBRATION = 128
"""Photos that give a sub-network's batch norms their statistics, in one batch."""
CHUNK = 64
"""Photos in a forward pass."""

Key = tuple[object, ...]
"""What determines a part of a sub-network, given the parts before it."""


@dataclass(frozen=True)
class Photos:
    """Photos of one size, as tensors.

    Attributes:
        statistics: Normalized (C, 3, S, S), for the statistics of batch norms.
        held: Normalized (N, 3, S, S), to measure on.
        labels: Of the latter.
    """

    statistics: Tensor
    held: Tensor
    labels: Labels


class _Maps(NamedTuple):
    """Feature maps of both kinds of photos, behind some part."""

    statistics: Tensor
    held: Tensor


def ordered(space: Space, configs: Iterable[SubnetConfig]) -> list[SubnetConfig]:
    """The sub-networks in an order in which neighbors share as many parts as they can."""
    return sorted(configs, key=lambda config: repr(keys(space, config)))


def keys(space: Space, config: SubnetConfig) -> list[Key]:
    """What determines each part of a sub-network: stem, first block, blocks and feature fusion.

    Two sub-networks whose keys begin alike share the features below.
    """
    config = space.canonical(config)
    modules = [config.module_groups, config.module_kernels] if space.has_modules else []
    choices = [config.kernels, config.expansions, *modules]
    blocks = [(block, *(each[block] for each in choices)) for block in space.active(config)]
    fusion: list[Key] = [("fusion",)] if space.feature_fusion else []
    return [("stem", config.size), ("first",), *blocks, *fusion]


class Measurer:
    """Measures sub-networks on photos that the supernet was not adapted on.

    Batch norms get the statistics of other photos, which run beside: a sub-network's own, as
    training would estimate them, for the price of one forward pass. Group norm needs none.

    Args:
        supernet: The adapted supernet; not changed.
        training: Photos for the statistics; of the first ones.
        held: Photos to measure on.
        task: What is learned.

    Attributes:
        shared: Parts of measured sub-networks that were computed for others already, and all parts.
    """

    def __init__(
        self, supernet: Supernet, training: ImageDataset, held: ImageDataset, task: Task
    ) -> None:
        self._supernet = supernet
        self._training, self._held, self._task = training.thinned(CALIBRATION), held, task
        self._photos: dict[int, Photos] = {}
        self.shared = [0, 0]

    @torch.no_grad()
    def measure(self, configs: Sequence[SubnetConfig]) -> Iterator[Pair]:
        """The accuracy of each sub-network, in the given order; sort them with `ordered`."""
        space = self._supernet.space
        every = [keys(space, config) for config in configs]
        stack: list[tuple[Key, _Maps]] = []
        for number, config in enumerate(configs):
            mine = every[number]
            following = every[number + 1] if number + 1 < len(every) else []
            del stack[_alike([key for key, _ in stack], mine) :]
            self.shared[0] += len(stack)
            self.shared[1] += len(mine)
            yield self._measure(config, mine, stack, keep=_alike(mine, following))

    def _measure(
        self, config: SubnetConfig, mine: list[Key], stack: list[tuple[Key, _Maps]], keep: int
    ) -> Pair:
        network = plain_subnet(self._supernet, config)
        photos = self._sized(config.size)
        maps = stack[-1][1] if stack else _Maps(photos.statistics, photos.held)
        for key, part in list(zip(mine, network.features, strict=True))[len(stack) :]:
            with _statistics_of_input(part):
                statistics = part(maps.statistics)
            maps = _Maps(statistics, in_parts(part, maps.held))
            if len(stack) < keep:
                stack.append((key, maps))
        metric = self._task.metric()
        metric.update(network.classifier(maps.held.mean((2, 3))).numpy(), photos.labels)
        return Pair(config=config, accuracy=metric.score.value, loss=metric.score.loss)

    def _sized(self, size: int) -> Photos:
        """The photos at a size; decoded once."""
        if size not in self._photos:
            statistics, _ = self._decoded(self._training, size)
            held, labels = self._decoded(self._held, size)
            self._photos[size] = Photos(statistics, held, labels)
        return self._photos[size]

    def _decoded(self, photos: ImageDataset, size: int) -> tuple[Tensor, Labels]:
        batches = list(
            Loader(photos, size=size, batch=CHUNK, train=False, task=self._task).epoch(0)
        )
        images = [normalize(self._supernet, each.images) for each in batches]
        return torch.cat(images), self._task.collate(
            [label for each in batches for label in each.labels]
        )


def plain_subnet(supernet: Supernet, config: SubnetConfig) -> PlainNetwork:
    """A sub-network in evaluation mode, whose parts can be run one by one."""
    network = supernet.subnet(config).eval()
    assert isinstance(network, PlainNetwork)
    return network


def in_parts(part: nn.Module, images: Tensor) -> Tensor:
    """The output for many images or maps, computed a chunk at a time."""
    return torch.cat([part(each) for each in torch.split(images, CHUNK)])


@contextmanager
def _statistics_of_input(part: nn.Module) -> Iterator[None]:
    """Let each batch norm take the mean and variance of its input as its statistics."""

    def take(norm: nn.Module, given: tuple[Tensor, ...]) -> None:
        assert isinstance(norm, nn.BatchNorm2d)
        variance, mean = torch.var_mean(given[0], dim=(0, 2, 3), correction=0)
        norm.running_mean, norm.running_var = mean, variance

    norms = [each for each in part.modules() if isinstance(each, nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(take) for norm in norms]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _alike(one: Sequence[Key], other: Sequence[Key]) -> int:
    """Number of equal keys at the beginning."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
