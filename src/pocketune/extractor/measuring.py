"""Accuracies of many sub-networks on the same photos; what they share is computed once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pocketune.data import ImageDataset, Loader
from pocketune.data.images.transforms import Pixels
from pocketune.extractor.record import Pair
from pocketune.networks import normalize
from pocketune.networks.architectures.parts import PlainNetwork
from pocketune.supernet import Space, SubnetConfig, Supernet
from pocketune.tasks import Labels

CALIBRATION = 128
"""Photos that give a sub-network's batch norms their statistics, in one batch."""
CHUNK = 64
"""Photos in a forward pass."""
HELD = 512
"""Photos to measure on, at most, since maps of all of them are kept. The paper has 408 of Flowers;
with 512, the standard error of an accuracy is at most 2.2 points."""

Key = tuple[object, ...]
"""What determines a part of a sub-network, given the parts before it."""


@dataclass(frozen=True)
class Photos:
    """Photos of one size.

    Attributes:
        size: Their height and width.
        statistics: uint8 (C, S, S, 3), for the statistics of batch norms.
        held: uint8 (N, S, S, 3), to measure on.
        labels: Of the latter.
    """

    size: int
    statistics: Pixels
    held: Pixels
    labels: Labels


class _Maps(NamedTuple):
    """Feature maps of both kinds of photos, behind some part; those to measure on by chunks."""

    statistics: Tensor
    held: list[Tensor]


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
        held: Labeled photos to measure on; of more than `HELD`, so many, evenly spread.

    Attributes:
        shared: Parts of measured sub-networks that were computed for others already, and all parts.
    """

    def __init__(self, supernet: Supernet, training: ImageDataset, held: ImageDataset) -> None:
        self._supernet = supernet
        self._training, self._held = training.thinned(CALIBRATION), held.thinned(HELD)
        self._photos: Photos | None = None
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
        photos, below = self._sized(config.size), stack[-1][1] if stack else None
        parts = list(zip(mine, network.features, strict=True))[len(stack) :]
        kept: list[tuple[Key, _Maps] | None] = []
        statistics = below.statistics if below else normalize(self._supernet, photos.statistics)
        for key, part in parts:  # batch norms have their statistics before other photos pass
            with _statistics_of_input(part):
                statistics = part(statistics)
            keeps = len(stack) + len(kept) < keep
            kept.append((key, _Maps(statistics, [])) if keeps else None)
        embeddings = []
        for number, start in enumerate(range(0, len(photos.held), CHUNK)):
            pixels = photos.held[start : start + CHUNK]
            maps = below.held[number] if below else normalize(self._supernet, pixels)
            for (_, part), entry in zip(parts, kept, strict=True):
                maps = part(maps)
                if entry is not None:
                    entry[1].held.append(maps)
            embeddings.append(maps.mean((2, 3)))
        stack.extend(filter(None, kept))
        metric = self._held.labeled.metric()
        metric.update(network.classifier(torch.cat(embeddings)).numpy(), photos.labels)
        return Pair(config=config, accuracy=metric.score.value, loss=metric.score.loss)

    def _sized(self, size: int) -> Photos:
        """The photos at a size; those of the last one are kept, since sizes come in order."""
        if self._photos is None or self._photos.size != size:
            statistics, _ = self._decoded(self._training, size)
            self._photos = Photos(size, statistics, *self._decoded(self._held, size))
        return self._photos

    def _decoded(self, photos: ImageDataset, size: int) -> tuple[Pixels, Labels]:
        batches = list(Loader(photos, size=size, batch=CHUNK, train=False).epoch(0))
        labels = photos.labeled.collate([label for each in batches for label in each.labels])
        return np.concatenate([each.images for each in batches]), labels


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
