"""Batch norm on fixed statistics: same values, same names, nothing kept."""

import pytest
import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.layers import FrozenBatchNorm2d

from .kept import kept_tensors


def batch_norm(features: int = 5, eps: float = 1e-3) -> nn.BatchNorm2d:
    """A batch norm whose every tensor differs from the default."""
    generator = torch.Generator().manual_seed(0)
    norm = nn.BatchNorm2d(features, eps=eps)
    for tensor in (norm.weight.data, norm.bias.data, norm.running_mean):
        tensor.copy_(torch.randn(features, generator=generator))
    norm.running_var.copy_(torch.rand(features, generator=generator) * 3)
    return norm


def images(features: int = 5) -> Tensor:
    return torch.randn(4, features, 7, 6, generator=torch.Generator().manual_seed(1))


def map_bytes(module: nn.Module, x: Tensor) -> int:
    """Bytes of activation-sized tensors that a forward pass keeps for the backward pass."""
    return sum(t.nbytes for t in kept_tensors(module, x) if t.numel() >= x.numel())


@pytest.mark.parametrize("training", [True, False])
def test_forward_is_that_of_batch_norm_in_evaluation(training: bool) -> None:
    norm = batch_norm()
    expected = norm.eval()(images())
    frozen = FrozenBatchNorm2d.from_batch_norm(norm).train(training)
    torch.testing.assert_close(frozen(images()), expected, rtol=1e-6, atol=1e-6)


def test_statistics_never_change() -> None:
    frozen = FrozenBatchNorm2d.from_batch_norm(batch_norm()).train()
    before = {name: tensor.clone() for name, tensor in frozen.state_dict().items()}
    frozen(images())
    for name, tensor in frozen.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_takes_over_the_same_tensors() -> None:
    norm = batch_norm()
    frozen = FrozenBatchNorm2d.from_batch_norm(norm)
    assert frozen.weight is norm.weight
    assert frozen.bias is norm.bias
    assert frozen.running_mean is norm.running_mean
    assert frozen.running_var is norm.running_var
    assert frozen.eps == norm.eps


@pytest.mark.parametrize("strict", [True, False])
def test_loads_the_state_of_a_batch_norm(strict: bool) -> None:
    state = nn.Sequential(batch_norm()).state_dict()
    network = nn.Sequential(FrozenBatchNorm2d(5, eps=1e-3))
    network.load_state_dict(state, strict=strict)
    assert set(network.state_dict()) == set(state) - {"0.num_batches_tracked"}
    expected = batch_norm().eval()(images())
    torch.testing.assert_close(network(images()), expected, rtol=1e-6, atol=1e-6)
    assert "0.num_batches_tracked" in state


def test_a_batch_norm_loads_its_state() -> None:
    frozen = FrozenBatchNorm2d.from_batch_norm(batch_norm())
    norm = nn.BatchNorm2d(5, eps=1e-3).eval()
    norm.load_state_dict(frozen.state_dict())
    torch.testing.assert_close(norm(images()), frozen(images()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shift_trained", [True, False])
def test_keeps_nothing_while_the_scale_is_frozen(shift_trained: bool) -> None:
    frozen = FrozenBatchNorm2d.from_batch_norm(batch_norm())
    frozen.weight.requires_grad_(False)
    frozen.bias.requires_grad_(shift_trained)
    assert map_bytes(frozen, images().requires_grad_()) == 0


def test_keeps_its_input_where_the_scale_is_trained() -> None:
    x = images().requires_grad_()
    assert map_bytes(FrozenBatchNorm2d.from_batch_norm(batch_norm()), x) == x.nbytes


def test_batch_norm_in_evaluation_keeps_its_input_although_frozen() -> None:
    """Why this layer exists; if it fails, PyTorch has become better and the layer may go."""
    x = images().requires_grad_()
    assert map_bytes(batch_norm().eval().requires_grad_(False), x) == x.nbytes


def test_gradients_are_exact() -> None:
    frozen = FrozenBatchNorm2d.from_batch_norm(batch_norm(3)).double()
    x = images(3).double().requires_grad_()

    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        tensors = {"weight": weight, "bias": bias}
        return torch.func.functional_call(frozen, tensors, (x,))

    assert torch.autograd.gradcheck(forward, (x, frozen.weight, frozen.bias))


def test_gradients_equal_those_of_batch_norm_in_evaluation() -> None:
    norm = batch_norm().double().eval()
    frozen = FrozenBatchNorm2d.from_batch_norm(norm)
    upstream = torch.randn(4, 5, 7, 6, dtype=torch.float64)
    results = []
    for module in (norm, frozen):
        x = images().double().requires_grad_()
        inputs = [x, module.weight, module.bias]
        results.append(torch.autograd.grad(module(x), inputs, upstream))
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


class NormWithActivation(nn.BatchNorm2d):
    """As timm's BatchNormAct2d: a batch norm that runs a dropout and an activation after itself."""

    def __init__(self, features: int) -> None:
        super().__init__(features)
        self.drop = nn.Identity()
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(super().forward(x)))


def test_modules_inside_a_batch_norm_stay() -> None:
    norm = NormWithActivation(5).eval()
    frozen = FrozenBatchNorm2d.from_batch_norm(norm)
    assert frozen.act is norm.act
    torch.testing.assert_close(frozen(images()), norm(images()), rtol=1e-6, atol=1e-6)


def test_a_hook_inside_a_batch_norm_is_not_run() -> None:
    norm = NormWithActivation(5).eval()
    norm.act.register_forward_hook(lambda *_: pytest.fail("a part was called by itself"))
    assert FrozenBatchNorm2d.from_batch_norm(norm).act is norm.act


def test_a_norm_without_weight_and_bias() -> None:
    norm = nn.BatchNorm2d(5, affine=False).double()
    norm(images().double())
    norm.eval()
    frozen = FrozenBatchNorm2d.from_batch_norm(norm)
    torch.testing.assert_close(frozen(images().double()), norm(images().double()))
    assert not any(parameter.requires_grad for parameter in frozen.parameters())


def test_refuses_a_norm_without_statistics() -> None:
    norm = nn.BatchNorm2d(5, track_running_stats=False)
    with pytest.raises(PocketuneError, match=r"no running statistics; train it with FullFineTune"):
        FrozenBatchNorm2d.from_batch_norm(norm)


def test_says_what_it_is() -> None:
    assert repr(FrozenBatchNorm2d(8, eps=0.001)) == "FrozenBatchNorm2d(8, eps=0.001)"
