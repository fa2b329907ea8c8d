"""The frozen part in 8-bit arithmetic, in eager PyTorch."""

import copy

import pytest
import torch
from torch import Tensor, nn

import pocketune
from pocketune.eager import calibrate, input_formats, observe_formats
from pocketune.errors import PocketuneError
from pocketune.layers import IntegerConv2d
from pocketune.methods import (
    BiasAndLast,
    FullFineTune,
    LastLayer,
    Method,
    MobileTL,
    RepNet,
    TopBlocks,
    adapt,
)
from pocketune.networks import anatomy
from pocketune.weights import create_network

SIZE = 40
NETWORKS = ["mobilenet_v2", "mobilenet_v3_small", "mcunet_5fps", "resnet18"]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def network(name: str) -> nn.Module:
    options = {} if name == "mcunet_5fps" else {"width": 0.35}
    made = create_network(name, classes=3, **options)
    made(images(16))  # norms with statistics of their own
    return made


def images(count: int = 8) -> Tensor:
    return torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(count))


def integers(network: nn.Module) -> dict[str, IntegerConv2d]:
    return {n: m for n, m in network.named_modules() if isinstance(m, IntegerConv2d)}


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_stay_close_and_what_is_trained_stays(name: str) -> None:
    adapted = adapt(network(name), MobileTL(blocks=2))
    calibrated = calibrate(adapted, images().split(4))
    top = tuple(f"{block.name}." for block in anatomy(adapted).blocks[-2:])
    found = integers(calibrated)
    below = [x.conv for x in anatomy(adapted).layers if not x.conv.startswith(top)]
    fusion = [layer.conv for layer in anatomy(adapted).feature_fusion]
    assert set(found) == set(below) - set(fusion)
    trained = {n: p for n, p in adapted.named_parameters() if p.requires_grad}
    same = {n: p for n, p in calibrated.named_parameters() if p.requires_grad}
    assert same.keys() == trained.keys()
    assert all(torch.equal(same[n], trained[n]) for n in trained)
    with torch.no_grad():
        x = images(4)
        assert relative(calibrated.eval()(x), adapted.eval()(x)) < 0.1


@pytest.mark.parametrize("name", ["mobilenet_v2", "mcunet_5fps"])
def test_maps_stay_uint8_inside_blocks(name: str) -> None:
    calibrated = calibrate(adapt(network(name), LastLayer()), images().split(4))
    for block in anatomy(create_network(name, classes=3)).blocks:
        *inner, project = (layer.conv for layer in block.layers)
        for conv in inner:
            assert calibrated.get_submodule(conv).output_format is not None
        assert calibrated.get_submodule(project).output_format is None


def test_padding_of_tensorflow_pads_with_the_maps_own_zero() -> None:
    """Behind an h-swish zero is not the lowest number."""
    plain = create_network("mobilenet_v3_small", width=0.35, classes=3, padding="same")
    plain(images(16))
    adapted = adapt(plain, LastLayer())
    calibrated = calibrate(adapted, images().split(4))
    padded = [m for m in integers(calibrated).values() if m.stride == (2, 2)]
    assert any(m.input_format.zero > 0 for m in padded)
    with torch.no_grad():
        assert relative(calibrated.eval()(images(4)), adapted.eval()(images(4))) < 0.1


@pytest.mark.parametrize("method", [MobileTL(blocks=1), BiasAndLast(), RepNet()], ids=str)
def test_training_goes_on(method: Method) -> None:
    """Gradients are those of a network with the same rounded features, so close to the exact."""
    adapted = adapt(network("mobilenet_v2"), method)
    calibrated = calibrate(adapted, images().split(4))
    gradients = []
    for each in (adapted, calibrated):
        each.train()
        torch.manual_seed(1)
        each(images(4)).square().sum().backward()
        gradients.append({n: p.grad for n, p in each.named_parameters() if p.requires_grad})
    assert gradients[0].keys() == gradients[1].keys()
    assert all(g is not None for g in gradients[1].values())
    flat = [torch.cat([g.flatten() for g in each.values()]) for each in gradients]
    assert relative(flat[1], flat[0]) < 0.5


