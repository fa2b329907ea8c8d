"""Parameter, multiply-accumulate and element counts of the architectures, to the unit."""

from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

from pocketune.networks import anatomy
from pocketune.networks.architectures.parts import SqueezeExcite

from .meta import on_meta

PARAMETERS = {  # name, width, classes
    ("proxylessnas_mobile", 1.0, 1000): 4_080_512,
    ("proxylessnas_mobile", 1.0, 102): 2_930_174,
    ("proxylessnas_mobile", 1.0, 100): 2_927_612,
    ("proxylessnas_mobile", 1.0, 10): 2_812_322,
    ("mobilenet_v3_small", 1.0, 10): 1_528_106,
    ("mobilenet_v3_small", 1.0, 100): 1_620_356,
    ("mobilenet_v3_small", 1.0, 1000): 2_542_856,
    ("mobilenet_v3_large", 1.0, 1000): 5_483_032,
    ("mobilenet_v2", 1.0, 102): 2_354_534,
    ("mobilenet_v2", 1.0, 1000): 3_504_872,
    ("mobilenet_v2", 1.4, 102): 4_498_662,
    ("mcunet_5fps", 1.0, 1000): 636_232,
    ("resnet18", 1.0, 1000): 11_689_512,
    ("resnet34", 1.0, 1000): 21_797_672,
    ("resnet50", 1.0, 1000): 25_557_032,
    ("resnet50", 1.0, 102): 23_717_030,
    ("resnet101", 1.0, 1000): 44_549_160,
    ("resnet18_v1c", 1.0, 1000): 11_708_744,
    ("efficientnet_b0", 1.0, 1000): 5_288_548,
    ("efficientnet_v2_s", 1.0, 1000): 21_458_488,
    ("efficientnet_lite0", 1.0, 1000): 4_652_008,
    ("mobilenet_v4_small", 1.0, 1000): 3_774_024,
    ("convnext_atto", 1.0, 1000): 3_695_520,
    ("vit_tiny", 1.0, 1000): 5_717_416,
    ("deit_tiny", 1.0, 1000): 5_717_416,
    ("mobilevit_xxs", 1.0, 1000): 1_272_024,
    ("repvit_m0_9", 1.0, 1000): 5_489_328,
    ("fastvit_t8", 1.0, 1000): 4_026_232,
}

PROXYLESS_BLOCKS = (
    [896, 3_760, 7_456, 12_080, 11_240, 13_160, 13_160, 41_680]
    + [45_520] * 3
    + [98_592]
    + [63_840] * 3
    + [196_800, 503_808, 252_096, 252_096, 651_520]
)


@dataclass
class Counts:
    """Elements that passed one kind of layer for one image, and multiply-accumulates."""

    macs: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)

    def macs_of(self, network: nn.Module, kind: type[nn.Module]) -> int:
        modules = dict(network.named_modules())
        return sum(count for name, count in self.macs.items() if isinstance(modules[name], kind))

    def inputs_of(self, network: nn.Module, kind: type[nn.Module]) -> int:
        modules = dict(network.named_modules())
        return sum(count for name, count in self.inputs.items() if isinstance(modules[name], kind))


def macs(module: nn.Module, output: torch.Tensor) -> int:
    if isinstance(module, nn.Conv2d | nn.Linear):
        return output.numel() * module.weight[0].numel()
    return 0


def count(network: nn.Module, size: int = 224) -> Counts:
    """Run one image on the meta device, where shapes are everything."""
    counts = Counts()

    def watch(name):
        def hook(module, inputs, output):
            counts.macs[name] = macs(module, output)
            counts.inputs[name] = inputs[0].numel()
            counts.outputs[name] = output.numel()

        return hook

    for name, module in network.named_modules():
        module.register_forward_hook(watch(name))
    network.eval()(torch.empty(1, 3, size, size, device="meta"))
    return counts


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("name", "width", "classes"), PARAMETERS)
def test_parameters(name, width, classes):
    network = on_meta(name, width=width, classes=classes)
    assert parameters(network) == PARAMETERS[name, width, classes]


@pytest.fixture(scope="module")
def proxyless():
    network = on_meta("proxylessnas_mobile")
    return network, count(network)


