"""MobileTL compiled and eager train to the same values, h-swish and batch norm included."""

import numpy as np
import pytest

from pocketune.compiler import compile
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.train.optimizer import SGD
from pocketune.eager.engine import TorchEngine
from pocketune.methods import MobileTL, SignedBackward, TopBlocks, adapt

from .settled import BATCH, SIZE, batch, settled

STEPS = 20
TOLERANCE = 1e-3


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("mobilenet_v2", MobileTL(blocks=2)),
        ("mobilenet_v3_small", MobileTL(blocks=2)),
        (
            "mobilenet_v3_small",
            MobileTL(blocks=2, squeeze_excite=False, norm="all"),
        ),
        ("resnet18", MobileTL(blocks=1)),
        ("proxylessnas_mobile", TopBlocks(blocks=2) + SignedBackward()),
    ],
    ids=str,
)
def test_the_same_losses_for_twenty_steps(name, method, tmp_path):
    adapted = adapt(settled(name), method, frozen_bits=32)
    kit = compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)
    engines = [
        OnnxEngine(kit, kit.state()),
        TorchEngine(adapted, batch=BATCH, size=SIZE, task=kit.manifest.task),
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
