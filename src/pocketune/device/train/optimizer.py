"""SGD, Adam and its variants in numpy, in place and a block at a time.

An optimizer of graph operators would take more time than the convolutions of a small network, and
hold every state tensor twice. Here parameters are updated in blocks that fit the processor's cache,
and all parameters share two scratch blocks, so that no temporary array is as large as a tensor. The
updates equal those of `torch.optim` to within float32 rounding.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketune.device.train import moments
from pocketune.device.train.defaults import OPTIMIZERS
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pocketune.arrays import FloatArray

    Slots = tuple[NDArray[Any], ...]

BLOCK = 32_768
"""Elements in a block: 128 KiB, so that the five arrays of an Adam update fit a 1 MiB cache."""

_DOT = 8_192
_CACHE_LINE = 64


class Optimizer(ABC):
    """Updates parameters block by block; a subclass defines the update of one block.

    Weight decay is not applied to tensors of one dimension (biases and norms), as is usual in
    fine-tuning.

    Args:
        parameters: Live, C-contiguous float32 arrays, which `step` updates in place.
        weight_decay: Weight decay.
        rates: Factors on the learning rate of some parameters, by name.

    Raises:
        ValueError: A parameter is not a writeable, C-contiguous float32 array.
    """

    slots: tuple[str, ...] = ()
    """Names of the state tensors of each parameter."""

    decoupled = False
    """Whether weight decay shrinks the weights directly instead of adding to their gradient."""

    def __init__(
        self,
        parameters: Mapping[str, FloatArray],
        *,
        weight_decay: float = 0.0,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        self.steps = 0
        self._groups: dict[float, list[str]] = {}
        self._parameters: dict[str, FloatArray] = {}
        self._decay: dict[str, float] = {}
        self._state: dict[str, Slots] = {}
        for name, array in parameters.items():
            flags = array.flags
            if array.dtype != np.float32 or not (flags.c_contiguous and flags.writeable):
                raise ValueError(f"parameter {name} is not a writeable C-contiguous float32 array")
            self._groups.setdefault((rates or {}).get(name, 1.0), []).append(name)
            self._parameters[name] = array.reshape(-1)
            self._decay[name] = weight_decay if array.ndim > 1 else 0.0
            self._state[name] = self._zeros(array.size)
        self._scratch = (_aligned_zeros(BLOCK), _aligned_zeros(BLOCK))

    def step(self, gradients: Mapping[str, FloatArray], *, lr: float, scale: float = 1.0) -> None:
        """Update every parameter in place.

        Args:
            gradients: The gradient of each parameter; they are not changed.
            lr: Learning rate of this step.
            scale: Factor on the gradients; see `clip_scale`.
        """
        self.steps += 1
        for factor, names in self._groups.items():
            self._begin(lr * factor)
            for name in names:
                self._walk(name, gradients[name].reshape(-1), lr * factor, scale)

    def _walk(self, name: str, gradient: FloatArray, lr: float, scale: float) -> None:
        """Update one parameter, block by block."""
        parameter, decay = self._parameters[name], self._decay[name]
        for start in range(0, parameter.size, BLOCK):
            part = slice(start, min(start + BLOCK, parameter.size))
            scaled, spare = (scratch[: part.stop - start] for scratch in self._scratch)
            values, block = parameter[part], gradient[part]
            if scale != 1.0:
                block = np.multiply(block, np.float32(scale), out=scaled)
            if decay and self.decoupled:
                values *= np.float32(1.0 - lr * decay)
            elif decay:
                np.multiply(values, np.float32(decay), out=spare)
                block = np.add(block, spare, out=scaled)
            self._update(values, block, spare, self._part(name, part))

    def _zeros(self, size: int) -> Slots:
        """The state tensors of a parameter of `size` elements, before the first step."""
        return tuple(_aligned_zeros(size) for _ in self.slots)

    def _part(self, name: str, part: slice) -> Slots:
        """The state of one block of a parameter."""
        return tuple(slot[part] for slot in self._state[name])

    def _begin(self, lr: float) -> None:
        """Compute the values that all blocks with this learning rate share in a step."""
        self._lr = np.float32(lr)

    @abstractmethod
    def _update(
        self,
        parameter: FloatArray,
        gradient: FloatArray,
        spare: FloatArray,
        state: Slots,
    ) -> None:
        """Update one block of a parameter and of its state; `spare` is scratch."""

    def state(self) -> dict[str, NDArray[Any]]:
        """The state tensors, as live flat views by `<slot>.<parameter>`."""
        return {
            f"{slot}.{name}": array
            for name, arrays in self._state.items()
            for slot, array in zip(self.slots, arrays, strict=True)
        }

    def load(self, state: Mapping[str, NDArray[Any]], *, steps: int) -> None:
        """Copy the tensors of `state`, and set the number of steps that led to them.

        Raises:
            ValueError: Names, sizes or types are not those of this optimizer.
        """
        mine = self.state()
        if mine.keys() != state.keys():
            raise ValueError("the optimizer state has other names than this optimizer's")
        for name, array in mine.items():
            if (array.size, array.dtype) != (state[name].size, state[name].dtype):
                raise ValueError(f"the optimizer state {name} has another size or type")
            np.copyto(array, state[name].reshape(-1))
        self.steps = steps


class SGD(Optimizer):
    """Stochastic gradient descent, with or without momentum.

    `buffer = momentum * buffer + gradient`, `parameter -= lr * buffer`. With a momentum of 0
    there is no buffer.
    """

    def __init__(
        self,
        parameters: Mapping[str, FloatArray],
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        self.momentum = momentum
        self.slots = ("momentum_buffer",) if momentum else ()
        super().__init__(parameters, weight_decay=weight_decay, rates=rates)

    def _update(
        self,
        parameter: FloatArray,
        gradient: FloatArray,
        spare: FloatArray,
        state: Slots,
    ) -> None:
        for buffer in state:
            buffer *= np.float32(self.momentum)
            buffer += gradient
            gradient = buffer
        parameter -= np.multiply(gradient, self._lr, out=spare)


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015), with weight decay added to the gradient.

    The state holds decayed *sums* of gradients and of their squares, not averages. The factors
    `1 - beta` and both bias corrections then apply once per step instead of once per element,
    which saves four of fourteen passes over the memory.
    """

    slots: tuple[str, ...] = ("gradient_sum", "square_sum")
    betas = (0.9, 0.999)
    eps = 1e-8

    def _begin(self, lr: float) -> None:
        # mean_hat = mean_factor * gradient_sum and square_hat = square_factor * square_sum;
        # lr * mean_hat / (sqrt(square_hat) + eps) is divided by sqrt(square_factor) throughout.
        mean_factor, square_factor = (
            (1.0 - beta) / (1.0 - beta**self.steps) for beta in self.betas
        )
        self._rate = np.float32(lr * mean_factor / math.sqrt(square_factor))
        self._eps = np.float32(self.eps / math.sqrt(square_factor))

    def _update(
        self,
        parameter: FloatArray,
        gradient: FloatArray,
        spare: FloatArray,
        state: Slots,
    ) -> None:
        gradient_sum, square_sum = state
        gradient_sum *= np.float32(self.betas[0])
        gradient_sum += gradient
        square_sum *= np.float32(self.betas[1])
        square_sum += np.multiply(gradient, gradient, out=spare)
        np.sqrt(square_sum, out=spare)
        spare += self._eps
        np.divide(gradient_sum, spare, out=spare)
        spare *= self._rate
        parameter -= spare


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    decoupled = True


