"""Dropout with masks from outside."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.compiler import compile
from pocketune.compiler.capture.dropout import refuse_random_numbers, supply_masks
from pocketune.compiler.capture.supplied_dropout import SuppliedDropout
from pocketune.errors import PocketuneError
from pocketune.kit.manifest import MaskSpec
from pocketune.methods import FullFineTune, adapt
from pocketune.networks.copies import copy_network
from pocketune.weights import create_network


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1),
        nn.Dropout(0.25),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.0),
        nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2)),
    )


def test_every_dropout_that_drops_gets_a_mask_of_its_inputs_shape() -> None:
    net = network()
    specs = supply_masks(net, batch=6, size=10)
    assert specs == (
        MaskSpec("1.mask", (6, 4, 5, 5), 0.75),
        MaskSpec("5.0.mask", (6, 4), 0.5),
    )
    for spec in specs:
        assert net.get_buffer(spec.name).shape == spec.shape
    assert isinstance(net[4], nn.Dropout)


def test_a_mask_of_ones_changes_nothing() -> None:
    net = network()
    images = torch.randn(2, 3, 8, 8)
    expected = net.eval()(images)
    supply_masks(net, batch=2, size=8)
    torch.testing.assert_close(net.train()(images), expected)


class Calls(nn.Module):
    """Calls `functional.dropout` twice, around a module that calls it by its own helper."""

    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return self._dropped(x)

        def _dropped(self, x: Tensor) -> Tensor:
            return F.dropout(x, training=self.training, p=0.25)

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3, stride=2), nn.Linear(4, 3)
        self.inner, self.module = Calls.Inner(), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(self.conv(x), 0.5, self.training)
        x = self.module(self.inner(x)).mean((2, 3))
        x = F.dropout(F.dropout(x, 0.0, self.training), 0.2, self.training)
        logits: Tensor = self.fc(x)
        return logits


def test_calls_of_the_function_get_masks_too() -> None:
    net = Calls()
    specs = supply_masks(net, batch=2, size=9)
    assert {spec.name: (spec.shape, spec.keep) for spec in specs} == {
        "inner.supplied_dropouts.calls.0.mask": ((2, 4, 4, 4), 0.75),
        "module.mask": ((2, 4, 4, 4), 0.9),
        "supplied_dropouts.calls.0.mask": ((2, 4, 4, 4), 0.5),
        "supplied_dropouts.calls.1.mask": ((2, 4), 0.8),
    }
    assert supply_masks(net, batch=2, size=9) == specs
    for network in (net, copy_network(net)):  # a copy reads its own masks
        x = torch.randn(2, 3, 9, 9)
        masks = {spec.name: network.get_buffer(spec.name).uniform_() for spec in specs}
        maps = network.conv(x) * masks["supplied_dropouts.calls.0.mask"]
        maps = maps * masks["inner.supplied_dropouts.calls.0.mask"] * masks["module.mask"]
        expected = network.fc(maps.mean((2, 3)) * masks["supplied_dropouts.calls.1.mask"])
        torch.testing.assert_close(network.train()(x), expected)
        torch.testing.assert_close(network.eval()(x), network.fc(network.conv(x).mean((2, 3))))


def test_a_kit_of_a_network_that_calls_the_function(tmp_path: Path) -> None:
    """`compile` compares its steps, with masks, to PyTorch."""
    kit = compile(adapt(Calls(), FullFineTune()), tmp_path / "kit", batch=2, size=16)
    assert len(kit.manifest.masks) == 4


def test_masks_multiply_in_training_only() -> None:
    dropout = SuppliedDropout(0.5, (2, 3))
    dropout.mask.copy_(torch.tensor([[0.0, 2, 0], [2, 2, 0]]))
    x = torch.arange(6.0).view(2, 3)
    assert torch.equal(dropout.train()(x), x * dropout.mask)
    assert torch.equal(dropout.eval()(x), x)
    assert dropout.eval()(torch.ones(7, 3)).shape == (7, 3)


def test_masks_are_no_part_of_the_state() -> None:
    net = network()
    before = list(net.state_dict())
    supply_masks(net, batch=2, size=8)
    assert list(net.state_dict()) == before


@pytest.mark.parametrize("training", [True, False])
def test_the_network_stays_in_its_mode_and_keeps_its_values(training: bool) -> None:
    net = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2), nn.Dropout(0.5)).train(training)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    supply_masks(net, batch=2, size=8)
    assert all(module.training is training for module in net.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert not net[2]._forward_pre_hooks


class Twice(nn.Module):
    """Calls a dropout twice, and twice a module that calls the function."""

    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(x, 0.25, self.training)

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3, stride=2), nn.Linear(4, 3)
        self.drop, self.inner = nn.Dropout(0.5), Twice.Inner()

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(self.drop(self.conv(x)))
        logits: Tensor = self.fc(self.inner(self.drop(x.mean((2, 3)))))
        return logits


def test_each_call_has_a_mask_of_its_own(tmp_path: Path) -> None:
    net = Twice()
    specs = supply_masks(net, batch=2, size=9)
    assert {spec.name: spec.shape for spec in specs} == {
        "drop.calls.0.mask": (2, 4, 4, 4),
        "drop.calls.1.mask": (2, 4),
        "inner.supplied_dropouts.calls.0.mask": (2, 4, 4, 4),
        "inner.supplied_dropouts.calls.1.mask": (2, 4),
    }
    assert supply_masks(net, batch=2, size=9) == specs
    x = torch.randn(2, 3, 9, 9)
    masks = {spec.name: net.get_buffer(spec.name).uniform_() for spec in specs}
    first, second = masks["drop.calls.0.mask"], masks["drop.calls.1.mask"]
    inner = "inner.supplied_dropouts.calls"
    maps = net.conv(x) * first * masks[f"{inner}.0.mask"]
    expected = net.fc(maps.mean((2, 3)) * second * masks[f"{inner}.1.mask"])
    for _ in range(2):
        torch.testing.assert_close(net.train()(x), expected)
        torch.testing.assert_close(net.eval()(x), net.fc(net.conv(x).mean((2, 3))))
    compile(adapt(Twice(), FullFineTune()), tmp_path / "kit", batch=2, size=16)


class Strict(nn.Module):
    """Takes images of 8 pixels alone, and says nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[-1] == 8
        return self.drop(x)


