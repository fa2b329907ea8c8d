"""How far the signed backward pass can lead astray, checked while a small network is trained.

The bound is ours, for a chain of layers `a = W x + b`, `x = h(a)` (docs/mobiletl.md derives it).
With e the largest difference of slopes, `|1[a >= 0] - h'(a)|`, and d the exact gradient of an `a`,
the signed one differs by at most

    error(a of layer l) <= norm(W of l + 1) * error(a of l + 1) + e * |W' d of l + 1|

and the gradient of the layer's weight by at most that times |x|, its input.
"""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from pocketune.layers import SignedHardswish, SignedReLU, SignedReLU6

STEPS, RATE = 40, 0.05
ROUNDING = 1e-12
ACTIVATIONS = [  # exact, signed, largest difference of slopes
    (nn.Hardswish, SignedHardswish, 0.5),
    (nn.ReLU6, SignedReLU6, 1.0),
    (nn.ReLU, SignedReLU, 0.0),
]
kinds = pytest.mark.parametrize(
    ("exact", "signed", "apart"), ACTIVATIONS, ids=lambda kind: getattr(kind, "__name__", None)
)


def chain(activation: type[nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    sizes = [6, 24, 24, 24]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), activation()]
    network = nn.Sequential(*layers, nn.Linear(sizes[-1], 3)).double()
    for layer in linear(network):
        layer.weight.data *= 3  # wide enough that ReLU6 meets its upper end
    return network


def linear(network: nn.Sequential) -> list[nn.Linear]:
    return [layer for layer in network if isinstance(layer, nn.Linear)]


def backward(network: nn.Sequential, x: Tensor, y: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs of the linear layers, and the gradients of their outputs; weights get theirs."""
    inputs, outputs = [], []
    for layer in network:
        if isinstance(layer, nn.Linear):
            inputs.append(x.detach())
            x = layer(x)
            x.retain_grad()
            outputs.append(x)
        else:
            x = layer(x)
    network.zero_grad()
    nn.functional.cross_entropy(x, y).backward()
    return inputs, [output.grad for output in outputs if output.grad is not None]


def twin(network: nn.Sequential, activation: type[nn.Module]) -> nn.Sequential:
    """The same weights with other activations."""
    other = chain(activation)
    other.load_state_dict(network.state_dict())
    return other


def bounds(network: nn.Sequential, gradients: list[Tensor], apart: float) -> list[float]:
    """For each layer, by how much the signed gradient of its output may differ."""
    error = [0.0]  # the loss itself is differentiated exactly
    weights = [layer.weight.detach() for layer in linear(network)]
    for weight, gradient in zip(weights[:0:-1], gradients[:0:-1], strict=True):
        carried = float(torch.linalg.matrix_norm(weight, 2)) * error[0]
        error.insert(0, carried + apart * float(torch.linalg.norm(gradient @ weight)))
    return error


@kinds
def test_slopes_are_at_most_so_far_apart(
    exact: type[nn.Module], signed: type[nn.Module], apart: float
) -> None:
    """And no bound below it holds."""
    ends = torch.tensor([-3.0, 0.0, 3.0, 6.0], dtype=torch.float64)
    a = torch.cat([torch.linspace(-9, 9, 4001, dtype=torch.float64), ends - 1e-9, ends + 1e-9])
    a = a[a != 0]  # where ReLU has no slope
    slopes = []
    for activation in (exact(), signed()):
        x = a.clone().requires_grad_()
        activation(x).sum().backward()
        slopes.append(x.grad)
    worst = float((slopes[0] - slopes[1]).abs().max())
    assert worst == pytest.approx(apart, abs=1e-8)


def norm(matrix: Tensor, order: int | str = "fro") -> float:
    return float(torch.linalg.matrix_norm(matrix.detach(), order))


def gradients_apart(a: nn.Sequential, b: nn.Sequential) -> list[float]:
    pairs = zip(linear(a), linear(b), strict=True)
    return [norm(one.weight.grad - other.weight.grad) for one, other in pairs]


@kinds
def test_the_bound_holds_at_every_step(
    exact: type[nn.Module], signed: type[nn.Module], apart: float
) -> None:
    """Layer by layer; and so the two runs drift apart no further than their steps allow."""
    x = torch.randn(32, 6, dtype=torch.float64)
    y = torch.randint(3, (32,))
    exactly, signedly = chain(exact), chain(signed)
    allowed = largest = 0.0
    for _ in range(STEPS):
        reference = twin(signedly, exact)  # the exact gradients where the signed run has come to
        inputs, truth = backward(reference, x, y)
        _, approximate = backward(signedly, x, y)
        backward(exactly, x, y)
        outputs = bounds(reference, truth, apart)
        weights = [bound * norm(given, 2) for bound, given in zip(outputs, inputs, strict=True)]
        for a, b, bound in zip(approximate, truth, outputs, strict=True):
            assert norm(a - b) <= bound * (1 + 1e-9) + ROUNDING
        for off, bound in zip(gradients_apart(signedly, reference), weights, strict=True):
            assert off <= bound * (1 + 1e-9) + ROUNDING
            largest = max(largest, off)
        allowed += RATE * (sum(weights) + sum(gradients_apart(reference, exactly)))
        for network in (exactly, signedly):
            for parameter in network.parameters():
                assert parameter.grad is not None
                parameter.data -= RATE * parameter.grad
        pairs = zip(linear(signedly), linear(exactly), strict=True)
        assert sum(norm(a.weight - b.weight) for a, b in pairs) <= allowed + ROUNDING
    assert (largest > 0.01) == (apart > 0)  # the bound was put to the test
