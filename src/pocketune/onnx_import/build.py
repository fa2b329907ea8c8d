"""From the structure of a graph to nested modules."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pocketune.networks.anatomy.modules import is_convolution, weighs
from pocketune.onnx_import.file import Node, OnnxFile
from pocketune.onnx_import.operators import make_module
from pocketune.onnx_import.parts import Gate, Meeting, Residual, Steps, WithConstant
from pocketune.onnx_import.structure import Segment, branches, segments

NORMS = {"BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization"}


class Builder:
    """Makes the modules of a file.

    Args:
        file: The file.
    """

    def __init__(self, file: OnnxFile) -> None:
        self._file = file
        # exporters fold the norms of inference into the convolutions before them
        self._unfold = not any(node.kind in NORMS for node in file.nodes)
        self._pooled = _behind_pooling(file)

    def chain(self, given: str, nodes: Sequence[Node]) -> list[nn.Module]:
        """The modules in a row from a tensor to the output of the last node."""
        made: list[nn.Module] = []
        for segment in segments(given, nodes):
            for module in self._modules(segment):
                made += self._behind(made[-1] if made else None, module, segment.output)
        return made

    def _modules(self, segment: Segment) -> list[nn.Module]:
        if len(segment.nodes) > 1:
            return [self._branched(segment)]
        (node,) = segment.nodes
        module = make_module(node, self._file)
        if len(node.data) > 1:  # x op x
            return [Steps(segment.input, [(module, node.data, node.output)])]
        if isinstance(module, nn.Identity):  # Keras' exporter casts float32 to float32 everywhere
            return []
        return self._unfolded(module, node)

    def _unfolded(self, module: nn.Module, node: Node) -> list[nn.Module]:
        """A convolution with a bias as one without and a norm, if norms were folded.

        A convolution behind a global pooling is part of a squeeze-and-excitation or of the
        classifier, and had no norm.
        """
        folded = self._unfold and node.output not in self._pooled
        if not (folded and is_convolution(module)) or module.bias is None:
            return [module]
        norm = _norm_of(module.bias.data)
        module.bias = None
        return [module, norm]

    def _behind(self, last: nn.Module | None, module: nn.Module, output: str) -> list[nn.Module]:
        """The modules that follow the last one; none if that takes the module in.

        TensorFlow's converters fold a norm behind a depthwise convolution into a product and a sum.
        """
        if not isinstance(module, WithConstant):
            return [module]
        each = module.constant.flatten()
        if (layer := _unbiased_linear(last, module)) is not None:
            layer.bias = nn.Parameter(each.expand(layer.out_features).clone())
            return []
        conv = _scaled_convolution(last, module) if self._unfold else None
        if conv is None:
            return [module]
        if module.function is torch.mul:
            conv.weight.data = conv.weight.data * each[:, None, None, None]
            return []
        if output in self._pooled:
            conv.bias = nn.Parameter(each.clone())
            return []
        return [_norm_of(each.clone())]

    def _branched(self, segment: Segment) -> nn.Module:
        found = branches(segment)
        if found is None:
            steps = [(make_module(n, self._file), n.data, n.output) for n in segment.nodes]
            return Steps(segment.input, steps)
        parts = [self.chain(segment.input, nodes) for nodes in found]
        kind = segment.nodes[-1].kind
        if kind == "Add" and len(parts) == 2:
            main, other = sorted(parts, key=lambda part: (_convolutions(part), _layers(part)))[::-1]
            # PyTorch's exporter may transpose the tokens in both branches
            moves = not other or not (_layers(other) or _convolutions(main))
            if moves and _layers(main):
                return Residual(main, other)
            if _convolutions(main) > max(_convolutions(other), 1):
                return Residual(main, other)
        if kind == "Mul" and [] in parts and len(parts) == 2:
            (gate,) = [part for part in parts if part] or [[]]
            return _self_gated(gate) or Gate(gate)
        return Meeting(parts, make_module(segment.nodes[-1], self._file))


def _behind_pooling(file: OnnxFile) -> set[str]:
    """Results for whole images: those of global poolings, and what depends on them alone."""
    found: set[str] = set()
    for node in file.nodes:
        before, after = (file.shape(name)[1:] for name in (node.data[0], node.output))
        pools = node.kind.startswith(("Global", "Reduce"))
        pools |= node.kind == "AveragePool" and set(before) != {1}
        if (pools and len(before) == 2 and set(after) <= {1}) or found.issuperset(node.data):
            found.add(node.output)
    return found


def _norm_of(bias: Tensor) -> nn.BatchNorm2d:
    """A norm that only adds a bias."""
    norm = nn.BatchNorm2d(len(bias))
    norm.bias.data = bias
    assert norm.running_var is not None
    norm.running_var -= norm.eps
    return norm


def _unbiased_linear(last: nn.Module | None, module: WithConstant) -> nn.Linear | None:
    """A linear layer without bias, if the module adds one: a number, or one for each output."""
    if not isinstance(last, nn.Linear) or len(list(last.parameters())) > 1:
        return None
    count = module.constant.numel()
    fits = count == 1 or count == last.out_features == module.constant.shape[-1]
    return last if fits and module.function is torch.add else None


def _scaled_convolution(last: nn.Module | None, module: WithConstant) -> nn.Conv2d | None:
    """A convolution without bias, if the module has a factor or a term for each of its channels."""
    if not isinstance(last, nn.Conv2d) or last.bias is not None:
        return None
    shape = (1,) * (4 - module.constant.dim()) + tuple(module.constant.shape)
    fits = shape == (1, last.out_channels, 1, 1)
    return last if fits and module.function in (torch.mul, torch.add) else None


def _convolutions(modules: Sequence[nn.Module]) -> int:
    return sum(is_convolution(part) for module in modules for part in module.modules())


def _layers(modules: Sequence[nn.Module]) -> int:
    return sum(weighs(part) for module in modules for part in module.modules())


def _self_gated(gate: Sequence[nn.Module]) -> nn.Module | None:
    """The activation `x * gate(x)`, if it is one of PyTorch's."""
    kinds = [type(module) for module in gate]
    if kinds == [nn.Sigmoid]:
        return nn.SiLU()
    if kinds == [nn.Hardsigmoid] or _is_hard_sigmoid(gate):
        return nn.Hardswish()
    if len(gate) == 2 and isinstance(gate[0], nn.Softplus) and isinstance(gate[1], nn.Tanh):
        return nn.Mish()
    return None


def _is_hard_sigmoid(gate: Sequence[nn.Module]) -> bool:
    """Whether these modules compute `relu6(x + 3) / 6`."""
    if len(gate) != 3:
        return False
    plus, clip, divide = gate
    if not (isinstance(plus, WithConstant) and isinstance(divide, WithConstant)):
        return False
    sixth = {torch.div: 6.0, torch.mul: 1 / 6}.get(divide.function)
    return bool(
        plus.function is torch.add
        and isinstance(clip, nn.ReLU6)
        and sixth is not None
        and not divide.first
        and torch.equal(plus.constant, torch.full_like(plus.constant, 3.0))
        and torch.allclose(divide.constant, torch.full_like(divide.constant, sixth))
    )
