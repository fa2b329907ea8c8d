"""What a training step of a PyTorch module really costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torch import Tensor, nn

from pocketune.accounting.costs import Account
from pocketune.accounting.layers import block_costs, layer_costs
from pocketune.accounting.step import record_step
from pocketune.accounting.timeline import Memory, Moment, timeline
from pocketune.errors import PocketuneError, check_positive
from pocketune.networks import about

OPTIMIZERS = {"adam": (2, 10), "adamw": (2, 11), "sgd": (1, 4)}
"""Tensors that an optimizer keeps for each parameter, and its FLOPs for each element: those of
Kingma and Ba's algorithm 1 with the bias corrections drawn together; `sgd` has momentum."""

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def account(
    network: nn.Module,
    *,
    batch: int = 8,
    size: int = 224,
    optimizer: str = "adam",
    channels: int = 3,
) -> Account:
    """Predict every byte and FLOP of a training step: forward, loss, backward, optimizer.

    The step is run on tensors that have shapes and no values, so that it takes neither memory nor
    arithmetic, whatever the network and the resolution. What is predicted is PyTorch's own step
    in training mode on a processor: allocations are those that PyTorch makes, freed when PyTorch
    frees them, with the workspace of convolutions modeled (`accounting.workspace`). The
    optimizer works in place, without temporaries. The process's own memory (Python, PyTorch) is
    not in it; for a kit's whole process see `pocketune kit show`.

    Args:
        network: any module from (N, `channels`, `size`, `size`) to class scores (N, classes), as
            `pocketune.adapt` returns it or otherwise; it is left as it is. The loss is the
            cross-entropy, or the mean where the output is of another shape.
        batch: images of a step.
        size: side of the images in pixels.
        optimizer: one of `OPTIMIZERS`.
        channels: of the images.

    Raises:
        PocketuneError: an argument is out of range; nothing is trained; the network cannot take
            such images, is lazy, decides by the values of a tensor, or has an operator without
            rules, which is named with its layer.

    Example:
        >>> import pocketune
        >>> network = pocketune.create_network("mobilenet_v2", classes=10)
        >>> adapted = pocketune.adapt(network, pocketune.LastLayer())
        >>> result = pocketune.account(adapted, batch=8, size=224)
        >>> result.worst_block.name, result.kept_bytes
        ('features.2', 41348)
    """
    _check(network, batch, size, channels, optimizer)
    slots, flops_an_element = OPTIMIZERS[optimizer]
    step = record_step(network, batch=batch, size=size, channels=channels)
    moments = timeline(step.events, step.roles, _resident(network, slots), step.given)
    moments.append(_optimizer_moment(moments[-1]))
    layers = layer_costs(step, moments, network, flops_an_element)
    return Account(
        network=_name(network),
        batch=batch,
        size=size,
        optimizer=optimizer,
        timeline=tuple(moments),
        layers=layers,
        blocks=block_costs(layers, network),
    )


def _name(network: nn.Module) -> str:
    config = about(network).config
    return type(network).__name__ if config is None else config.name


def _check(network: nn.Module, batch: int, size: int, channels: int, optimizer: str) -> None:
    check_positive(batch=batch, size=size, channels=channels)
    if optimizer not in OPTIMIZERS:
        raise PocketuneError(
            f"unknown optimizer {optimizer!r}: choose one of {', '.join(OPTIMIZERS)}"
        )
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise PocketuneError("nothing in this network is trained; adapt it with a method first")


def _resident(network: nn.Module, slots: int) -> Memory:
    """What is there before and after a step; tensors that share a storage count once."""
    trained: dict[object, Tensor] = {}
    frozen: dict[object, Tensor] = {}
    statistics: dict[object, Tensor] = {}
    for parameter in network.parameters():
        (trained if parameter.requires_grad else frozen)[_storage(parameter)] = parameter
    for name, buffer in network.named_buffers():
        is_statistic = name.rpartition(".")[2] in _STATISTICS
        (statistics if is_statistic else frozen)[_storage(buffer)] = buffer
    return Memory(
        trained_parameters=_bytes(trained.values()),
        frozen_parameters=_bytes(frozen.values()),
        statistics=_bytes(statistics.values()),
        optimizer=slots * _bytes(trained.values()),
    )


def _storage(tensor: Tensor) -> object:
    """What tells storages apart; on the meta device all have the address 0."""
    return id(tensor) if tensor.is_meta else tensor.untyped_storage().data_ptr() or id(tensor)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _optimizer_moment(last: Moment) -> Moment:
    """Nothing is left of the step but the gradients, and the images."""
    memory = replace(last.memory, kept=0, residual=0, temporaries=0, workspace=0)
    return Moment("optimizer", "", "optimizer", memory)
