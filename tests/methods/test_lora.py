"""LoRA: what is trained and kept, and how the updates end in the weights."""

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

from pocketune.accounting import account
from pocketune.compiler import compile
from pocketune.device.use.export import export
from pocketune.errors import PocketuneError
from pocketune.layers import LowRank
from pocketune.methods import BiasAndLast, LoRA, adapt, trainable
from pocketune.weights import create_network, load_network, save_network

CLASSES, SIZE = 3, 32


def small() -> nn.Module:
    torch.manual_seed(0)
    return create_network("mobilenet_v2", width=0.1, classes=CLASSES)


def drawn(adapted: nn.Module) -> nn.Module:
    """With updates that change the outputs, as after training."""
    for module in adapted.modules():
        if isinstance(module, LowRank):
            nn.init.normal_(module.up.weight, std=0.1)
    return adapted


def images() -> torch.Tensor:
    return torch.randn(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


def test_what_is_trained() -> None:
    network = small()
    layers = {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1)
    }
    expected = sum(3 * (m.in_channels + m.out_channels) for m in layers.values())
    head = sum(p.numel() for p in network.classifier.parameters())
    adapted = adapt(network, LoRA(rank=3))
    assert trainable(adapted).trained == expected + head
    modules = {n for n, m in adapted.named_modules() if isinstance(m, LowRank)}
    assert modules == {f"{name}.branch" for name in layers}
    torch.testing.assert_close(adapted.eval()(images()), network.eval()(images()))


def test_a_frozen_down_keeps_no_inputs() -> None:
    whole, less = (adapt(small(), LoRA(rank=2, train_down=down)) for down in (True, False))
    assert trainable(less).trained < trainable(whole).trained
    kept = [account(each, batch=2, size=64).kept_bytes for each in (whole, less)]
    assert kept[1] < 0.4 * kept[0]


@pytest.mark.parametrize("bits", [32, 8])
def test_a_saved_network_has_the_updates_in_its_weights(bits: int, tmp_path: Path) -> None:
    adapted = drawn(adapt(small(), LoRA() + BiasAndLast(), frozen_bits=bits)).eval()
    file = tmp_path / "merged.safetensors"
    save_network(adapted, file)
    merged = load_network(file).eval()
    assert not any(isinstance(module, LowRank) for module in merged.modules())
    torch.testing.assert_close(merged(images()), adapted(images()), rtol=1e-4, atol=1e-4)


def test_an_export_has_the_updates_in_its_weights(tmp_path: Path) -> None:
    adapted = drawn(adapt(small(), LoRA(rank=2)))
    kit = compile(adapted, tmp_path / "kit", batch=2, size=SIZE)
    file = export(kit.path, tmp_path / "model.onnx")  # which compares it with the kit
    model = onnx.load(file)
    layers = [node for node in model.graph.node if node.op_type in ("Gemm", "Conv")]
    plain = [m for m in small().modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    assert len(layers) == len(plain)
    assert not any("branch" in tensor.name for tensor in model.graph.initializer)


def test_bad_options() -> None:
    with pytest.raises(PocketuneError, match="rank=0"):
        LoRA(rank=0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network.append(nn.Linear(4, 2))
    with pytest.raises(PocketuneError, match="no linear layer or 1x1"):
        adapt(network, LoRA())


def test_transposed_convolutions_get_no_update() -> None:
    layers = nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 4, 1, stride=2), nn.Conv2d(4, 4, 1)
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    adapted = adapt(network, LoRA(2))
    adapted(torch.zeros(2, 3, 8, 8))
    assert sum(isinstance(module, LowRank) for module in adapted.modules()) == 1