def test_images_that_a_network_does_not_take() -> None:
    said = r"Strict cannot take images of shape \(2, 3, 9, 9\)"
    with pytest.raises(PocketuneError, match=said):
        supply_masks(Strict(), batch=2, size=9)


class Switched(nn.Module):
    """Drops by a flag of its own, and by calls that depend on the mode."""

    def __init__(self, on: bool) -> None:
        super().__init__()
        self.on, self.conv, self.fc = on, nn.Conv2d(3, 4, 3, stride=2), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(self.conv(x).mean((2, 3)), 0.5, self.training and self.on)
        if self.training:
            x = F.dropout(x, 0.25)
        logits: Tensor = self.fc(F.dropout(x, 0.3, training=False))
        return logits


@pytest.mark.parametrize(("on", "keeps"), [(True, [0.5, 0.75]), (False, [0.75])])
def test_calls_that_drop_nothing_in_training_get_no_mask(
    on: bool, keeps: list[float], tmp_path: Path
) -> None:
    net = Switched(on)
    assert [spec.keep for spec in supply_masks(net, batch=2, size=9)] == keeps
    net.train()(torch.randn(2, 3, 9, 9))
    net.eval()(torch.randn(2, 3, 9, 9))
    compile(adapt(Switched(on), FullFineTune()), tmp_path / "kit", batch=2, size=16)


def test_a_second_time_gives_masks_of_the_new_shape() -> None:
    net = network()
    supply_masks(net, batch=2, size=8)
    specs = supply_masks(net, batch=3, size=8)
    assert [spec.shape for spec in specs] == [(3, 4, 4, 4), (3, 4)]
    assert [spec.keep for spec in specs] == [0.75, 0.5]
    net.train()(torch.randn(3, 3, 8, 8))


