"""Compare a compiled step with PyTorch before it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import islice
from operator import attrgetter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pocketune.arrays import State
from pocketune.compiler.deviation import Deviation, largest, worst_deviation
from pocketune.compiler.reference import (
    Images,
    Reference,
    Tensors,
    in_float64,
    smooth_images,
)
from pocketune.compiler.settings import CompileSettings
from pocketune.device.engine.base import Engine, draw_masks
from pocketune.device.train.optimizer import SGD
from pocketune.errors import PocketuneError
from pocketune.kit.manifest import MaskSpec
from pocketune.networks.copies import copy_network
from pocketune.objectives import objective_of
from pocketune.tasks import Labels
from pocketune.torch_private import uncheckpointed

BATCHES = 2
"""Batches of images, which the steps take in turn: PyTorch runs what is frozen once for each."""

PREDICTED = 3
"""Images whose predictions are compared; their number is not that of a batch, which is open."""

ATTEMPTS = 6
"""Batches tried for a step, each from other values, and for predictions. If an activation is on its
kink, where rounding decides the gradient, or an element at the border of what is pruned, others
pass; a wrong graph fails with all."""

LEARNING_RATE = 0.01
"""For gradients of norm up to 1; larger ones are scaled, since random weights might diverge."""

_MIXED = 1e-2
"""Largest difference between predictions for an image alone and among others, as a share of the
largest: far above rounding, and below what mixing the images does."""


class CompileError(PocketuneError):
    """The compiled step does not compute what PyTorch computes."""


@uncheckpointed()
def check_engine(
    engine: Engine,
    network: nn.Module,
    settings: CompileSettings,
    masks: Iterable[MaskSpec] = (),
    *,
    last: Engine | None = None,
    steps: int = 5,
    progress: Callable[[int, int], None] = lambda _step, _steps: None,
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
        engine: The engine to check; it starts near its own state.
        network: The adapted network, its dropouts replaced by `SuppliedDropout`.
        settings: The settings of the engine.
        masks: The dropout masks that the engine draws.
        last: Takes the place of the engine in the last step: a second graph of the same step.
        steps: Number of steps to compare.
        progress: Called with the number of each step, from 1, and that of all steps.

    Returns:
        The tensor that came nearest to its bound.

    Raises:
        CompileError: A tensor exceeds its bound; the message names it. Or the prediction for an
            image depends on the others or on their number.
    """
    comparison = _Comparison(engine, network, settings, masks)
    comparison.start(last)
    worst = Deviation("loss", 0.0, 1.0)
    for step in range(steps):
        progress(step + 1, steps)
        if last is not None and step == steps - 1:
            comparison.go_on_in(last)
        worst = max(worst, comparison.step(step), key=attrgetter("share"))
        _require(worst, f"in step {step + 1}")
    predicted = comparison.predictions()
    comparison.require_independence()
    _require(predicted, f"after step {steps}")
    return max(worst, predicted, key=attrgetter("share"))


