"""MobileTL compiled and eager train to the same values, h-swish and batch norm included."""

import numpy as np
import pytest
import torch
from torch import nn

from pocketune.compiler import compile
from pocketune.compiler.torch_engine import TorchEngine
from pocketune.compiler.trace import normalize
from pocketune.device.onnx_engine import OnnxEngine
from pocketune.device.optimizer import SGD
from pocketune.methods import MobileTL, SignedBackward, TopBlocks, adapt
from pocketune.networks import create_network

BATCH, SIZE, CLASSES, STEPS = 8, 64, 4, 20
TOLERANCE = 1e-3


def settled(name: str) -> nn.Module:
    """Random weights, and norms that know their inputs, as a pretrained network's do."""
    torch.manual_seed(0)
    network = create_network(name, width=0.1, classes=CLASSES)
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    momentum = norms[0].momentum
    for norm in norms:
        norm.momentum = 1.0
    images = torch.from_numpy(np.concatenate([batch(-step)[0] for step in range(1, 9)]))
    with torch.no_grad():
        network.train()(normalize(images, network.normalization.mean, network.normalization.std))
    for norm in norms:
        norm.momentum = momentum
    return network


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (BATCH, SIZE, SIZE, 3) of noise, some halves brighter, and classes to learn."""
    rng = np.random.default_rng([7, 100 + step])
    labels = rng.integers(0, CLASSES, BATCH)
    images = rng.integers(0, 156, (BATCH, SIZE, SIZE, 3), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[:, (label // 2) * SIZE // 2 :, label % 2] += 99
    return images, labels


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("mobilenet_v2", MobileTL(blocks=2, frozen_bits=32)),
        ("mobilenet_v3_small", MobileTL(blocks=2, frozen_bits=32)),
        (
            "mobilenet_v3_small",
            MobileTL(blocks=2, squeeze_excite=False, norm="all", frozen_bits=32),
        ),
        ("resnet18", MobileTL(blocks=1, frozen_bits=32)),
        ("proxylessnas_mobile", TopBlocks(blocks=2) + SignedBackward()),
    ],
    ids=str,
)
def test_the_same_losses_for_twenty_steps(name, method, tmp_path):
    adapted = adapt(settled(name), method)
    kit = compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)
    engines = [
        OnnxEngine(kit, kit.state()),
        TorchEngine(adapted, batch=BATCH, size=SIZE, label_smoothing=0.0),
    ]
    losses = [train(engine) for engine in engines]
    np.testing.assert_allclose(losses[0], losses[1], rtol=TOLERANCE)
    assert losses[0][-2] < losses[0][0]  # of the same images


def train(engine) -> list[float]:
    """The loss of each step."""
    update = SGD(engine.parameters)
    losses = []
    for step in range(STEPS):
        result = engine.gradients(*batch(step % 2), np.random.default_rng([0, step]))
        update.step(result.values, lr=0.001)
        losses.append(result.loss)
    return losses
