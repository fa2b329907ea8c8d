"""Compare a compiled step with PyTorch before it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from pocketune.arrays import State
from pocketune.compiler.capture.trace import running_statistics, trained_parameters
from pocketune.compiler.settings import CompileSettings
from pocketune.device.engine.base import Engine, draw_masks
from pocketune.device.train.optimizer import SGD
from pocketune.errors import PocketuneError
from pocketune.kit.manifest import MaskSpec
from pocketune.networks import normalize
from pocketune.networks.anatomy.output import embeddings, inputs_of
from pocketune.networks.copies import copy_network
from pocketune.objectives import Objective, objective_of
from pocketune.tasks import Labels
from pocketune.torch_private import uncheckpointed

TOLERANCE = 1e-4
"""Largest error of a tensor, as a share of its largest magnitude."""

FLOOR = 1e-6
"""Error that is always allowed: some gradients are zero except for rounding."""

ROUNDING = 8
"""Error that is allowed as a multiple of PyTorch's own float32 against float64."""

JITTERS = 3
"""Further runs of PyTorch in float32, if a tensor is off by more, on images that differ in their
last bit. They show how much rounding can change the tensor, wherever an implementation rounds."""

ATTEMPTS = 6
"""Batches tried for a step. If an activation is on its kink, where rounding decides the gradient,
other images pass; a wrong graph fails with all images."""

LEARNING_RATE = 0.01
"""For gradients of norm up to 1; larger ones are scaled, since random weights might diverge."""

Images = NDArray[np.uint8]
Tensors = dict[str, NDArray[np.float64]]


class CompileError(PocketuneError):
    """The compiled step does not compute what PyTorch computes."""


@dataclass(frozen=True)
class Deviation:
    """How far a tensor is off, and how far it may be."""

    tensor: str
    error: float
    allowed: float

    @property
    def share(self) -> float:
        """The error relative to the bound; infinite for an error that is not finite."""
        return self.error / self.allowed if np.isfinite(self.error) else np.inf


class Reference:
    """The training step in PyTorch, in the precision of `network`."""

    def __init__(self, network: nn.Module, objective: Objective) -> None:
        self._network = network
        self._objective = objective
        self._layer = objective.task.output_layer
        self._trained = trained_parameters(network)
        self._generator = torch.Generator().manual_seed(0)
        self._optimizer = torch.optim.SGD(self._trained.values(), LEARNING_RATE)

    def step(
        self,
        state: State,
        images: Images,
        labels: Labels,
        masks: State,
        lr: float,
        jitter: float = 0.0,
    ) -> Tensors:
        """Everything that a step computes from the values `state`.

        Each pixel is changed by a normally distributed share of it with deviation `jitter`.
        """
        self._load({**state, **masks})
        self._network.train()
        self._optimizer.zero_grad()
        logits = self._logits(images, jitter)
        loss = self._objective.loss(logits, torch.from_numpy(labels))
        loss.backward()  # type: ignore[no-untyped-call]
        values = {"loss": _to_numpy(loss)}
        for name, parameter in self._trained.items():
            assert parameter.grad is not None
            values[f"gradient of {name}"] = _to_numpy(parameter.grad)
        self._optimizer.param_groups[0]["lr"] = lr
        self._optimizer.step()
        for name, parameter in self._trained.items():
            values[f"updated {name}"] = _to_numpy(parameter)
        for name, statistic in running_statistics(self._network).items():
            values[f"new {name}"] = _to_numpy(statistic)
        return values

    @torch.no_grad()
    def predict(self, state: State, images: Images, jitter: float = 0.0) -> Tensors:
        """Predictions, and embeddings if there are any, of a network with the values `state`."""
        self._load(state)
        self._network.eval()
        with inputs_of(self._network, self._layer) as inputs:
            values = {"predictions": _to_numpy(self._logits(images, jitter))}
        found = embeddings(inputs)
        return values if found is None else {**values, "embeddings": _to_numpy(found)}

    def _logits(self, images: Images, jitter: float) -> torch.Tensor:
        pixels = normalize(self._network, images)
        if jitter:
            noise = torch.empty_like(pixels).normal_(generator=self._generator)
            pixels = pixels * (1 + jitter * noise)
        dtype = next(self._network.parameters()).dtype
        logits: torch.Tensor = self._network(pixels.to(dtype))
        return logits

    def buffers(self) -> State:
        """Copies of all buffers."""
        return {n: b.detach().numpy().copy() for n, b in self._network.named_buffers()}

    @torch.no_grad()
    def _load(self, values: State) -> None:
        tensors = {**dict(self._network.named_parameters()), **dict(self._network.named_buffers())}
        for name, value in values.items():
            tensors[name].copy_(torch.from_numpy(value))


