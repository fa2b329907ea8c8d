"""ONNX Runtime and PyTorch train the same network to the same values."""

import numpy as np
import pytest
import torch

from pocketune.compiler import compile
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.train.optimizer import create_optimizer
from pocketune.eager.engine import TorchEngine
from pocketune.methods import LastLayer, TopBlocks, adapt
from pocketune.tasks import Classification, numbered

from ..compiler.settled import BATCH, CLASSES, SIZE, batch, settled

STEPS = 24
TOLERANCE = 1e-3
TASK = Classification(numbered(CLASSES), label_smoothing=0.1)


@pytest.mark.parametrize(
    ("method", "optimizer", "lr"),
    [
        (TopBlocks(blocks=2), "adam", 2e-4),
        (LastLayer(), "sgd", 2e-2),
    ],
    ids=str,
)
def test_the_same_results_after_many_steps(method, optimizer, lr, tmp_path):
    torch.set_num_threads(1)
    adapted = adapt(settled("mobilenet_v2"), method)
    kit = compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE, task=TASK)
    assert kit.manifest.masks  # dropout takes part
    engines = [
        OnnxEngine(kit, kit.state()),
        TorchEngine(adapted, batch=BATCH, size=SIZE, task=kit.manifest.task),
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
    embeddings = [engine.embed(images) for engine in engines]
    assert embeddings[0].shape == (BATCH, kit.manifest.embeddings)
    largest = float(np.abs(embeddings[1]).max())
    np.testing.assert_allclose(*embeddings, rtol=0, atol=TOLERANCE * max(1.0, largest))
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
