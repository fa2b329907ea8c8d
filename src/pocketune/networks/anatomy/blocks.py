"""Recognizing one block by the convolutions in it."""

from dataclasses import dataclass
from itertools import pairwise
from math import prod

from torch import nn

from pocketune.networks.anatomy.modules import (
    ConvLayer,
    conv_layers,
    is_convolution,
    is_depthwise,
    is_norm,
    is_pointwise,
    is_spatial,
    is_within,
    main_modules,
    weighs,
)

UNIVERSAL = "universal_inverted_bottleneck"
PATTERNS = (  # kind, then role and test of each convolution in the order in which they run
    (
        "inverted_residual",
        (("expand", is_pointwise), ("depthwise", is_depthwise), ("project", is_pointwise)),
    ),
    ("inverted_residual", (("depthwise", is_depthwise), ("project", is_pointwise))),
    ("fused_inverted_residual", (("expand", is_spatial), ("project", is_pointwise))),
    ("basic", (("conv1", is_spatial), ("conv2", is_spatial))),
    ("bottleneck", (("conv1", is_pointwise), ("conv2", is_spatial), ("conv3", is_pointwise))),
    (
        UNIVERSAL,
        (
            ("first_depthwise", is_depthwise),
            ("expand", is_pointwise),
            ("depthwise", is_depthwise),
            ("project", is_pointwise),
        ),
    ),
    (
        UNIVERSAL,
        (("first_depthwise", is_depthwise), ("expand", is_pointwise), ("project", is_pointwise)),
    ),
    (UNIVERSAL, (("expand", is_pointwise), ("project", is_pointwise))),
)
INVERTED = ("inverted_residual", "fused_inverted_residual", UNIVERSAL)
"""Kinds of blocks that are wide inside, end linearly and may lack a shortcut."""
ROWS = (*INVERTED, "basic", "bottleneck")
"""Kinds of blocks whose convolutions run one after the other."""
PARTS = ("expand", "depthwise", "project")
SHORTCUTS = ("downsample", "shortcut")
RESIDUAL_FLAGS = ("use_res_connect", "has_skip")  # torchvision's and ours; timm's


@dataclass(frozen=True)
class Layer:
    """A convolution with the norm and the activation that follow it, by module path.

    Attributes:
        role: `stem`, `first_depthwise`, `expand`, `depthwise`, `project`, `conv1`, `conv2`,
            `conv3`, `downsample`, `feature_fusion` or `decode_head`.
        conv: Path of the convolution.
        norm: Path of its norm, if it has one.
        activation: Path of its activation, if it has one. In basic and bottleneck blocks the
            activation of the last convolution comes after the shortcut is added, and several
            layers may share one module (torchvision's `relu`).
    """

    role: str
    conv: str
    norm: str | None
    activation: str | None

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the convolution, the norm and the activation, as far as they are there."""
        return tuple(path for path in (self.conv, self.norm, self.activation) if path)

    @property
    def in_shortcut(self) -> bool:
        """Whether the convolution is in the shortcut."""
        return self.role == "downsample"


@dataclass(frozen=True)
class Block:
    """One block of a network. Methods ask its properties and do not compare its `kind`.

    Attributes:
        name: Path of the block's module.
        kind: One of `ROWS`, in which convolutions run one after the other; or `ghost`,
            `mixed_inverted_residual`, `reparameterized`, `convnext`, `attention` (of a
            transformer: attention and MLP), `mlp`, `convolution` (one with the norm and the
            activation behind it, which are not inside its module) or `other`.
        layers: Its convolutions, in the order in which they run; `downsample`, in the shortcut,
            comes last. Those in squeeze-excite are left out.
        squeeze_excite: Path of the squeeze-excite module, if there is one.
        residual: Whether the input, or what `downsample` makes of it, is added to the output.
        features: Shapes (C, H, W) or (T, C) of the one tensor that it reads and of the one that it
            returns, in a network that was run to find its blocks; None if there are several.
        entry: Paths of the modules with parameters between the block before and this one.
    """

    name: str
    kind: str
    layers: tuple[Layer, ...]
    squeeze_excite: str | None
    residual: bool
    features: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    entry: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        """Paths of the block's module and of the norms of its layers that stand outside of it."""
        norms = (layer.norm for layer in self.layers if layer.norm)
        return (self.name, *(norm for norm in norms if not norm.startswith(f"{self.name}.")))

    def layer(self, role: str) -> Layer | None:
        """The layer of that role, or None."""
        return next((layer for layer in self.layers if layer.role == role), None)

    @property
    def main(self) -> tuple[Layer, ...]:
        """The layers from the block's input to its output, without the shortcut."""
        return tuple(layer for layer in self.layers if not layer.in_shortcut)

    @property
    def is_row(self) -> bool:
        """Whether the convolutions on the main path run one after the other, and nothing else."""
        return self.kind in ROWS

    @property
    def is_bottleneck(self) -> bool:
        """Whether the block is wide outside and narrow inside."""
        return self.kind == "bottleneck"

    @property
    def lacks_expansion(self) -> bool:
        """Whether the hidden channels are those of the block's input."""
        return self.kind == "inverted_residual" and self.layer("expand") is None

    def part(self, layer: Layer) -> str:
        """The part of a layer: `expand`, `depthwise` or `project`.

        In blocks of ResNets, the first convolution counts as `expand`, and the last one and the
        shortcut's as `project`. A convolution between them counts as `depthwise`, and so does the
        first depthwise one of a universal inverted bottleneck.
        """
        if layer.role in PARTS:
            return layer.role
        if layer.role == "first_depthwise":
            return "depthwise"
        if layer.in_shortcut or layer == self.main[-1]:
            return "project"
        return "expand" if layer == self.main[0] else "depthwise"

    @property
    def hidden_squeeze_excite(self) -> str | None:
        """Path of the squeeze-excite module that scales the hidden channels, if there is one."""
        return self.squeeze_excite if self.kind in INVERTED else None

    @property
    def hidden(self) -> tuple[tuple[Layer | None, Layer | None, Layer], ...]:
        """For each set of hidden channels: the producer, the depthwise layer, the consumer.

        The producer is None in a block without an expansion: it is the layer before the block.
        There are none in a block that is not a row.
        """
        if not self.is_row:
            return ()
        if self.kind in INVERTED:
            return ((self.layer("expand"), self.layer("depthwise"), self.main[-1]),)
        return tuple((left, None, right) for left, right in pairwise(self.main))