class _Comparison:
    """An engine beside PyTorch, in steps and predictions on images that are drawn; see above."""

    def __init__(
        self,
        engine: Engine,
        network: nn.Module,
        settings: CompileSettings,
        masks: Iterable[MaskSpec],
    ) -> None:
        self._engine, self._network = engine, network
        self._settings, self._masks = settings, masks
        self._objective = objective_of(settings.task)
        self._exact = Reference(in_float64(network, settings.size), self._objective)
        self._rng = np.random.default_rng(0)
        self._batches: dict[int | None, Images] = {}

    @cached_property
    def _rounding(self) -> Reference:
        return Reference(copy_network(self._network), self._objective)

    def start(self, last: Engine | None) -> None:
        """Give the engine values near its own, and all the same inputs."""
        inputs = self._engine.inputs
        for name, value in inputs.items():
            value[...] = self._rng.uniform(0.5, 1.5, value.shape)
            if last is not None:
                last.inputs[name][...] = value
        self._objective.inputs = {name: torch.from_numpy(value) for name, value in inputs.items()}
        images, labels = next(self._images(0)), self._labels()
        settled = _settled(self._engine, self._network, images, labels)
        self._engine.load(_moved(settled, self._rng))

    def go_on_in(self, engine: Engine) -> None:
        """Let another engine take the place of the one before."""
        state = self._engine.state()
        self._engine.release()
        self._engine = engine
        engine.load(state)

    def step(self, number: int) -> Deviation:
        """The deviation after one step from the engine's values, with an SGD update."""
        buffers = self._exact.buffers()

        def attempt(images: Images, state: State) -> Deviation:
            self._engine.load(state)
            start = {**buffers, **state}
            labels = self._labels()
            ours, lr = _engine_step(self._engine, images, labels, np.random.default_rng(number))
            masks = draw_masks(self._masks, np.random.default_rng(number))
            inputs = (start, images, labels, masks, lr)
            truth = self._exact.step(*inputs)
            return worst_deviation(ours, truth, lambda n: self._rounding.step(*inputs, noise=n))

        states = self._states(self._engine.state())
        return _best(map(attempt, self._images(number % BATCHES), states))

    def predictions(self) -> Deviation:
        """The worst of predictions and embeddings, if there are any."""
        state = self._state()

        def attempt(images: Images) -> Deviation:
            truth = self._exact.predict(state, images)
            ours = {"predictions": np.array(self._engine.predict(images), np.float64)}
            if "embeddings" in truth:
                ours["embeddings"] = np.array(self._engine.embed(images), np.float64)
            return worst_deviation(ours, truth, lambda n: self._rounding.predict(state, images, n))

        return _best(map(attempt, self._images(None)))

    def require_independence(self) -> None:
        """Check that the kit and PyTorch predict an image alone as among others.

        A step is traced with one number of images, and so is what the kit does with them: only
        PyTorch shows that a network does something else with one image.
        """
        state, images = self._state(), self._batches[None]

        def exactly(images: Images) -> NDArray[np.float64]:
            return self._exact.predict(state, images)["predictions"]

        for predict in (self._engine.predict, exactly):
            among, alone = (np.asarray(predict(each))[-1] for each in (images, images[-1:]))
            if largest(among - alone) > _MIXED * largest(among):
                raise CompileError(
                    "the prediction for an image depends on the other images of its batch or on "
                    "their number, as behind a softmax or mean over the first dimension, or a "
                    "squeeze() of all dimensions; let the network compute each image by itself"
                )

    def _images(self, batch: int | None) -> Iterator[Images]:
        """Those of a batch, and others that take their place; those to predict for None."""
        if batch in self._batches:
            yield self._batches[batch]
        count = PREDICTED if batch is None else self._settings.batch
        while True:
            self._batches[batch] = smooth_images(self._rng, count, self._settings.size)
            yield self._batches[batch]

    def _states(self, state: State) -> Iterator[State]:
        """The values of a step, and others that take their place, as other images may not do.

        A norm over two images makes 1 and -1 of almost anything: what is at a border stays there.
        """
        yield state
        while True:
            yield _moved(state, self._rng)

    def _labels(self) -> Labels:
        settings = self._settings
        shape = (settings.batch, *settings.task.label_shape(settings.size))
        return self._objective.draw_labels(self._rng, shape)

    def _state(self) -> State:
        return {**self._exact.buffers(), **self._engine.state()}


def _best(attempts: Iterable[Deviation]) -> Deviation:
    """The first of a few that is within its bound, or else the nearest to it."""
    found: list[Deviation] = []
    for deviation in islice(attempts, ATTEMPTS):
        found.append(deviation)
        if deviation.share <= 1:
            break
    return min(found, key=attrgetter("share"))


def _settled(engine: Engine, network: nn.Module, images: Images, labels: Labels) -> State:
    """The engine's state, with the means of a batch for running means.

    A compiled norm finds the variance of what differs from its running mean. In a layer that was
    just drawn, that mean is 0, and until some steps are made the maps of a batch can be so far from
    it that their variance rounds: enough to move activations of large maps over their kinks.
    """
    state = engine.state()
    engine.gradients(images, labels, np.random.default_rng(0))
    for name, module in network.named_modules():
        mean = f"{name}.running_mean"
        if mean in state and module.momentum:
            state[mean] += (engine.statistics[mean] - state[mean]) / np.float32(module.momentum)
    return state


def _moved(state: State, rng: np.random.Generator) -> State:
    """Values near those of a state, so that a graph that has them built in is wrong.

    Zeros move too: the gradients of what they are multiplied with would be zero. They move up,
    because the running variance of a dead channel is 0 and has a square root.
    """
    moved = {}
    for name, values in state.items():
        share = rng.uniform(0.9, 1.1, values.shape)
        step = np.where(values == 0, rng.uniform(0.001, 0.02, values.shape), 0)
        moved[name] = (values * share + step).astype(np.float32)
    return moved


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


def _require(deviation: Deviation, when: str) -> None:
    if deviation.share > 1 and not np.isfinite(deviation.allowed):
        raise CompileError(
            f"PyTorch's own {deviation.tensor} is not finite {when}, on random images, so that no "
            "kit can be compared with it; let the network divide by no zero and take the root of "
            "none, in its gradients too"
        )
    if deviation.share > 1:
        raise CompileError(
            f"the compiled step disagrees with PyTorch {when}: {deviation.tensor} is off by "
            f"{deviation.error:.1e} where {deviation.allowed:.1e} is allowed; no kit was written"
        )
