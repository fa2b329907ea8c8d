"""The training step in PyTorch that a compiled one is compared with."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from pocketune.arrays import State
from pocketune.compiler.capture.trace import running_statistics, trained_parameters
from pocketune.compiler.memoized import Memoized
from pocketune.networks import normalize
from pocketune.networks.anatomy.output import embeddings, inputs_of
from pocketune.networks.copies import copy_network
from pocketune.networks.single_image import SingleImageNorms
from pocketune.objectives import Objective
from pocketune.tasks import Labels

Images = NDArray[np.uint8]
Tensors = dict[str, NDArray[np.float64]]


class Reference:
    """The training step in PyTorch, in the precision of `network`.

    Frozen modules run once for each batch of images, see `Memoized`.

    Args:
        network: Trained in place.
        objective: The loss.
    """

    def __init__(self, network: nn.Module, objective: Objective) -> None:
        self._network = network
        self._objective = objective
        self._layer = objective.task.output_layer
        self._trained = trained_parameters(network)
        self._frozen = Memoized(network)

    def step(
        self,
        state: State,
        images: Images,
        labels: Labels,
        masks: State,
        lr: float,
        *,
        noise: int = 0,
    ) -> Tensors:
        """Everything that a step computes from the values `state`.

        With a number `noise` other than 0, each pixel is changed by a normally distributed share of
        it, whose deviation is the precision of float32; each number gives other images.
        """
        self._load({**state, **masks})
        self._network.train()
        with self._frozen.remembering():
            logits = self._logits(images, noise)
        loss = self._objective.loss(logits, torch.from_numpy(labels))
        gradients = torch.autograd.grad(loss, [*self._trained.values()])
        values = {"loss": _to_numpy(loss)}
        for (name, parameter), gradient in zip(self._trained.items(), gradients, strict=True):
            values[f"gradient of {name}"] = _to_numpy(gradient)
            values[f"updated {name}"] = _to_numpy(parameter.detach() - lr * gradient)
        for name, statistic in running_statistics(self._network).items():
            values[f"new {name}"] = _to_numpy(statistic)
        return values

    @torch.no_grad()
    def predict(self, state: State, images: Images, noise: int = 0) -> Tensors:
        """Predictions, and embeddings if there are any, of a network with the values `state`."""
        self._load(state)
        self._network.eval()
        with inputs_of(self._network, self._layer) as inputs:
            values = {"predictions": _to_numpy(self._logits(images, noise))}
        found = embeddings(inputs)
        return values if found is None else {**values, "embeddings": _to_numpy(found)}

    def buffers(self) -> State:
        """Copies of all buffers."""
        return {n: b.detach().numpy().copy() for n, b in self._network.named_buffers()}

    def _logits(self, images: Images, noise: int) -> torch.Tensor:
        pixels = normalize(self._network, images).contiguous()  # which is faster in float64
        if noise:
            generator = torch.Generator().manual_seed(noise)
            share = torch.empty_like(pixels).normal_(generator=generator)
            pixels = pixels * (1 + torch.finfo(torch.float32).eps * share)
        dtype = next(self._network.parameters()).dtype
        with SingleImageNorms():
            logits: torch.Tensor = self._network(pixels.to(dtype))
        return logits

    @torch.no_grad()
    def _load(self, values: State) -> None:
        tensors = {**dict(self._network.named_parameters()), **dict(self._network.named_buffers())}
        for name, value in values.items():
            tensors[name].copy_(torch.from_numpy(value))


def in_float64(network: nn.Module, size: int) -> nn.Module:
    """A copy in float64, or in float32 if the network's code insists on it, as `x.float()` does.

    In float32, runs on images that differ in their last bit show the effect of rounding.
    """
    double = copy_network(network).double().eval()
    try:
        with torch.no_grad():
            double(torch.zeros(1, 3, size, size, dtype=torch.float64))
    except RuntimeError:
        return copy_network(network)
    return double


def smooth_images(rng: np.random.Generator, batch: int, size: int) -> Images:
    """Random images that vary slowly, as photos do; independent pixels average out to gray."""
    coarse = rng.random((batch, 5, 5, 3), dtype=np.float32)
    maps = torch.from_numpy(coarse).permute(0, 3, 1, 2)
    smooth = functional.interpolate(maps, size=(size, size), mode="bicubic", align_corners=False)
    images: Images = (smooth.permute(0, 2, 3, 1) * 255).clamp(0, 255).byte().numpy()
    return images


def _to_numpy(tensor: torch.Tensor) -> NDArray[np.float64]:
    values: NDArray[np.float64] = tensor.detach().double().numpy().copy()
    return values