def make_layer(role: str, found: ConvLayer) -> Layer:
    """The layer of a convolution with this role."""
    return Layer(role, found.path, found.norm, found.activation)


def read_block(name: str, module: nn.Module) -> Block | None:
    """`module` at path `name` as a block; None if it is not built like one."""
    squeeze_excite = find_squeeze_excite(name, module)
    parts = [
        (path, part)
        for path, part in main_modules(module, prefix=name)
        if squeeze_excite is None or not is_within(path, squeeze_excite)
    ]
    if any(isinstance(part, nn.Linear) for _, part in parts):
        return None
    found = conv_layers(parts)
    shortcut = [layer for layer in found if in_shortcut(layer.path, name)]
    main = [layer for layer in found if layer not in shortcut]
    match = _match(main)
    if match is None or len(shortcut) > 1:
        return None
    kind, roles = match
    if kind not in INVERTED:
        _share_activation(main)
    layers = [make_layer(role, layer) for role, layer in zip(roles, main, strict=True)]
    layers += [make_layer("downsample", layer) for layer in shortcut]
    return Block(name, kind, tuple(layers), squeeze_excite, _residual(kind, module, main))


def _match(main: list[ConvLayer]) -> tuple[str, tuple[str, ...]] | None:
    """Kind and roles of a chain of convolutions."""
    if any(left.conv.out_channels != right.conv.in_channels for left, right in pairwise(main)):
        return None
    for kind, pattern in PATTERNS:
        roles = tuple(role for role, _ in pattern)
        if len(pattern) == len(main) and all(
            test(layer.conv) for (_, test), layer in zip(pattern, main, strict=True)
        ):
            return (kind, roles) if _is_like(kind, main) else None
    return None


def _is_like(kind: str, main: list[ConvLayer]) -> bool:
    """Whether norms and activations are where blocks of a kind have them.

    Two convolutions with an activation at the end may be anything, and so may 1x1 convolutions
    without norms.
    """
    if kind == "fused_inverted_residual":
        return main[-1].activation is None
    if kind == UNIVERSAL:
        expand, project = main[-2 if len(main) < 4 else 1], main[-1]
        normed = all(layer.norm is not None for layer in main)
        return normed and expand.activation is not None and project.activation is None
    return True


def in_shortcut(path: str, block: str) -> bool:
    """Whether a module is in the shortcut of a block, by its name."""
    return path.removeprefix(f"{block}.").split(".")[0] in SHORTCUTS


def _share_activation(main: list[ConvLayer]) -> None:
    """One activation module in a residual block of ResNets serves all its convolutions."""
    activations = {layer.activation for layer in main} - {None}
    if len(activations) == 1:
        for layer in main:
            (layer.activation,) = activations


def _residual(kind: str, module: nn.Module, main: list[ConvLayer]) -> bool:
    for flag in RESIDUAL_FLAGS:
        if isinstance(value := getattr(module, flag, None), bool):
            return value
    same_size = prod(stride for layer in main for stride in layer.conv.stride) == 1
    same_channels = main[0].conv.in_channels == main[-1].conv.out_channels
    return kind not in INVERTED or (same_size and same_channels)


def find_squeeze_excite(name: str, block: nn.Module) -> str | None:
    """Path of the outermost module of two 1x1 layers, C -> squeezed -> C, without a norm.

    With a third convolution the module is part of the chain, as in a block without norms.
    """
    for path, module in main_modules(block, prefix=name):
        if module is not block and not in_shortcut(path, name) and is_squeeze_excite(module):
            return str(path)
    return None


def is_squeeze_excite(module: nn.Module) -> bool:
    """Whether a module has two 1x1 layers, C -> squeezed -> C, and no norm.

    An MLP widens instead, and has no sigmoid. Squeeze-excite does if its channels are pruned.
    """
    if any(is_norm(part) for part in module.modules()):
        return False
    sizes = [pointwise_sizes(part) for part in module.modules() if weighs(part)]
    if len(sizes) != 2 or () in sizes:
        return False
    inputs, squeezed = sizes[0]
    gates = any("sigmoid" in type(part).__name__.lower() for part in module.modules())
    return sizes[1] == (squeezed, inputs) and (squeezed <= inputs or gates)


def pointwise_sizes(module: nn.Module) -> tuple[int, ...]:
    """Inputs and outputs of a dense 1x1 or linear layer, () for every other module."""
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    if is_convolution(module) and is_pointwise(module):
        return module.in_channels, module.out_channels
    return ()
