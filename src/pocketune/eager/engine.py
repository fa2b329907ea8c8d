"""The training step in eager PyTorch."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pocketune.arrays import FloatArray, State
from pocketune.compiler.capture.dropout import refuse_random_numbers, supply_masks
from pocketune.compiler.capture.trace import running_statistics, trained_parameters
from pocketune.device.engine.base import Gradients, draw_masks, no_embeddings
from pocketune.errors import PocketuneError
from pocketune.kit.kit import check_state
from pocketune.networks import normalize
from pocketune.networks.anatomy.output import embeddings, inputs_of
from pocketune.networks.single_image import SingleImageNorms
from pocketune.objectives import objective_of
from pocketune.tasks import Labels, Task


class TorchEngine:
    """Gradients and predictions of an adapted network, by PyTorch on a CPU or a GPU.

    Implements `pocketune.device.engine.base.Engine`. The engine owns the network: it moves it to
    `device`, trains it in place and replaces its dropouts by ones whose masks it supplies.

    On the CPU, `parameters` and `statistics` share the network's memory. On other devices they are
    copies on the host: every call sends them before it computes and fetches the statistics after.

    Args:
        network: An adapted network; its parameters are float32.
        batch: Images of a training step.
        size: Height and width of the images, in pixels.
        task: What is learned.
        device: Where to compute, such as `"cuda"`.

    Raises:
        PocketuneError: PyTorch cannot use this device here, or the network draws random numbers
            that `supply_masks` cannot supply.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        batch: int,
        size: int,
        task: Task,
        device: str = "cpu",
    ) -> None:
        self._device = _open_device(device)
        self.runtime = f"torch {torch.__version__} on {self._device.type}"
        self._mirrored = self._device.type != "cpu"
        self._masks = supply_masks(network, batch, size)
        refuse_random_numbers(network, batch, size)
        self._network = network.to(self._device)
        self._images = (batch, size, size, 3)
        self._task, self._objective = task, objective_of(task)
        self._trained = trained_parameters(network)
        for parameter in self._trained.values():  # optimizers treat them as flat arrays
            parameter.data = parameter.data.contiguous()
        self._statistics = running_statistics(network)
        self.parameters = {name: _host(p) for name, p in self._trained.items()}
        self.statistics = {name: _host(s) for name, s in self._statistics.items()}
        self.inputs = task.step_inputs(task.count(self.parameters))
        self._objective.inputs = {name: torch.from_numpy(v) for name, v in self.inputs.items()}

    def gradients(
        self, images: NDArray[np.uint8], labels: Labels, rng: np.random.Generator
    ) -> Gradients:
        """Loss and gradients of a batch (batch, size, size, 3); see `Engine.gradients`.

        Raises:
            ValueError: The images do not have the shape that the engine was made for.
        """
        if images.shape != self._images:
            raise ValueError(f"images have shape {images.shape}, not {self._images}")
        self._send()
        for name, mask in draw_masks(self._masks, rng).items():
            self._network.get_buffer(name).copy_(torch.from_numpy(mask))
        self._network.train()
        logits = self._logits(images)
        target = torch.from_numpy(labels).to(self._device)
        loss = self._objective.loss(logits, target)
        gradients = torch.autograd.grad(loss, list(self._trained.values()))
        self._fetch_statistics()
        found = (value.item() for value in self._objective.metrics(logits, target))
        return Gradients(
            loss=loss.item(),
            metrics=dict(zip(self._task.step_metrics, found, strict=True)),
            values=dict(zip(self._trained, map(_host, gradients), strict=True)),
        )

    @torch.no_grad()
    def predict(self, images: NDArray[np.uint8]) -> FloatArray:
        """Outputs (N, ...) for pixels (N, S, S, 3), computed a training batch at a time."""
        return self._evaluate(self._logits, images)

    @torch.no_grad()
    def embed(self, images: NDArray[np.uint8]) -> FloatArray:
        """Inputs (N, D) of the output layer for pixels (N, S, S, 3); see `Engine.embed`."""
        return self._evaluate(self._embeddings, images)

    def _evaluate(
        self, compute: Callable[[NDArray[np.uint8]], Tensor], images: NDArray[np.uint8]
    ) -> FloatArray:
        self._send()
        self._network.eval()
        batch = self._images[0]
        starts = range(0, max(len(images), 1), batch)
        return _host(torch.cat([compute(images[i : i + batch]) for i in starts]))

    def _embeddings(self, images: NDArray[np.uint8]) -> Tensor:
        with inputs_of(self._network, self._task.output_layer) as inputs:
            self._logits(images)
        found = embeddings(inputs)
        if found is None:
            raise no_embeddings()
        return found

    def release(self) -> None:
        """Do nothing: there are no graphs."""

    def state(self) -> State:
        """Copies of all parameters and statistics."""
        return {name: array.copy() for name, array in self._arrays().items()}

    def load(self, state: Mapping[str, FloatArray]) -> None:
        """Write all parameters and statistics, in place.

        Raises:
            KitError: A tensor is missing or of another shape; then nothing is written.
        """
        arrays = self._arrays()
        shapes = {name: array.shape for name, array in arrays.items()}
        check_state(state, shapes, "the saved state")
        for name, array in arrays.items():
            np.copyto(array, state[name])

    def _arrays(self) -> State:
        return {**self.parameters, **self.statistics}

    def _logits(self, images: NDArray[np.uint8]) -> Tensor:
        pixels = normalize(self._network, torch.from_numpy(images).to(self._device))
        with SingleImageNorms() if len(images) == 1 else nullcontext():
            logits: Tensor = self._network(pixels)
        return logits

    @torch.no_grad()
    def _send(self) -> None:
        if self._mirrored:
            arrays = self._arrays()
            for name, tensor in {**self._trained, **self._statistics}.items():
                tensor.copy_(torch.from_numpy(arrays[name]))

    def _fetch_statistics(self) -> None:
        if self._mirrored:
            for name, tensor in self._statistics.items():
                np.copyto(self.statistics[name], _host(tensor))


def _open_device(device: str) -> torch.device:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise PocketuneError(
            f"PyTorch cannot compute on device {device!r} here; use 'cpu'"
        ) from error
    return torch.device(device)


def _host(tensor: Tensor) -> FloatArray:
    """C-contiguous array of a tensor; on the CPU it shares the tensor's memory if possible."""
    array: FloatArray = tensor.detach().cpu().contiguous().numpy()
    return array
