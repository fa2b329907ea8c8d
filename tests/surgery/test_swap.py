"""Modules are swapped by name, each with its own replacement."""

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import MaskedReLU, MaskedReLU6, SignedHardswish, SignedReLU, SignedReLU6
from pocketune.methods import (
    FullFineTune,
    GradientFilter,
    LastLayer,
    Method,
    MobileTL,
    SignedBackward,
    adapt,
)
from pocketune.surgery import (
    add_branches,
    mask_activations,
    masked_activations,
    separate,
    signed_activations,
    signed_after,
    swap,
)
from pocketune.weights import create_network


def test_swaps_at_any_depth_and_leaves_the_rest() -> None:
    inner = nn.Sequential(nn.ReLU(), nn.Linear(2, 2))
    network = nn.Sequential(nn.Linear(2, 2), inner)
    first, last = network[0], inner[1]
    swap(network, {"1.0": lambda old: nn.Sequential(old, nn.Identity())})
    assert network[0] is first
    assert network[1] is inner
    assert inner[1] is last
    assert isinstance(inner[0][0], nn.ReLU)


@pytest.mark.parametrize("training", [True, False])
def test_new_module_is_in_the_mode_of_the_old(training: bool) -> None:
    network = nn.Sequential(nn.ReLU().train(training))
    swap(network, {"0": lambda _: nn.ReLU6()})
    assert network[0].training is training


def test_hooks_run_around_the_new_module_once() -> None:
    network = nn.Sequential(nn.Linear(2, 2))
    ran: list[str] = []
    old = network[0]
    old.register_forward_pre_hook(lambda module, x: ran.append("before"))
    old.register_forward_hook(lambda module, x, y: ran.append("after"))
    old.register_forward_hook(lambda module, x, named, y: 2 * y, with_kwargs=True)
    handle = old.register_full_backward_hook(lambda module, of_x, of_y: ran.append("back"))
    swap(network, {"0": lambda old: nn.Sequential(old, nn.Identity())})
    x = torch.randn(1, 2, requires_grad=True)
    y = network(x)
    y.sum().backward()
    assert ran == ["before", "after", "back"]
    torch.testing.assert_close(y, 2 * old(x))
    handle.remove()
    network(x).sum().backward()
    assert ran[3:] == ["before", "after"]


class Around(nn.Module):
    def __init__(self, old: nn.Module) -> None:
        super().__init__()
        self.old = old

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.old(x)
        return y


def test_a_branch_is_added_once_behind_other_hooks() -> None:
    network = nn.Sequential(nn.Linear(2, 2, bias=False))
    network[0].register_forward_hook(lambda module, x, y: 0 * y)
    add_branches(network, {"0": lambda _: nn.Identity()})
    swap(network, {"0": Around})
    x = torch.randn(1, 2)
    assert torch.equal(network(x), x)


@pytest.mark.parametrize("method", [LastLayer(), GradientFilter(layers=6), MobileTL(2)], ids=str)
def test_hooks_of_an_adapted_network_stay(method: Method) -> None:
    network = create_network("mobilenet_v2", width=0.35, classes=3)
    seen: list[str] = []
    leaves = [n for n, m in network.named_modules() if next(m.children(), None) is None]
    for name in leaves:
        module = network.get_submodule(name)
        module.register_forward_hook(lambda *_, name=name: seen.append(name))
    adapted = adapt(network, method)
    seen.clear()
    adapted(torch.randn(2, 3, 32, 32))
    assert sorted(seen) == sorted(leaves)


def test_unknown_module_is_an_error_and_nothing_is_added() -> None:
    network = nn.Sequential(nn.ReLU())
    with pytest.raises(AttributeError):
        swap(network, {"nothing": lambda old: old})
    assert len(network) == 1


def test_activations_become_modules_of_their_own() -> None:
    relu = nn.ReLU()
    network = nn.Sequential(relu, nn.Sequential(relu, nn.Linear(2, 2)), relu)
    separate(network)
    assert len({network[0], network[1][0], network[2]}) == 3


def test_a_method_reaches_every_path_of_a_shared_activation() -> None:
    network, relu = create_network("mobilenet_v2", width=0.35, classes=3), nn.ReLU6()
    for block in network.features[2:18]:
        block.conv[0][2] = relu
    adapted = adapt(network, FullFineTune() + SignedBackward())
    kinds = {type(block.conv[0][2]) for block in adapted.features[2:18]}
    assert len(kinds) == 1
    assert kinds != {nn.ReLU6}


def test_layers_that_share_their_values_are_named() -> None:
    network = create_network("mobilenet_v2", width=0.35, classes=3)
    network.features[5].conv[0][1] = network.features[4].conv[0][1]
    with pytest.raises(PocketuneError, match=r"features\.5\.conv\.0\.1 is the same module as"):
        adapt(network, LastLayer())


def network() -> nn.Sequential:
    inner = nn.Sequential(nn.ReLU6(), nn.SiLU())
    return nn.Sequential(nn.ReLU(), nn.Hardswish(), inner, MaskedReLU6())


NAMES = ["0", "1", None, "2.0", "2.1", "3", "0"]


def kinds(net: nn.Module) -> list[type[nn.Module]]:
    return [type(module) for module in net.modules() if not isinstance(module, nn.Sequential)]


def test_signed_variants_take_the_place_of_those_that_have_one() -> None:
    net = network()
    swap(net, signed_activations(net, NAMES))
    assert kinds(net) == [SignedReLU, SignedHardswish, SignedReLU6, nn.SiLU, SignedReLU6]


def test_a_masked_relu6_takes_the_place_of_an_ordinary_one() -> None:
    net = network()
    swap(net, masked_activations(net, NAMES))
    assert kinds(net) == [nn.ReLU, nn.Hardswish, MaskedReLU6, nn.SiLU, MaskedReLU6]


def test_every_relu_keeps_one_bit_and_the_values_stay() -> None:
    net = network()
    x = torch.randn(5, 7)
    expected = net(x)
    mask_activations(net)
    assert kinds(net) == [MaskedReLU, nn.Hardswish, MaskedReLU6, nn.SiLU, MaskedReLU6]
    assert torch.equal(net(x), expected)


def test_a_factory_is_followed_by_the_signed_variant() -> None:
    assert type(signed_after(lambda _: MaskedReLU())(nn.ReLU())) is SignedReLU
    assert type(signed_after(lambda _: nn.SiLU())(nn.ReLU())) is nn.SiLU
