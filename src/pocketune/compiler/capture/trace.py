"""Capture a training step, forward and backward, as one graph of ATen operators.

What is traced is an explicit function - forward, loss, `torch.autograd.grad` - so that whatever a
layer's backward does is in the graph. `torch.export` and AOTAutograd differentiate the forward pass
themselves and silently drop the backward of a custom `autograd.Function`.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.func import functional_call

from pocketune.compiler.capture.operators import PlainOperators, decompositions
from pocketune.compiler.capture.tracer import DataDependentError, trace
from pocketune.compiler.settings import CompileSettings
from pocketune.errors import PocketuneError, first_line
from pocketune.layers import FrozenBatchNorm2d
from pocketune.networks import normalize
from pocketune.networks.anatomy.modules import BatchNorm, explain_cumulative_average
from pocketune.networks.anatomy.output import embeddings, inputs_of
from pocketune.networks.probe import running_modules
from pocketune.objectives import objective_of
from pocketune.torch_private import uncheckpointed


@dataclass(frozen=True)
class Traced:
    """A graph of ATen operators whose placeholders and outputs have names.

    Every tensor of the network is a placeholder with its name in the state dict. `constants` holds
    the values of those that a step does not change. `outputs` are (name, node) in the kit's order.
    """

    graph: fx.Graph
    placeholders: dict[str, fx.Node]
    outputs: list[tuple[str, fx.Node]]
    constants: dict[str, Tensor]


def trained_parameters(network: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters that a training step returns gradients for, by name."""
    return {name: p for name, p in network.named_parameters() if p.requires_grad}


def running_statistics(network: nn.Module) -> dict[str, Tensor]:
    """Running means and variances that a training step updates, by name."""
    return {
        f"{module_name}.{statistic}": getattr(module, statistic)
        for module_name, module in network.named_modules()
        if isinstance(module, BatchNorm)
        for statistic in ("running_mean", "running_var")
    }


def check_norms(network: nn.Module) -> None:
    """Check that exactly the batch norms have running statistics.

    Raises:
        PocketuneError: Another norm has some, or a batch norm has none.
    """
    for name, module in network.named_modules():
        if isinstance(module, BatchNorm) and module.running_mean is None:
            raise PocketuneError(
                f"the batch norm {name} has no running statistics, so the prediction for an "
                "image depends on the other images of its batch; build it with "
                "track_running_stats=True"
            )
        known = isinstance(module, (BatchNorm, FrozenBatchNorm2d))
        if getattr(module, "running_mean", None) is not None and not known:
            raise PocketuneError(
                f"{name} is a {type(module).__name__} with running statistics, which a compiled "
                "step does not update; build the network with batch norms, or with norms without "
                "running statistics"
            )


def trace_step(network: nn.Module, settings: CompileSettings, masks: Iterable[str] = ()) -> Traced:
    """Trace loss, step metrics, gradients and new statistics of one training step.

    `network` is an adapted network; `masks` names the buffers that the device draws for every
    step, the dropout masks.
    """
    trained = trained_parameters(network)
    statistics = running_statistics(network)
    task, objective = settings.task, objective_of(settings.task)

    def step(
        tensors: dict[str, Tensor], images: Tensor, labels: Tensor, *constant: Tensor
    ) -> list[Tensor]:
        logits = functional_call(network, tensors, (normalize(network, images),))
        _check_outputs(logits, settings)
        objective.inputs = dict(zip(objective.inputs, constant, strict=True))
        *scalars, gradient = objective.step(logits.detach(), labels)
        parameters = [tensors[name] for name in trained]
        gradients = torch.autograd.grad(logits, parameters, gradient, allow_unused=True)
        _check_used(dict(zip(trained, gradients, strict=True)))
        return [*scalars, *gradients]

    names = ["loss", *task.step_metrics, *(f"grad.{name}" for name in trained)]
    images = torch.zeros(settings.batch, settings.size, settings.size, 3, dtype=torch.uint8)
    inputs = {
        "images": images,
        "labels": objective.empty_labels(settings.batch, settings.size),
        **objective.inputs,
    }
    dynamic = {*trained, *statistics, *masks}
    return _trace(network, step, inputs, names, dynamic, training=True)


def _check_outputs(outputs: object, settings: CompileSettings) -> None:
    """Check that the network's outputs have the shape that its task needs."""
    wanted = (settings.batch, *settings.task.output_shape(settings.size))
    if not isinstance(outputs, Tensor):
        raise PocketuneError(
            f"the network returns a {type(outputs).__name__}, where {settings.task.name} needs one "
            f"tensor of the shape {wanted}; wrap it in a module that returns that"
        )
    if tuple(outputs.shape) != wanted:
        raise PocketuneError(
            f"the network computes {tuple(outputs.shape)} for {settings.batch} images of "
            f"{settings.size} px, where {settings.task.name} needs {wanted}"
        )