class Adam8(Adam):
    """Adam that keeps both sums in 8 bits; see `pocketune.device.train.moments`."""

    slots = ("gradient_code", "gradient_scale", "square_code", "square_scale")

    def __init__(
        self,
        parameters: Mapping[str, FloatArray],
        *,
        weight_decay: float = 0.0,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(parameters, weight_decay=weight_decay, rates=rates)
        self._decoded = tuple(_aligned_zeros(BLOCK) for _ in range(3))
        self._thresholds = moments.thresholds(BLOCK)

    def _zeros(self, size: int) -> Slots:
        groups = moments.groups(size)
        scales = [np.zeros(groups, np.float32) for _ in range(2)]
        kinds = (np.int8, np.uint8)
        codes = [np.zeros(groups * moments.SHARED, kind) for kind in kinds]
        return codes[0], scales[0], codes[1], scales[1]

    def _part(self, name: str, part: slice) -> Slots:
        scales = slice(part.start // moments.SHARED, moments.groups(part.stop))
        codes = slice(part.start, scales.stop * moments.SHARED)
        parts = (codes, scales, codes, scales)
        return tuple(slot[of] for slot, of in zip(self._state[name], parts, strict=True))

    def _update(
        self,
        parameter: FloatArray,
        gradient: FloatArray,
        spare: FloatArray,
        state: Slots,
    ) -> None:
        sum_code, sum_scale, square_code, square_scale = state
        # The last group of a parameter may be larger than what is left of it.
        sums, squares, roots = (block[: sum_code.size] for block in self._decoded)
        moments.read_sums(sum_code, sum_scale, sums, roots)
        moments.read_squares(square_code, square_scale, squares)
        values = sums[: parameter.size], squares[: parameter.size]
        super()._update(parameter, gradient, spare, values)
        first = self.steps % moments.SHIFTS
        threshold = self._thresholds[first : first + sums.size]
        moments.write_sums(sums, sum_code, sum_scale, threshold, roots)
        moments.write_squares(squares, square_code, square_scale, threshold)


def create_optimizer(
    name: str,
    parameters: Mapping[str, FloatArray],
    *,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    rates: Mapping[str, float] | None = None,
) -> Optimizer:
    """Create an optimizer by name; `momentum` applies to SGD only.

    Raises:
        PocketuneError: There is no optimizer of this name.
    """
    if name == "sgd":
        return SGD(parameters, momentum=momentum, weight_decay=weight_decay, rates=rates)
    if name == "adam":
        return Adam(parameters, weight_decay=weight_decay, rates=rates)
    if name == "adamw":
        return AdamW(parameters, weight_decay=weight_decay, rates=rates)
    if name == "adam8":
        return Adam8(parameters, weight_decay=weight_decay, rates=rates)
    raise PocketuneError(f"unknown optimizer {name!r}: choose one of {', '.join(OPTIMIZERS)}")


def state_slots(name: str, momentum: float) -> float:
    """Size of the state relative to the parameters: 0 to 2."""
    coded = 2 * (1 / 4 + 1 / moments.SHARED)
    return {"sgd": 1.0 if momentum else 0.0, "adam": 2.0, "adamw": 2.0, "adam8": coded}[name]


def gradient_norm(gradients: Mapping[str, FloatArray]) -> float:
    """L2 norm of all gradients together; not finite if any of them is not."""
    total = 0.0
    for gradient in gradients.values():
        flat = gradient.reshape(-1)
        for start in range(0, flat.size, _DOT):
            # Short enough that BLAS stays on this thread; its own threads would compete with the
            # engine's.
            block = flat[start : start + _DOT]
            total += float(np.dot(block, block))
    return math.sqrt(total)


def clip_scale(norm: float, clip: float | None) -> float:
    """Factor that reduces the norm of gradients to `clip`; 1 if their `norm` is below it."""
    return 1.0 if clip is None else min(1.0, clip / (norm + 1e-6))


def _aligned_zeros(size: int) -> FloatArray:
    """Zeros that start on a cache line; others, as numpy's, take twice as many vector loads."""
    raw = np.zeros(size * 4 + _CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % _CACHE_LINE
    return raw[start : start + size * 4].view(np.float32)
