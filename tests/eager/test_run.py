"""Runs on PyTorch: the network is built again from the run's own folder."""

import json

import numpy as np
import pytest
import torch

from pocketune.authoring import build_kit
from pocketune.data import load_splits
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.train.interrupt import Interrupted
from pocketune.device.train.progress import Silent
from pocketune.device.train.run import resume, train
from pocketune.eager.engine import TorchEngine
from pocketune.eager.run import TorchEngines
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.kit.names import NETWORK
from pocketune.layers import IntegerConv2d, QuantizedConv2d, computes_integers
from pocketune.methods import FullFineTune, MobileTL, TopBlocks

from ..device.failing import at_call, interrupt
from ..device.runs import assert_same_end
from ..device.softmax_engine import write_photos

SIZE, BATCH = 32, 4


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Photos, and a kit with all values of its network beside it."""
    folder = tmp_path_factory.mktemp("place")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    photos = load_splits(write_photos(folder / "photos")).train
    build_kit(
        folder / "kit",
        network="resnet18",
        method=TopBlocks(blocks=1),
        width=0.1,
        size=SIZE,
        batch=BATCH,
        photos=photos,
        save_network=folder / "values.safetensors",
    )
    return folder


def run(place, out, engine, **options):
    return train(
        place / "kit",
        place / "photos",
        out=out,
        steps=9,
        seed=3,
        checkpoint_every=2,
        engine=engine,
        progress=Silent(),
        **options,
    )


class TestResumed:
    def test_a_stopped_run_ends_with_the_same_bits(self, place, tmp_path, monkeypatch):
        run(place, tmp_path / "whole", TorchEngines(network=place / "values.safetensors"))
        stopping = at_call(5, interrupt, TorchEngine.gradients)
        monkeypatch.setattr(TorchEngine, "gradients", stopping)
        with pytest.raises(Interrupted):
            run(place, tmp_path / "run", TorchEngines(network=place / "values.safetensors"))
        resume(tmp_path / "run", engine=TorchEngines(), progress=Silent())
        assert_same_end(tmp_path / "run", tmp_path / "whole")

    def test_other_classes_than_the_kits(self, place, tmp_path):
        photos = write_photos(tmp_path / "photos", classes=("a", "b", "c", "d"))
        result = train(
            place / "kit",
            photos,
            out=tmp_path / "run",
            steps=2,
            engine=TorchEngines(network=place / "values.safetensors"),
            progress=Silent(),
        )
        assert result.classes == ("a", "b", "c", "d")
        kit = Kit.open(result.run)
        state = {**kit.state(), **classifier(kit, 4)}
        assert TorchEngines()(kit, state).predict(images()).shape == (2, 4)


def classifier(kit, classes):
    shapes = kit.manifest.shapes(classes)
    return {name: np.zeros(shapes[name], np.float32) for name in kit.manifest.task.head}


def images():
    return np.random.default_rng(0).integers(0, 256, (2, SIZE, SIZE, 3), dtype=np.uint8)


def test_the_rebuilt_network_is_the_kits(place, tmp_path):
    kit = Kit.open(place / "kit").copy_to(tmp_path / "run")
    engine = TorchEngines(network=place / "values.safetensors")(kit, kit.state())
    expected = OnnxEngine(kit, kit.state()).predict(images())
    np.testing.assert_allclose(engine.predict(images()), expected, atol=1e-4)
    assert (tmp_path / "run" / NETWORK).exists()
    again = TorchEngines()(kit, kit.state())
    np.testing.assert_array_equal(again.predict(images()), engine.predict(images()))


class TestFrozenInEightBits:
    def test_computes_with_integers(self, place, tmp_path):
        photos = load_splits(place / "photos").train
        values = tmp_path / "values.safetensors"
        kit = build_kit(
            tmp_path / "kit",
            network="resnet18",
            method=MobileTL(blocks=2),
            width=0.25,
            size=SIZE,
            batch=BATCH,
            photos=photos,
            save_network=values,
        )
        assert kit.manifest.quantization.float_layers == 0
        engine = TorchEngines(network=values)(kit, kit.state())
        assert computes_integers() == bool(modules(engine, IntegerConv2d))
        expected = OnnxEngine(kit, kit.state()).predict(images())
        assert norm(engine.predict(images()) - expected) < 0.2 * norm(expected)

        again = TorchEngines()(kit, kit.state())  # from the file that the first one left
        np.testing.assert_array_equal(again.predict(images()), engine.predict(images()))

    def test_computes_in_float_where_no_photos_gave_ranges(self, tmp_path):
        values = tmp_path / "values.safetensors"
        kit = build_kit(
            tmp_path / "kit",
            network="resnet18",
            method=TopBlocks(blocks=1),
            width=0.1,
            size=SIZE,
            batch=BATCH,
            frozen_bits=8,
            save_network=values,
        )
        engine = TorchEngines(network=values)(kit, kit.state())
        assert modules(engine, QuantizedConv2d)
        assert not modules(engine, IntegerConv2d)
        expected = OnnxEngine(kit, kit.state()).predict(images())
        np.testing.assert_allclose(engine.predict(images()), expected, atol=1e-4)


def modules(engine, kind):
    return [module for module in engine._network.modules() if isinstance(module, kind)]


def norm(values):
    return np.linalg.norm(values)


def test_a_kit_alone_does_not_hold_the_frozen_part(place, tmp_path):
    kit = Kit.open(place / "kit").copy_to(tmp_path / "run")
    with pytest.raises(PocketuneError, match=r"does not hold all values .* conv1\.weight"):
        TorchEngines()(kit, kit.state())
    assert not (tmp_path / "run" / NETWORK).exists()


def test_a_kit_that_trains_everything_is_enough(tmp_path):
    kit = build_kit(
        tmp_path / "kit", network="resnet18", method=FullFineTune(), width=0.1, size=32, batch=2
    )
    engine = TorchEngines()(kit, kit.state())
    expected = OnnxEngine(kit, kit.state()).predict(images())
    np.testing.assert_allclose(engine.predict(images()), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("network", {"name": "VisionTransformer"}, "there is no network 'VisionTransformer'"),
        ("method", {"name": "custom"}, "there is no method 'custom'"),
    ],
)
def test_networks_of_others_are_refused(place, tmp_path, field, value, said):
    Kit.open(place / "kit").copy_to(tmp_path / "run")
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), field: value}))
    kit = Kit.open(tmp_path / "run")
    with pytest.raises(PocketuneError, match="cannot be rebuilt in PyTorch") as caught:
        TorchEngines(network=place / "values.safetensors")(kit, kit.state())
    assert said in str(caught.value)


def test_a_damaged_file(place, tmp_path):
    kit = Kit.open(place / "kit").copy_to(tmp_path / "run")
    (tmp_path / "run" / NETWORK).write_bytes(b"damaged")
    with pytest.raises(PocketuneError, match=r"network\.safetensors is damaged"):
        TorchEngines()(kit, kit.state())
