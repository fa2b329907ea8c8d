"""Weights out of a model object that the user already has."""

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.networks import Normalization, about
from pocketune.weights import create_network

from ...networks.timm_like import MobileNetV2, MobileNetV3


def lived_in(model):
    """Give every norm statistics and scales that nothing has by accident."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1, 0.1)
            nn.init.normal_(module.bias, 0, 0.1)
            nn.init.normal_(module.running_mean, 0, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return model.eval()


def assert_same(network, model, size=32):
    images = torch.randn(2, 3, size, size)
    expected = model(images)
    close = expected.abs().max().item() * 1e-5
    torch.testing.assert_close(network.eval()(images), expected, rtol=0, atol=close)


def test_by_name():
    model = lived_in(create_network("resnet18", classes=3))
    assert_same(create_network("resnet18", classes=3, weights=model), model)


@pytest.mark.parametrize(
    ("name", "kind"), [("mobilenet_v2", MobileNetV2), ("mobilenet_v3_small", MobileNetV3)]
)
def test_by_order(name, kind):
    """Other names, the same layers; also where the hidden linear layer is a convolution."""
    model = lived_in(kind(classes=4))
    network = create_network(name, classes=4, weights=model)
    if name == "mobilenet_v3_small":
        for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
            assert norm.eps == 1e-5  # ours has 1e-3 and must come out the same all the same
    assert_same(network, model)


@pytest.mark.parametrize("eps", [1e-3, 1e-7])
def test_another_epsilon(eps):
    model = lived_in(MobileNetV2(eps=eps))
    model.bn1.running_var.zero_()  # a channel that never fires
    network = create_network("mobilenet_v2", classes=10, weights=model)
    assert network.features[0][1].eps == 1e-5
    assert_same(network, model)


def test_padding():
    model = lived_in(MobileNetV2(same=True))
    with pytest.raises(PocketuneError, match=r"conv_stem has padding .* try padding='same'"):
        create_network("mobilenet_v2", classes=10, weights=model)
    network = create_network("mobilenet_v2", classes=10, padding="same", weights=model)
    assert_same(network, model, size=33)
    assert_same(network, model, size=64)


def test_other_classes():
    model = lived_in(MobileNetV2(classes=7))
    network = create_network("mobilenet_v2", classes=3, weights=model).eval()
    images = torch.randn(1, 3, 32, 32)
    expected = model.bn2(model.conv_head(model.blocks(model.bn1(model.conv_stem(images)))))
    torch.testing.assert_close(network.features(images), expected)
    assert not network.classifier[1].bias.any()


def test_the_model_is_left_alone():
    model = lived_in(MobileNetV2())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    network = create_network("mobilenet_v2", classes=10, weights=model)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_normalization_of_timm():
    model = MobileNetV2()
    model.pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "crop_pct": 0.9}
    network = create_network("mobilenet_v2", classes=10, weights=model)
    assert about(network).normalization == Normalization.HALF
    given = Normalization((0.1, 0.2, 0.3), (1, 1, 1))
    network = create_network("mobilenet_v2", classes=10, weights=model, normalization=given)
    assert about(network).normalization == given


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"name": "mobilenet_v2", "width": 0.5},
            "conv_stem has .*32, 3, 3, 3.* where features.0.0",
        ),
        (
            {"name": "mobilenet_v2", "feature_fusion": False},
            "conv_head has .* where classifier.1 has",
        ),
        ({"name": "proxylessnas_mobile"}, r"blocks\.1\.0\.conv_pw has .* where features\.2\.conv"),
    ],
)
def test_the_first_mismatch_is_named(options, message):
    model = MobileNetV2()
    with pytest.raises(PocketuneError, match=message):
        create_network(**options, classes=10, weights=model)


def test_missing_layers():
    model = MobileNetV2()
    model.classifier = nn.Identity()
    with pytest.raises(PocketuneError, match="MobileNetV2 has 104 layers with weights and the net"):
        create_network("mobilenet_v2", weights=model)


def test_another_stride():
    model = create_network("resnet18")
    model.layer2[0].conv1.stride = (1, 1)
    with pytest.raises(PocketuneError, match=r"layer2\.0\.conv1 has stride \(1, 1\)"):
        create_network("resnet18", weights=model)
