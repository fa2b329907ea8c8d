"""A network as the calls that one forward pass makes to its modules.

The network itself runs on one sample on the meta device, which computes shapes and no values. The
trace therefore includes everything that a method has replaced or added.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call

from pocketune.errors import PocketuneError, first_line
from pocketune.filtering import PooledActivation
from pocketune.layers.quantized import count_int8_weights
from pocketune.networks import Anatomy, about
from pocketune.networks.anatomy.anatomy import known_anatomy
from pocketune.networks.anatomy.modules import is_within
from pocketune.networks.architectures.parts import SqueezeExcite
from pocketune.networks.checks import require_shapes
from pocketune.networks.probe import probing
from pocketune.networks.shapes import RememberedShapes

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ModuleCall:
    """One call of one module, for one sample (shapes have a leading 1).

    A module that runs twice has two calls. The modules of a side branch are called inside their
    block, after the block's own modules.

    Attributes:
        path: Name of the module, as in `network.named_modules()`.
        module: The module itself.
        kind: The class whose rules apply: its own class, except `SqueezeExcite` for the
            squeeze-excite module of a block, `nn.Identity` for an empty `nn.Sequential`, and the
            class of the activation inside a `PooledActivation`.
        inputs: Shapes of its input tensors.
        outputs: Shapes of its output tensors.
        block: Path of the block in which it runs, the block itself included; None outside.
        shortcut: Shape of the block's input if the block adds it unchanged to its output; the
            input is held in memory until then.
        in_branch: Whether it is the side branch of a block, or inside one.
        trained: Names of the module's own parameters that are trained.
        gradient_in: Whether an input needs a gradient, so that the module must compute one.
        gradient_out: Whether an output needs a gradient.
        is_leaf: Whether it called no other module.
    """

    path: str
    module: nn.Module
    kind: type[nn.Module]
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    block: str | None
    shortcut: Shape | None
    in_branch: bool
    trained: frozenset[str]
    gradient_in: bool
    gradient_out: bool
    is_leaf: bool

    @property
    def input(self) -> Shape:
        """Shape of the first input."""
        return self.inputs[0]

    @property
    def output(self) -> Shape:
        """Shape of the first output."""
        return self.outputs[0]

    @property
    def weight_trained(self) -> bool:
        """Whether the weight of a convolution or linear layer, or a norm's scale, is trained."""
        return "weight" in self.trained

    @property
    def bias_trained(self) -> bool:
        """Whether the bias of a convolution or linear layer, or a norm's shift, is trained."""
        return "bias" in self.trained


@dataclass(frozen=True)
class ModuleTrace:
    """One forward pass of one sample.

    Attributes:
        network: The network that ran.
        calls: In the order in which they end; a module comes after those it calls.
        anatomy: Stem, blocks, feature fusion and classifier; None if the structure is unknown.
    """

    network: nn.Module
    calls: tuple[ModuleCall, ...]
    anatomy: Anatomy | None

    @property
    def classifier(self) -> tuple[str, ...]:
        """Paths of the classifier's layers; without an anatomy, the last linear layer."""
        if self.anatomy is not None:
            return self.anatomy.classifier
        linear = [call.path for call in self.calls if isinstance(call.module, nn.Linear)]
        return tuple(linear[-1:])

    def count_parameters(self, *, trained: bool) -> int:
        """Number of parameters that are trained or frozen, weights in 8 bits included."""
        count = sum(p.numel() for p in self.network.parameters() if p.requires_grad is trained)
        return count if trained else count + count_int8_weights(self.network)


def trace_modules(
    network: nn.Module, shape: tuple[int, ...] = (3, 224, 224), *, input_gradient: bool = False
) -> ModuleTrace:
    """Run `network` on one sample of the meta device; it stays unchanged.

    Args:
        network: Adapted, or any other module with one input tensor. Parameters with
            `requires_grad` are trained.
        shape: Of the sample, without the batch.
        input_gradient: Whether the sample needs a gradient, like the input of a block.

    Raises:
        PocketuneError: If the network has lazy modules, if it cannot take such a sample, or if
            it decides by the values of a tensor.
    """
    require_shapes(network)
    parts = known_anatomy(network)
    branches = tuple(p for p, m in network.named_modules() if about(m).is_side_branch)
    recorder = _Recorder(parts, branches)
    with (
        probing(network, enter=recorder.enter, leave=recorder.leave, gradients=True),
        torch.device("meta"),
        RememberedShapes(),
    ):
        try:
            sample = torch.empty(1, *shape, requires_grad=input_gradient)
            functional_call(network, _on_meta(network), (sample,))
        except PocketuneError:
            raise
        except Exception as error:  # a forward pass may raise anything
            raise PocketuneError(
                f"{type(network).__name__} cannot be traced with a sample of shape {shape}: "
                f"{first_line(error)}"
            ) from error
    return ModuleTrace(network, tuple(recorder.calls), parts)


@dataclass
class _Frame:
    """A module that has been called and has not returned."""

    path: str
    inputs: list[Tensor]
    gradient_in: bool  # read before an activation in place can change it
    calls: int = 0


@dataclass
class _Recorder:
    """Keeps a stack of running modules, and the calls that have ended."""

    anatomy: Anatomy | None
    branches: tuple[str, ...]
    calls: list[ModuleCall] = field(default_factory=list)
    stack: list[_Frame] = field(default_factory=list)

    def enter(self, path: str, _: nn.Module, inputs: list[Tensor]) -> None:
        """Note a module that begins to run."""
        if self.stack:
            self.stack[-1].calls += 1
        self.stack.append(_Frame(path, inputs, any(t.requires_grad for t in inputs)))

    def leave(self, _: str, module: nn.Module, outputs: list[Tensor]) -> None:
        """Keep the call of a module that has returned."""
        block, shortcut = self._block()
        frame = self.stack.pop()
        self.calls.append(
            ModuleCall(
                path=frame.path,
                module=module,
                kind=self._kind(frame.path, module),
                inputs=tuple(tuple(t.shape) for t in frame.inputs),
                outputs=tuple(tuple(t.shape) for t in outputs),
                block=block,
                shortcut=shortcut,
                in_branch=any(is_within(frame.path, b) for b in self.branches),
                trained=frozenset(
                    name for name, p in module.named_parameters(recurse=False) if p.requires_grad
                ),
                gradient_in=frame.gradient_in,
                gradient_out=any(t.requires_grad for t in outputs),
                is_leaf=frame.calls == 0,
            )
        )

    def _kind(self, path: str, module: nn.Module) -> type[nn.Module]:
        blocks = self.anatomy.blocks if self.anatomy else ()
        if any(block.squeeze_excite == path for block in blocks):
            return SqueezeExcite
        if isinstance(module, PooledActivation):
            return type(module.activation)
        empty = isinstance(module, nn.Sequential) and not len(module)
        return nn.Identity if empty else type(module)

    def _block(self) -> tuple[str | None, Shape | None]:
        """Path of the running block, and the shape that it holds for its shortcut."""
        blocks = {b.name: b for b in self.anatomy.blocks} if self.anatomy else {}
        frame = next((f for f in self.stack if f.path in blocks), None)
        if frame is None:
            return None, None
        block = blocks[frame.path]
        identity = block.residual and block.layer("downsample") is None
        return frame.path, tuple(frame.inputs[0].shape) if identity else None


def _on_meta(network: nn.Module) -> dict[str, Tensor]:
    """Shapes of all parameters and buffers, and whether they are trained."""
    tensors = [*network.named_parameters(), *network.named_buffers()]
    return {name: t.detach().to("meta").requires_grad_(t.requires_grad) for name, t in tensors}