@pytest.fixture(scope="module")
def small():
    network = on_meta("mobilenet_v3_small", classes=100)
    return network, count(network)


class TestProxyless:
    def test_blocks(self, proxyless):
        network, _ = proxyless
        blocks = anatomy(network).blocks
        assert [parameters(network.get_submodule(b.name)) for b in blocks] == PROXYLESS_BLOCKS
        assert parameters(network.features[-1]) == 412_160

    def test_macs(self, proxyless):
        network, counts = proxyless
        stem = anatomy(network).stem[0].conv
        depthwise = [layer.conv for layer in anatomy(network).layers if layer.role == "depthwise"]
        assert sum(counts.macs.values()) == 320_427_584
        assert counts.macs_of(network, nn.Conv2d) == 319_147_584
        assert sum(counts.macs[name] for name in depthwise) == 41_423_424
        assert counts.macs[stem] == 10_838_016

    def test_weights(self, proxyless):
        network, _ = proxyless
        convs = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
        assert sum(conv.weight.numel() for conv in convs) == 2_765_016
        assert sum(conv.weight.numel() for conv in convs if conv.groups > 1) == 275_064
        norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
        assert sum(norm.num_features for norm in norms) == 17_248
        assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-3, 0.1)}

    def test_elements(self, proxyless):
        network, counts = proxyless
        assert counts.inputs_of(network, nn.Conv2d) == 5_491_136
        assert counts.inputs_of(network, nn.BatchNorm2d) == 5_403_328
        assert counts.inputs_of(network, nn.ReLU6) == 4_685_184
        residual = [block.name for block in anatomy(network).blocks if block.residual]
        assert sum(counts.inputs[name] for name in residual) == 326_144

    def test_largest_convolution(self, proxyless):
        network, counts = proxyless
        convs = [layer.conv for layer in anatomy(network).layers]
        largest = max(counts.inputs[name] + counts.outputs[name] for name in convs)
        expand = anatomy(network).blocks[1].layer("expand").conv
        assert largest == counts.inputs[expand] + counts.outputs[expand]
        assert 4 * largest == 3_211_264


class TestMobileNetV3Small:
    def test_macs(self, small):
        network, counts = small
        convs = {layer.conv for layer in anatomy(network).layers}
        assert sum(counts.macs[name] for name in convs) == 54_437_824
        squeeze_excite = counts.macs_of(network, nn.Conv2d) - 54_437_824
        assert squeeze_excite == 458_752
        assert counts.macs_of(network, nn.Linear) == 576 * 1024 + 1024 * 100

    def test_elements(self, small):
        network, counts = small
        outside = {name: n for name, n in counts.inputs.items() if ".fc" not in name}
        blocks = anatomy(network).blocks
        gates = {f"{block.squeeze_excite}.activation" for block in blocks}
        modules = dict(network.named_modules())

        def elements(kind):
            chosen = outside.keys() - gates
            return sum(outside[name] for name in chosen if isinstance(modules[name], kind))

        assert elements(nn.BatchNorm2d) == 1_412_768
        assert elements(nn.ReLU) == 470_400
        assert elements(nn.Hardswish) == 798_112 + 1_024
        assert elements(SqueezeExcite) == 285_376
        residual = [block.name for block in blocks if block.residual]
        assert sum(counts.inputs[name] for name in residual) == 53_312

    def test_norms(self, small):
        network, _ = small
        norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
        assert sum(norm.num_features for norm in norms) == 6_056
        assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-3, 0.01)}


def test_mcunet_macs():
    network = on_meta("mcunet_5fps")
    assert count(network).macs_of(network, nn.Conv2d) == 68_763_856


def test_public_widths():
    """Folded, each norm's four vectors become one bias, as the public files count."""
    folded = {
        ("mobilenet_v2", 0.35, False): 357_448,
        ("proxylessnas_mobile", 0.3, False): 423_232,
        ("mcunet_5fps", 1.0, True): 630_224,
        ("mobilenet_v2", 1.0, True): 3_487_816,
    }
    for (name, width, fusion), expected in folded.items():
        network = on_meta(name, width=width, feature_fusion=fusion)
        norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
        assert parameters(network) - sum(norm.num_features for norm in norms) == expected