@uncheckpointed()
def check_engine(
    engine: Engine,
    network: nn.Module,
    settings: CompileSettings,
    masks: Iterable[MaskSpec] = (),
    *,
    steps: int = 5,
) -> Deviation:
    """Train in `engine` and in PyTorch side by side, and compare everything after each step.

    Loss, every gradient, every updated parameter, every new running statistic and, after the last
    step, predictions and embeddings must lie within `TOLERANCE` of PyTorch in float64, or within
    `ROUNDING` times the error of PyTorch's own float32 (see `JITTERS`): a norm over a nearly
    constant channel magnifies rounding in any implementation. A network whose code insists on
    float32 is compared in float32. Both references start every step from the engine's values. They
    share the buffers that the engine does not have, so a step that changes such a buffer is an
    error and not rounding.

    Args:
        engine: the engine to check; it starts from its own state.
        network: the adapted network, its dropouts replaced by `SuppliedDropout`.
        settings: the settings of the engine.
        masks: the dropout masks that the engine draws.
        steps: number of steps to compare.

    Returns:
        The tensor that came nearest to its bound.

    Raises:
        CompileError: a tensor exceeds its bound; the message names it.
    """
    objective = objective_of(settings.task)
    label_shape = (settings.batch, *settings.task.label_shape(settings.size))
    exact = Reference(_precise(network, settings.size), objective)
    rounding = Reference(copy_network(network), objective)
    rng = np.random.default_rng(0)
    for value in engine.inputs.values():
        value[...] = rng.uniform(0.5, 1.5, value.shape)
    objective.inputs = {name: torch.from_numpy(value) for name, value in engine.inputs.items()}
    worst = Deviation("loss", 0.0, 1.0)
    for step in range(steps):
        before, found = engine.state(), []
        start = {**exact.buffers(), **before}
        for _ in range(ATTEMPTS):
            engine.load(before)
            images = _smooth_images(rng, settings.batch, settings.size)
            labels = objective.draw_labels(rng, label_shape)
            ours, lr = _engine_step(engine, images, labels, np.random.default_rng(step))
            drawn = draw_masks(masks, np.random.default_rng(step))
            inputs = (start, images, labels, drawn, lr)
            found.append(_deviation(ours, exact.step, rounding.step, *inputs))
            if found[-1].share <= 1:
                break
        worst = max(worst, min(found, key=_share), key=_share)
        _require(worst, f"in step {step + 1}")
    ours = {"predictions": np.array(engine.predict(images), np.float64)}
    end = {**exact.buffers(), **engine.state()}
    if "embeddings" in exact.predict(end, images):
        ours["embeddings"] = np.array(engine.embed(images), np.float64)
    predicted = _deviation(ours, exact.predict, rounding.predict, end, images)
    _require(predicted, f"after step {steps}")
    return max(worst, predicted, key=_share)


def _precise(network: nn.Module, size: int) -> nn.Module:
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


def _engine_step(
    engine: Engine, images: Images, labels: Labels, rng: np.random.Generator
) -> tuple[Tensors, float]:
    """Everything that a step computes, and its learning rate."""
    result = engine.gradients(images, labels, rng)
    values: dict[str, object] = {f"gradient of {n}": g for n, g in result.values.items()}
    norm = sum(float(np.square(g, dtype=np.float64).sum()) for g in result.values.values()) ** 0.5
    lr = LEARNING_RATE / max(norm, 1.0)
    SGD(engine.parameters).step(result.values, lr=lr)
    values["loss"] = result.loss
    values.update({f"updated {n}": p for n, p in engine.parameters.items()})
    values.update({f"new {n}": s for n, s in engine.statistics.items()})
    return {name: np.array(value, np.float64) for name, value in values.items()}, lr


def _deviation(
    ours: Tensors, exact: Callable[..., Tensors], rounding: Callable[..., Tensors], *inputs: Any
) -> Deviation:
    """The tensor that is nearest to its bound, or furthest beyond.

    The effect of rounding is computed only if a tensor is off by more than `TOLERANCE`.
    """
    truth, rounded = exact(*inputs), list[Tensors]()
    worst = max(_deviations(ours, truth, rounded), key=_share)
    for jitter in (0.0, *[float(np.finfo(np.float32).eps)] * JITTERS):
        if worst.share <= 1:
            break
        rounded.append(rounding(*inputs, jitter))
        worst = max(_deviations(ours, truth, rounded), key=_share)
    return worst


def _share(deviation: Deviation) -> float:
    return deviation.share


def _require(deviation: Deviation, when: str) -> None:
    if deviation.share > 1:
        raise CompileError(
            f"the compiled step disagrees with PyTorch {when}: {deviation.tensor} is off by "
            f"{deviation.error:.1e} where {deviation.allowed:.1e} is allowed; no kit was written"
        )


def _deviations(ours: Tensors, exact: Tensors, rounded: list[Tensors]) -> Iterator[Deviation]:
    for name, truth in exact.items():
        off = (_largest(values[name] - truth) for values in rounded)
        rounding = ROUNDING * max(off, default=0.0)
        allowed = max(TOLERANCE * _largest(truth), rounding, FLOOR)
        yield Deviation(name, _largest(ours[name] - truth), allowed)


def _largest(values: NDArray[np.float64]) -> float:
    return float(np.max(np.abs(values), initial=0.0))


def _smooth_images(rng: np.random.Generator, batch: int, size: int) -> Images:
    """Random images that vary slowly, as photos do; independent pixels average out to gray."""
    coarse = rng.random((batch, 5, 5, 3), dtype=np.float32)
    maps = torch.from_numpy(coarse).permute(0, 3, 1, 2)
    smooth = functional.interpolate(maps, size=(size, size), mode="bicubic", align_corners=False)
    images: Images = (smooth.permute(0, 2, 3, 1) * 255).clamp(0, 255).byte().numpy()
    return images


def _to_numpy(tensor: torch.Tensor) -> NDArray[np.float64]:
    values: NDArray[np.float64] = tensor.detach().double().numpy().copy()
    return values
