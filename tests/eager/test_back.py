"""A run comes back into PyTorch, as docs/kit.md says."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import pocketune
from pocketune.data import load_splits, sample
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.use.model import Model
from pocketune.kit import Kit
from pocketune.methods import Method
from pocketune.networks import normalize

from ..device.softmax_engine import CLASSES, write_photos

SIZE = 32


@pytest.mark.parametrize(
    "method",
    [pocketune.MobileTL(blocks=1), pocketune.LoRA(rank=2), pocketune.TinyTL()],
    ids=lambda method: method.name,
)
def test_a_run_in_pytorch(method: Method, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = pocketune.create_network(
        "mobilenet_v2", width=0.35, classes=len(CLASSES), first_blocks=6
    )
    adapted = pocketune.adapt(network, method)
    kit = pocketune.compile(adapted, tmp_path / "kit", batch=4, size=SIZE)
    photos = write_photos(tmp_path / "photos")
    # a classifier that is computed from random features is steep, and rounding shows
    options = {"epochs": 2, "lr": 0.01, "head_start": "random"}
    run = pocketune.train(kit.path, photos, tmp_path / "run", **options).run

    found = adapted.load_state_dict(load_file(run / "best.safetensors"), strict=False)
    assert not found.unexpected_keys

    (batch,) = sample(load_splits(photos).train, size=SIZE, count=6)
    with torch.no_grad():
        expected = adapted.eval()(normalize(adapted, batch.images))
    opened = Kit.open(run)
    logits = OnnxEngine(opened, Model.of(opened).state).predict(batch.images)
    torch.testing.assert_close(torch.tensor(logits), expected, rtol=1e-3, atol=1e-4)
