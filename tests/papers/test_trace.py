"""A trace sees what runs: branches, shared modules, custom layers, gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.methods import FullFineTune, LastLayer, MobileTL, TopBlocks, adapt
from pocketune.papers import trace_modules
from pocketune.surgery import add_branches
from pocketune.weights import create_network

from ..accounting.networks import adapted
from ..networks.meta import on_meta


def paths(seen, kind=nn.Module):
    return [call.path for call in seen.calls if isinstance(call.module, kind)]


class TestCalls:
    def test_leaves_come_in_the_order_in_which_they_run_and_before_their_callers(self):
        block = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()))
        seen = trace_modules(block, (3, 8, 8))
        assert paths(seen) == ["0", "1.0", "1.1", "1", ""]
        assert [call.is_leaf for call in seen.calls] == [True, True, True, False, False]
        assert seen.calls[0].input == (1, 3, 8, 8)
        assert seen.calls[0].output == seen.calls[-1].output == (1, 4, 6, 6)

    def test_shapes_are_those_of_a_real_run(self):
        network = create_network("mobilenet_v3_small", classes=5).eval()
        real = {}
        for name, module in network.named_modules():
            module.register_forward_hook(
                lambda m, i, o, name=name: real.update({name: (i[0].shape, o.shape)})
            )
        network(torch.zeros(1, 3, 64, 64))
        seen = trace_modules(network, (3, 64, 64))
        assert {c.path: (torch.Size(c.input), torch.Size(c.output)) for c in seen.calls} == real

    def test_a_shared_module_is_called_twice(self):
        seen = trace_modules(on_meta("resnet18", classes=5), (3, 64, 64))
        assert paths(seen).count("layer1.0.relu") == 2

    def test_a_module_under_two_names_is_one(self):
        relu = nn.ReLU()
        seen = trace_modules(nn.Sequential(relu, relu), (3, 8, 8))
        assert paths(seen) == ["0", "0", ""]

    def test_a_side_branch_runs_inside_its_block(self):
        network = on_meta("mobilenet_v2", classes=5)
        add_branches(network, {"features.3": lambda block: nn.Conv2d(24, 24, 1)})
        seen = trace_modules(network, (3, 32, 32))
        inside = [call for call in seen.calls if call.block == "features.3"]
        assert [call.path for call in inside][-2:] == ["features.3.branch", "features.3"]
        assert [call.in_branch for call in inside][-2:] == [True, False]
        assert inside[-2].shortcut == (1, 24, 8, 8)

    def test_several_inputs_and_outputs(self):
        class Two(nn.Module):
            def forward(self, x, *, y):
                return {"sum": x + y, "text": "no tensor"}, y

        class Caller(nn.Module):
            def __init__(self):
                super().__init__()
                self.two = Two()

            def forward(self, x):
                return self.two(x, y=x[:, :1])[0]["sum"]

        call = trace_modules(Caller(), (3, 4, 4)).calls[0]
        assert call.inputs == ((1, 3, 4, 4), (1, 1, 4, 4))
        assert call.outputs == ((1, 3, 4, 4), (1, 1, 4, 4))


class TestBlocks:
    def test_the_shortcut_is_that_of_identity_blocks(self):
        seen = trace_modules(on_meta("resnet18", classes=5), (3, 64, 64))
        shortcuts = {call.block: call.shortcut for call in seen.calls}
        assert shortcuts["layer1.0"] == (1, 64, 16, 16)
        assert shortcuts["layer2.0"] is None  # its shortcut is a convolution
        assert shortcuts[None] is None

    def test_a_network_without_anatomy_has_no_blocks(self):
        seen = trace_modules(
            nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Linear(5, 2)), (3, 2, 2)
        )
        assert seen.anatomy is None and {call.block for call in seen.calls} == {None}
        assert seen.classifier == ("2",)


class TestGradients:
    def test_they_start_behind_the_first_trained_parameter(self):
        seen = trace_modules(adapted("mobilenet_v2", TopBlocks(1), classes=5), (3, 32, 32))
        calls = {call.path: call for call in seen.calls}
        first = calls["features.17.conv.0.0"]
        assert first.weight_trained and not first.gradient_in and first.gradient_out
        assert calls["features.17.conv.0.1"].gradient_in
        assert not calls["features.16"].gradient_out and not calls["features.16"].trained

    def test_an_activation_in_place_does_not_blur_them(self):
        frozen = nn.Conv2d(3, 3, 1).requires_grad_(False)
        seen = trace_modules(
            nn.Sequential(frozen, nn.ReLU(inplace=True), nn.Conv2d(3, 3, 1)), (3, 4, 4)
        )
        assert [call.gradient_in for call in seen.calls[:3]] == [False, False, False]

    def test_trained_names_a_modules_own_parameters(self):
        network = adapted("mobilenet_v2", LastLayer(), classes=5)
        assert {
            c.path: c.trained for c in trace_modules(network, (3, 32, 32)).calls if c.trained
        } == {"classifier.1": {"weight", "bias"}}

    def test_parameters_are_counted_once(self):
        layer = nn.Linear(3, 3)
        network = nn.Sequential(layer, nn.Linear(3, 3).requires_grad_(False), layer)
        seen = trace_modules(network, (3,))
        assert seen.count_parameters(trained=True) == seen.count_parameters(trained=False) == 12

    def test_weights_in_8_bits_are_counted_too(self):
        network = on_meta("mobilenet_v2", classes=5)
        whole, eighth = (
            trace_modules(adapt(network, MobileTL(1), frozen_bits=bits), (3, 32, 32))
            for bits in (32, 8)
        )
        for trained in (True, False):
            assert eighth.count_parameters(trained=trained) == whole.count_parameters(
                trained=trained
            )


class TestTheNetworkStaysAsItIs:
    def test_values_modes_and_hooks(self):
        network = adapt(create_network("mobilenet_v2", width=0.35, classes=5), FullFineTune())
        network.features[3].eval()
        before = {name: value.clone() for name, value in network.state_dict().items()}
        modes = [module.training for module in network.modules()]
        trace_modules(network, (3, 32, 32))
        assert all(torch.equal(before[k], v) for k, v in network.state_dict().items())
        assert [module.training for module in network.modules()] == modes
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())

    def test_also_when_it_fails(self):
        network = nn.Sequential(nn.Conv2d(3, 4, 3))
        with pytest.raises(PocketuneError):
            trace_modules(network, (5, 8, 8))
        assert network.training and not network[0]._forward_hooks


class TestBadInput:
    def test_a_size_that_the_network_cannot_take(self):
        network = nn.Sequential(nn.Conv2d(3, 4, 7))
        with pytest.raises(PocketuneError, match=r"sample of shape \(3, 4, 4\)"):
            trace_modules(network, (3, 4, 4))

    def test_lazy_modules(self):
        with pytest.raises(PocketuneError, match=r"0\.weight has no shape yet"):
            trace_modules(nn.Sequential(nn.LazyConv2d(4, 3)))

    def test_decisions_by_value(self):
        class Deciding(nn.Module):
            def forward(self, x):
                return x if x.sum() > 0 else -x

        with pytest.raises(PocketuneError, match="Deciding cannot be traced"):
            trace_modules(Deciding(), (3, 4, 4))

    @pytest.mark.parametrize(
        ("error", "said"), [(ValueError(), "ValueError"), (AssertionError("small"), "small")]
    )
    def test_a_network_that_raises(self, error, said):
        class Raising(nn.Module):
            def forward(self, x):
                raise error

        with pytest.raises(PocketuneError, match=rf"sample of shape \(3, 4, 4\): {said}$"):
            trace_modules(Raising(), (3, 4, 4))
