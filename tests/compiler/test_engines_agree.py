"""ONNX Runtime and PyTorch train the same network to the same values."""

import numpy as np
import pytest
import torch
from torch import nn

from pocketune.compiler import compile
from pocketune.compiler.torch_engine import TorchEngine
from pocketune.compiler.trace import normalize
from pocketune.device.onnx_engine import OnnxEngine
from pocketune.device.optimizer import create_optimizer
from pocketune.methods import LastLayer, TopBlocks, adapt
from pocketune.networks import create_network

BATCH, SIZE, CLASSES, STEPS = 8, 64, 4, 50
TOLERANCE = 1e-3


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (BATCH, SIZE, SIZE, 3) whose brightest channel or half tells their class."""
    rng = np.random.default_rng([7, 100 + step])
    labels = rng.integers(0, CLASSES, BATCH)
    images = rng.integers(0, 156, (BATCH, SIZE, SIZE, 3), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[:, (label // 2) * SIZE // 2 :, label % 2] += 99
    return images, labels


@pytest.fixture(scope="module")
def network() -> nn.Module:
    """Random weights whose norms know their inputs, as a pretrained network's do.

    Without that, signals vanish on the way, the first gradients are in the tens, and any two
    orders of addition train to different networks.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = create_network("mobilenet_v2", width=0.1, classes=CLASSES)
    images = torch.from_numpy(np.concatenate([batch(-step)[0] for step in range(1, 9)]))
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0  # take the batch's statistics as they are
    with torch.no_grad():
        network.train()(normalize(images, network.normalization.mean, network.normalization.std))
    for norm in norms:
        norm.momentum = 0.1
    return network


@pytest.mark.parametrize(
    ("method", "optimizer", "lr"),
    [
        (TopBlocks(blocks=2), "adam", 1e-4),
        (LastLayer(), "sgd", 1e-2),
    ],
    ids=str,
)
def test_the_same_results_after_fifty_steps(network, method, optimizer, lr, tmp_path):
    adapted = adapt(network, method)
    kit = compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE, label_smoothing=0.1)
    assert kit.manifest.noise  # dropout takes part
    engines = [
        OnnxEngine(kit, kit.state()),
        TorchEngine(adapted, batch=BATCH, size=SIZE, label_smoothing=0.1),
    ]
    losses = [train(engine, optimizer, lr) for engine in engines]
    np.testing.assert_allclose(losses[0], losses[1], rtol=TOLERANCE)
    assert np.mean(losses[0][-4:]) < 0.9 * np.mean(losses[0][:4])  # there was something to learn
    # Biases in front of a norm on batch statistics have gradients of rounding errors alone, so
    # what they come to is no result; what the network says is.
    images, _ = batch(STEPS)
    logits = [engine.predict(images) for engine in engines]
    largest = float(np.abs(logits[1]).max())
    np.testing.assert_allclose(logits[0], logits[1], rtol=0, atol=TOLERANCE * max(1.0, largest))
    weights = [engine.parameters["classifier.1.weight"] for engine in engines]
    moved = np.abs(weights[1] - kit.state()["classifier.1.weight"]).max()
    np.testing.assert_allclose(weights[0], weights[1], rtol=0, atol=0.02 * moved)


def train(engine, optimizer: str, lr: float) -> list[float]:
    """The loss of each step."""
    update = create_optimizer(optimizer, engine.parameters, momentum=0.9, weight_decay=1e-4)
    losses = []
    for step in range(STEPS):
        result = engine.gradients(*batch(step % 4), np.random.default_rng([0, step]))
        update.step(result.values, lr=lr, scale=1.0)
        losses.append(result.loss)
    return losses
