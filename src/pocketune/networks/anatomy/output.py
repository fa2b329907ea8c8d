"""The layer that computes a network's class scores, found by a forward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from pocketune.errors import PocketuneError
from pocketune.networks.anatomy.anatomy import anatomy
from pocketune.networks.anatomy.modules import has_own_forward, weighs
from pocketune.networks.anatomy.trunk import reached_first
from pocketune.networks.copies import copy_shapes, gradients_on
from pocketune.networks.image_sizes import image_sizes
from pocketune.networks.probe import probing, trial_images
from pocketune.networks.shapes import RememberedShapes, tensors


def classifier_layers(network: nn.Module) -> tuple[str, ...]:
    """Paths of the layers of the classifier; the last one gives the class scores.

    They are those of `anatomy`, or only the output layer if `anatomy` does not know the blocks.

    Raises:
        PocketuneError: Neither the blocks nor a single output layer are found.
    """
    try:
        return anatomy(network).classifier
    except PocketuneError:
        return (output_layer(network),)


def output_layer(network: nn.Module, size: int | None = None) -> str:
    """Path of the linear layer or convolution that computes the class scores.

    The network runs once on the meta device, and its output is followed back to the layer. If it
    cannot run there, the layer is the last one that `anatomy` finds.

    Args:
        network: Not changed.
        size: Side of its images in pixels; None tries usual ones.

    Raises:
        PocketuneError: There is no such layer, or more than one.
    """
    return only_layer(network, find_output(network, size))


class Output(NamedTuple):
    """A network's output.

    Attributes:
        layers: Paths of the last layers with weights before it, in order.
        shape: Of the output for one image; empty if the network returns something else than one
            tensor, or cannot run on the meta device.
        squashed: `softmax` or `sigmoid` if the output comes out of one, as probabilities; else
            empty.
    """

    layers: tuple[str, ...]
    shape: tuple[int, ...]
    squashed: str = ""


def find_output(network: nn.Module, size: int | None = None) -> Output:
    """The layers that compute a network's output together, and the shape of the output.

    Args:
        network: Not changed.
        size: Side of its images in pixels; None tries usual ones.

    Raises:
        PocketuneError: No layer is found, because the network cannot run.
    """
    found = _run(network, image_sizes(network) if size is None else (size,))
    return found or Output((_registered_last(network),), ())


def only_layer(network: nn.Module, output: Output) -> str:
    """The path of the one layer that computes an output.

    Raises:
        PocketuneError: There is no such layer, or more than one.
    """
    layers = output.layers
    if len(layers) > 1 and not output.shape:
        raise PocketuneError(
            f"{type(network).__name__} returns more than the class scores; wrap it in a module "
            "that returns these alone"
        )
    if len(layers) != 1:
        made = f"by {' and '.join(layers)} together" if layers else "by no linear layer"
        raise PocketuneError(
            f"the class scores of {type(network).__name__} are computed {made}; let one linear "
            "layer compute them"
        )
    return layers[0]


def _registered_last(network: nn.Module) -> str:
    try:
        return anatomy(network).classifier[-1]
    except PocketuneError as error:
        raise PocketuneError(
            f"the output layer of {type(network).__name__} cannot be found: {error}"
        ) from error


@gradients_on()
def _run(network: nn.Module, sizes: tuple[int, ...]) -> Output | None:
    """What a run on the meta device shows; None if there is none."""
    if any(is_lazy(tensor) for tensor in (*network.parameters(), *network.buffers())):
        return None
    copied = copy_shapes(network)
    names = [name for name, module in copied.named_modules() if weighs(module)]
    made: dict[Any, str] = {}

    def note(path: str, _: nn.Module, outputs: list[Tensor]) -> None:
        made.update({tensor.grad_fn: path for tensor in outputs if tensor.grad_fn is not None})

    with probing(copied, paths=names, leave=note, gradients=True), RememberedShapes():
        for output in _outputs(copied, sizes):
            reached = reached_first(tensors(output), made)
            layers = tuple(name for name in names if name in reached)
            if not isinstance(output, Tensor):
                return Output(layers, ())
            last = type(output.grad_fn).__name__.lower().partition("backward")[0]
            squashed = last if last in ("softmax", "sigmoid") else ""
            return Output(layers, tuple(output.shape[1:]), squashed)
    return None


def _outputs(network: nn.Module, sizes: tuple[int, ...]) -> Iterator[Any]:
    """The network's outputs for images of the sizes that it accepts."""
    # frozen layers may stop gradients
    frozen = not any(parameter.requires_grad for parameter in network.parameters())
    for images in trial_images(network, sizes, requires_grad=frozen):
        try:
            yield network(images)
        except Exception:  # the network's own code may raise anything
            continue


@contextmanager
def inputs_of(network: nn.Module, layer: str | None) -> Iterator[list[Tensor]]:
    """Collect what a layer reads while the network runs; nothing without a layer's path.

    Nothing, too, if the layer has a forward pass of its own.
    """
    found: list[Tensor] = []
    module = None if layer is None else network.get_submodule(layer)
    if module is None or has_own_forward(module):
        yield found
        return

    def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found.append(next(iter((*args, *kwargs.values()))))

    hook = module.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield found
    finally:
        hook.remove()


def embeddings(inputs: list[Tensor]) -> Tensor | None:
    """The one input (N, D) of the output layer; None if it ran twice or reads something else."""
    return inputs[0] if len(inputs) == 1 and inputs[0].dim() == 2 else None