@pytest.mark.parametrize(
    "layer",
    [nn.AlphaDropout(), nn.FeatureAlphaDropout(), nn.Dropout3d(), nn.RReLU()],
    ids=lambda layer: type(layer).__name__,
)
def test_other_layers_that_draw_are_refused(layer: nn.Module) -> None:
    said = r"module '1': aten\.\w+.\w+ draws random numbers, .*; use nn\.Dropout or .* rate of"
    with pytest.raises(PocketuneError, match=said):
        refuse_random_numbers(nn.Sequential(nn.Conv2d(3, 4, 3), layer), batch=2, size=8)


class DrawsInVain(nn.Module):
    """Reads nothing of what it draws."""

    def forward(self, x: Tensor) -> Tensor:
        torch.rand(1)
        return x


def test_random_numbers_that_nothing_reads_are_no_part_of_a_step(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 8), DrawsInVain(), nn.Flatten(), nn.Linear(4, 2))
    compile(adapt(net, FullFineTune()), tmp_path / "kit", batch=2, size=8)


class HalfDropped(nn.Dropout):
    """A dropout with a forward pass of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, :1], super().forward(x[:, 1:])], 1)


class HalfOfMaps(nn.Dropout2d):
    """The same of whole maps."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, :1], super().forward(x[:, 1:])], 1)


class HalfByFunction(nn.Module):
    """The same by a call of the function."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, :1], F.dropout2d(x[:, 1:], self.rate, self.training)], 1)


@pytest.mark.parametrize(
    ("kind", "maps"), [(HalfDropped, (3, 3)), (HalfOfMaps, (1, 1)), (HalfByFunction, (1, 1))]
)
def test_a_dropout_with_a_forward_pass_of_its_own_keeps_it(
    kind: Callable[[float], nn.Module], maps: tuple[int, int]
) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 6), kind(0.5))
    (spec,) = supply_masks(net, batch=2, size=8)
    assert spec == MaskSpec("1.supplied_dropouts.calls.0.mask", (2, 3, *maps), 0.5)
    assert supply_masks(net, batch=2, size=8) == (spec,)
    net.get_buffer(spec.name).zero_()
    images = torch.randn(2, 3, 8, 8)
    expected = net[0](images)
    expected[:, 1:] = 0
    torch.testing.assert_close(net.train()(images), expected)


def test_dropout_that_nothing_calls_is_left_alone() -> None:
    net = network()
    net.unused = nn.Dropout(0.5)
    net.forward = lambda x: net[0](x)  # type: ignore[method-assign]
    assert supply_masks(net, batch=2, size=8) == ()


def test_a_registered_network() -> None:
    net = create_network("mobilenet_v2", classes=5, width=0.35)
    assert supply_masks(net, batch=4, size=64) == (MaskSpec("classifier.0.mask", (4, 1280), 0.8),)
    assert repr(net.classifier[0]) == "SuppliedDropout(keep=0.8, shape=(4, 1280))"


def test_a_dropout_that_drops_everything_is_refused() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(1.0))
    with pytest.raises(PocketuneError, match=r"dropout 1 drops everything \(p=1\); give it a rate"):
        supply_masks(net, batch=2, size=8)
    assert supply_masks(net.requires_grad_(False), batch=2, size=8) == ()


def test_a_dropout_at_two_paths_has_a_mask_at_each() -> None:
    drop = nn.Dropout(0.5)
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2), drop, nn.Flatten(), nn.Linear(36, 2), drop)
    specs = supply_masks(net, batch=2, size=8)
    assert specs == (MaskSpec("1.mask", (2, 4, 3, 3), 0.5), MaskSpec("4.mask", (2, 2), 0.5))


def test_a_dropout_in_a_block_at_two_paths_has_a_mask_for_each_call() -> None:
    block = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Dropout(0.5))
    specs = supply_masks(nn.Sequential(block, block), batch=2, size=8)
    assert [spec.name for spec in specs] == ["0.1.calls.0.mask", "0.1.calls.1.mask"]