def _check_used(gradients: Mapping[str, Tensor | None]) -> None:
    """Check that the outputs depend on every trained parameter."""
    unused = [name for name, gradient in gradients.items() if gradient is None]
    if len(unused) == 1:
        raise PocketuneError(
            f"{unused[0]} is trained, but the outputs do not depend on it; freeze it with "
            f"network.get_parameter({unused[0]!r}).requires_grad_(False)"
        )
    if unused:
        raise PocketuneError(
            f"{len(unused)} parameters are trained, but the outputs do not depend on them; freeze "
            f"them: for name in {unused}: network.get_parameter(name).requires_grad_(False)"
        )


def trace_predict(network: nn.Module, *, batch: int, size: int, layer: str | None = None) -> Traced:
    """Trace the logits of a batch; norms use their running statistics.

    With the path of the output layer, its input is an output too, the embeddings, if that layer
    reads one vector for each image.
    """
    dynamic = {*trained_parameters(network), *running_statistics(network)}
    names = ["logits"]

    def predict(tensors: dict[str, Tensor], images: Tensor) -> list[Tensor]:
        with inputs_of(network, layer) as inputs:
            logits = functional_call(network, tensors, (normalize(network, images),))
        found = embeddings(inputs)
        names[1:] = [] if found is None else ["embeddings"]
        return [logits] if found is None else [logits, found]

    images = torch.zeros(batch, size, size, 3, dtype=torch.uint8)
    return _trace(network, predict, {"images": images}, names, dynamic, training=False)


def _trace(
    network: nn.Module,
    function: Callable[..., list[Tensor]],
    inputs: dict[str, Tensor],
    output_names: list[str],
    dynamic: set[str],
    *,
    training: bool,
) -> Traced:
    tensors = _network_tensors(network)
    with (
        running_modules(network) as running,
        PlainOperators(),
        uncheckpointed(),
        _training_mode(network, training),
        _explained(network, inputs["images"], running),
    ):
        arguments = tensors, *inputs.values()
        graph = trace(function, *arguments, decompositions=decompositions(), running=running)
    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    placeholders = dict(zip([*tensors, *inputs], nodes, strict=True))
    (returned,) = next(node for node in reversed(graph.nodes) if node.op == "output").args
    outputs = list(zip(output_names, returned, strict=True))
    constants = {name: t.detach() for name, t in tensors.items() if name not in dynamic}
    return Traced(graph, placeholders, outputs, constants)


@contextmanager
def _explained(network: nn.Module, images: Tensor, running: list[str]) -> Iterator[None]:
    """Say what of a network cannot be traced, in one sentence."""
    name, drawn = type(network).__name__, _drawn()
    try:
        yield
    except DataDependentError as error:
        raise PocketuneError(
            f"{name} cannot be compiled: "
            + (
                explain_cumulative_average(network)
                or f"its forward pass decides by the values of a tensor{_place(running)}, "
                "which a graph of fixed operators cannot"
            )
        ) from error
    except PocketuneError:
        raise
    except Exception as error:  # a forward pass may raise anything
        if not running and (path := _recurrent(network)):  # in the backward pass
            raise PocketuneError(
                f"module {path!r}: a recurrent layer cannot be trained in a kit"
            ) from error
        reason = first_line(error)
        single = reason.startswith("Expected more than 1 value per channel")
        raise PocketuneError(
            f"{name} cannot be traced with normalized images of shape "
            f"{_normalized(images)}{_place(running)}: {reason}"
            + ("; give a batch of 2 or more" if single else "")
        ) from error
    if _drawn() != drawn:
        raise PocketuneError(
            f"{name} draws random numbers from Python or numpy in its forward pass, which would be "
            "the same in every step; use nn.Dropout, or DropPath for whole blocks"
        )


def _drawn() -> tuple[object, ...]:
    """The states of the random generators of Python and numpy."""
    state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - what a network may use
    return random.getstate(), state["key"].tobytes(), state["pos"]


def _recurrent(network: nn.Module) -> str | None:
    """The path of the first recurrent layer, whose gradient PyTorch cannot trace."""
    layers = (path for path, module in network.named_modules() if isinstance(module, nn.RNNBase))
    return next(layers, None)


def _place(running: list[str]) -> str:
    return f" in its module {running[-1]!r}" if any(running[-1:]) else ""


def _normalized(images: Tensor) -> tuple[int, ...]:
    """The shape that a network takes, of uint8 images (N, H, W, 3)."""
    return tuple(images.permute(0, 3, 1, 2).shape)


def _network_tensors(network: nn.Module) -> dict[str, Tensor]:
    parameters = {
        name: p.detach().requires_grad_(p.requires_grad) for name, p in network.named_parameters()
    }
    return {**parameters, **dict(network.named_buffers())}


@contextmanager
def _training_mode(network: nn.Module, training: bool) -> Iterator[None]:
    """Set training or evaluation mode, and restore every module's attributes afterwards.

    A forward pass may store tensors as attributes of modules, or in dictionaries and lists there;
    here these are fake tensors.
    """
    before = [vars(module) for module in network.modules()]
    inside = [v for attributes in before for v in attributes.values() if type(v) in (dict, list)]
    held = [(container, copy(container)) for container in (*before, *inside)]
    network.train(training)
    try:
        yield
    finally:
        for container, content in held:
            container.clear()
            (container.update if isinstance(container, dict) else container.extend)(content)
