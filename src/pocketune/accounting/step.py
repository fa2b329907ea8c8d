"""Recording one training step of a network without values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from pocketune.accounting.record import LOSS, Event, Operation, Recorder
from pocketune.accounting.timeline import Role
from pocketune.errors import PocketuneError, first_line
from pocketune.networks.about import about
from pocketune.networks.anatomy.modules import explain_cumulative_average
from pocketune.networks.copies import kept_tensors
from pocketune.networks.probe import float_type
from pocketune.networks.registry import is_dense
from pocketune.objectives import objective_of
from pocketune.tasks import Task, default_task
from pocketune.torch_private import (
    FakeTensorMode,
    UnsupportedOperatorException,
    data_dependent_errors,
)

Loss = Callable[[Any], Tensor]
"""From what a network returns to a mean loss ()."""


@dataclass(frozen=True)
class Step:
    """A recorded training step.

    Attributes:
        events: Operators and freed storages, in order.
        given: Bytes of the storages of images and labels.
        roles: What each storage is for, unless it is a temporary.
        kept: Bytes that each layer keeps for the backward pass, by its path. A storage that two
            layers keep counts for the first of them.
    """

    events: list[Event]
    given: dict[int, int]
    roles: dict[int, Role]
    kept: dict[str, int]


def record_step(
    network: nn.Module,
    *,
    batch: int,
    size: int,
    channels: int,
    task: Task | None = None,
    loss: Loss | None = None,
) -> Step:
    """Run forward, loss and backward on tensors without values; see `account`.

    Raises:
        PocketuneError: The network cannot take these images, is lazy, decides by the values of a
            tensor, or has an unknown operator; its loss is not known.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    copied = fake_copy(network, mode).train()
    with mode, _explained(network, (batch, channels, size, size)):
        images = torch.empty(batch, channels, size, size, dtype=float_type(copied))
        task = task or _task_of_pixels(network)
        objective = objective_of(task or default_task(1))
        return run_step(copied, images, objective.empty_labels(batch, size), task, loss)


def _task_of_pixels(network: nn.Module) -> Task | None:
    """Segmentation for those of our networks that classify pixels."""
    config = about(network).config
    if config is None or not is_dense(config.name):
        return None
    return default_task(config.classes, dense=True)


def fake_copy(network: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """`network` with fake CPU tensors of the same shape, strides, type and `requires_grad`.

    Shared tensors stay shared. The network itself stays unchanged, and may be on any device,
    `meta` included.

    Raises:
        PocketuneError: A module is lazy: its shapes are not known yet.
    """
    copies: dict[int, object] = {}  # the memo of `copy.deepcopy`
    with mode:
        for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
            if is_lazy(tensor):
                raise PocketuneError(
                    f"the parameter {name} is lazy and has no shape yet; run the network once on "
                    "a batch of images first"
                )
            copies[id(tensor)] = _fake(tensor)
        for tensor in kept_tensors(network):
            copies.setdefault(id(tensor), _fake(tensor))
        return copy.deepcopy(network, copies)


def _fake(tensor: Tensor) -> Tensor:
    empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


def run_step(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    task: Task | None = None,
    loss: Loss | None = None,
) -> Step:
    """Run and record one step of `network`, on fake tensors or real ones.

    The network keeps its gradients: pass a copy.
    """
    recorder = Recorder()
    parameters = [p for p in network.parameters() if p.requires_grad]
    resident = recorder.numbers([*network.parameters(), *network.buffers()])
    given = {recorder.number(t): t.untyped_storage().nbytes() for t in (images, labels)}
    keepers: dict[int, str] = {}

    def keep(tensor: Tensor) -> Tensor:
        keepers.setdefault(recorder.number(tensor), recorder.path)
        return tensor

    with recorder.watching(network), recorder:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            mean = _mean_loss(recorder, network, images, labels, task, loss)
        alive = recorder.live() - resident - set(given) - {recorder.number(mean)}
        kept = (alive | keepers.keys()) - resident
        recorder.phase = "backward"
        mean.backward()  # type: ignore[no-untyped-call]
    gradients = recorder.numbers(p.grad for p in parameters if p.grad is not None)
    roles = {
        **dict.fromkeys(given, Role.IMAGES),
        **dict.fromkeys(kept, Role.KEPT),
        **dict.fromkeys(gradients, Role.GRADIENT),
    }
    return Step(recorder.events, given, roles, _kept_bytes(recorder.events, given, kept, keepers))


def _mean_loss(
    recorder: Recorder,
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    task: Task | None,
    loss: Loss | None,
) -> Tensor:
    """The loss of a batch. Only this function refers to the output, so it is freed as usual."""
    output = network(images)
    with recorder.inside(LOSS):
        return (loss or _task_loss(network, output, labels, task))(output)


def _task_loss(network: nn.Module, output: Any, labels: Tensor, task: Task | None) -> Loss:
    """The loss of the task; without a task that of the default one, if the output fits."""
    shape = tuple(output.shape) if isinstance(output, Tensor) else f"a {type(output).__name__}"
    if task is None and isinstance(output, Tensor) and output.dim() == 2:
        task = default_task(output.shape[1])
    if task is None or not isinstance(output, Tensor):
        raise PocketuneError(
            f"{type(network).__name__} returns {shape}, not one tensor of class scores (N, "
            "classes), so its loss is not known; give its task, such as Segmentation(classes), or "
            "the loss as a function of its output"
        )
    objective = objective_of(task)
    return lambda scores: objective.loss(scores, labels)


def _kept_bytes(
    events: Sequence[Event], given: dict[int, int], kept: Set[int], keepers: dict[int, str]
) -> dict[str, int]:
    """Bytes by layer. Attributes of `ctx`, which autograd does not see, belong to their maker."""
    layers: dict[str, int] = {}
    for storage in given.keys() & kept:
        layers[keepers[storage]] = layers.get(keepers[storage], 0) + given[storage]
    for event in events:
        if isinstance(event, Operation):
            for storage in event.made.keys() & kept:
                layer = keepers.get(storage, event.module)
                layers[layer] = layers.get(layer, 0) + event.made[storage]
    return layers


@contextmanager
def _explained(network: nn.Module, shape: tuple[int, ...]) -> Iterator[None]:
    """Explain what is wrong with a network or its images, in one sentence."""
    name = type(network).__name__
    try:
        yield
    except data_dependent_errors() as error:
        raise PocketuneError(
            f"{name} cannot be accounted for: "
            + (
                explain_cumulative_average(network)
                or "its forward pass depends on the values of a tensor, so its memory depends on "
                "the images"
            )
        ) from error
    except UnsupportedOperatorException as error:
        raise PocketuneError(
            f"{name} cannot be accounted for: the operator {error.func} has no rule for its "
            "output's shape (torch.library.register_fake gives it one)"
        ) from error
    except PocketuneError:
        raise
    except Exception as error:  # a forward pass may raise anything
        raise PocketuneError(
            f"{name} cannot take images of shape {shape}: {first_line(error)}"
        ) from error