def test_observed_formats_are_those_of_the_images() -> None:
    adapted = adapt(network("mobilenet_v2"), MobileTL(blocks=2))
    expected = calibrate(adapted, images().split(4)).eval()
    observe_formats(adapted, images().split(4))
    with torch.no_grad():
        assert torch.equal(calibrate(adapted).eval()(images(4)), expected(images(4)))
    trains_all = adapt(network("mobilenet_v2"), FullFineTune())
    observe_formats(trains_all, [])
    assert not input_formats(trains_all)


def test_every_module_keeps_its_own_training_mode() -> None:
    adapted = adapt(network("mobilenet_v2"), MobileTL(blocks=1)).train()
    adapted.features[-1].eval()
    modes = {name: module.training for name, module in adapted.named_modules()}
    observe_formats(adapted, images(2).split(2))
    assert {name: module.training for name, module in adapted.named_modules()} == modes
    calibrated = calibrate(adapted)
    found = {name: module.training for name, module in calibrated.named_modules() if name in modes}
    assert found["features.18.0"] is False
    assert all(found[name] is modes[name] for name in ("", "features.17", "classifier.0"))


def test_its_values_can_be_loaded_into_another() -> None:
    first = calibrate(adapt(network("mobilenet_v2"), LastLayer()), images().split(4)).eval()
    torch.manual_seed(1)
    other = calibrate(adapt(network("mobilenet_v2"), LastLayer()), [images(2)]).eval()
    with torch.no_grad():
        assert not torch.equal(other(images(4)), first(images(4)))
        other.load_state_dict(first.state_dict())
        assert torch.equal(other(images(4)), first(images(4)))


def test_it_can_be_copied_and_moved() -> None:
    calibrated = calibrate(adapt(network("mcunet_5fps"), LastLayer()), images().split(4)).eval()
    with torch.no_grad():
        expected = calibrated(images(4))
        assert torch.equal(copy.deepcopy(calibrated).to("cpu")(images(4)), expected)


def test_what_cannot_be_calibrated_is_refused() -> None:
    plain = network("mcunet_5fps")
    with pytest.raises(PocketuneError, match="no convolution of this network is frozen"):
        calibrate(adapt(plain, FullFineTune()), images().split(4))
    adapted = adapt(plain, TopBlocks(blocks=1))
    with pytest.raises(PocketuneError, match="calibration needs images"):
        calibrate(adapted, [])
    with pytest.raises(PocketuneError, match="calibrated already"):
        calibrate(calibrate(adapted, [images()]), [images()])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_integers_need_float32(dtype: torch.dtype) -> None:
    adapted = adapt(network("mcunet_5fps"), LastLayer()).to(dtype)
    with pytest.raises(PocketuneError, match=r"integer arithmetic computes .* network\.float\(\)"):
        calibrate(adapted, [images().to(dtype)])


def test_a_kit_is_compiled_from_the_adapted_network() -> None:
    calibrated = calibrate(adapt(network("mcunet_5fps"), LastLayer()), [images()])
    with pytest.raises(PocketuneError, match="compile the adapted one"):
        pocketune.compile(calibrated, "never", batch=2, size=SIZE)


class Fixed(nn.Module):
    """Takes images of 32 pixels only."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.b = nn.Sequential(nn.Conv2d(4, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.fc = nn.Linear(4 * 64, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.b(self.a(x)).flatten(1))
        return scores


def test_a_network_of_one_size() -> None:
    adapted = adapt(Fixed(), LastLayer())
    integers = calibrate(adapted, torch.rand(8, 3, 32, 32).split(4))
    assert any(isinstance(module, IntegerConv2d) for module in integers.modules())
