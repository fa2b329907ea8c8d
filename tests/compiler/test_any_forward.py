"""Forward passes as users write them: compiled, or refused in a sentence."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.compiler import Calibration, compile
from pocketune.errors import PocketuneError
from pocketune.methods import FullFineTune, LastLayer, adapt

from .networks import BATCH, CLASSES, SIZE, tiny


class Told(nn.Module):
    """A tiny network whose forward pass is a function of the test."""

    def __init__(self, forward: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4))
        self.fc = nn.Linear(4, CLASSES)
        self._told = forward

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self._told(self, self.stem(x)).mean((2, 3)))
        return logits


def _asserts(_: nn.Module, x: Tensor) -> Tensor:
    assert x.shape[-1] == 112, "images of 224 pixels only"
    return x


def _draws(network: nn.Module, x: Tensor) -> Tensor:
    return x * 2 if network.training and random.random() < 0.5 else x


def _draws_with_numpy(network: nn.Module, x: Tensor) -> Tensor:
    return x * float(np.random.rand()) if network.training else x  # noqa: NPY002


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        (_asserts, "images of 224 pixels only"),
        (lambda _, x: {}["a"], "raises KeyError: 'a'"),
        (_draws, "draws random numbers from Python or numpy in its forward pass"),
        (_draws_with_numpy, "draws random numbers from Python or numpy in its forward pass"),
    ],
)
def test_forward_passes_that_cannot_be_compiled(
    forward: Callable[[nn.Module, Tensor], Tensor], said: str, tmp_path: Path
) -> None:
    with pytest.raises(PocketuneError, match=said):
        compile(adapt(Told(forward), FullFineTune()), tmp_path / "kit", batch=BATCH, size=SIZE)


class Viewed(nn.Module):
    """Views its maps as vectors, as LeNet does."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Linear(4 * 64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.conv(x).view(len(x), -1))
        return logits


def test_maps_can_be_viewed_as_vectors(tmp_path: Path) -> None:
    compile(adapt(Viewed(), FullFineTune()), tmp_path / "kit", batch=BATCH, size=16)


class KeepsNorm(Told):
    """Its norm is always in evaluation."""

    def train(self, mode: bool = True) -> "KeepsNorm":
        super().train(mode)
        self.stem[1].eval()
        return self


def test_a_norm_that_stays_in_evaluation_has_no_statistics(tmp_path: Path) -> None:
    adapted = adapt(KeepsNorm(lambda _, x: x), FullFineTune())
    kit = compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)
    assert not kit.manifest.statistics
    assert "stem.1.weight" in {spec.name for spec in kit.manifest.parameters}


def test_an_instance_norm_of_a_single_image(tmp_path: Path) -> None:
    """PyTorch's own gradient is wrong here: that of a group norm is compared."""

    def normed(network: nn.Module, x: Tensor) -> Tensor:
        y: Tensor = network.last(network.norm(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return y

    network = Told(normed)
    network.norm, network.last = nn.InstanceNorm2d(4, affine=True), nn.LayerNorm(4)
    with pytest.warns(UserWarning, match="batch"):
        compile(adapt(network, FullFineTune()), tmp_path / "kit", batch=1, size=SIZE)


class Cosine(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(functional.normalize(x))


def test_an_output_layer_with_a_forward_pass_of_its_own_has_no_embeddings(tmp_path: Path) -> None:
    network = Told(lambda _, x: x)
    network.fc = Cosine(4, CLASSES)
    kit = compile(adapt(network, LastLayer()), tmp_path / "kit", batch=BATCH, size=SIZE)
    assert kit.manifest.embeddings is None


def test_an_output_layer_that_reads_its_bias_gets_one(tmp_path: Path) -> None:
    network = Told(lambda _, x: x)
    network.fc = Cosine(4, CLASSES, bias=False)
    adapted = adapt(network, LastLayer())
    compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)
    assert torch.equal(adapted.fc.bias, torch.zeros(CLASSES))


def test_an_output_layer_that_reads_no_bias_gets_none(tmp_path: Path) -> None:
    class Angles(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return functional.linear(functional.normalize(x), functional.normalize(self.weight))

    network = Told(lambda _, x: x)
    network.fc = Angles(4, CLASSES, bias=False)
    adapted = adapt(network, LastLayer())
    assert adapted.fc.bias is None
    with pytest.raises(PocketuneError, match="output layer fc must be linear with a bias"):
        compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)


def test_names_that_a_graph_has_are_refused(tmp_path: Path) -> None:
    network = Told(lambda network, x: x + network.embeddings)
    network.embeddings = nn.Parameter(torch.zeros(()))
    with pytest.raises(PocketuneError, match="a tensor named embeddings, as has a kit's graph"):
        compile(adapt(network, FullFineTune()), tmp_path / "kit", batch=BATCH, size=SIZE)


def test_gradients_are_recorded_whatever_the_context(tmp_path: Path) -> None:
    adapted = adapt(tiny(), LastLayer())
    with torch.no_grad():
        compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)


def test_calibration_of_32_bits_is_refused(tmp_path: Path) -> None:
    images = np.zeros((2, SIZE, SIZE, 3), np.uint8)
    with pytest.raises(PocketuneError, match="give frozen_bits=8, or leave it out"):
        compile(
            adapt(tiny(), LastLayer(), frozen_bits=32),
            tmp_path / "kit",
            batch=BATCH,
            size=SIZE,
            calibration=Calibration(images),
        )


def test_sizes_beyond_any_memory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="larger than any memory"):
        compile(adapt(tiny(), LastLayer()), tmp_path / "kit", batch=10**9, size=SIZE)


def test_a_norm_that_no_score_depends_on_keeps_its_statistics(tmp_path: Path) -> None:
    class Beside(nn.Module):
        """Computes maps that nothing reads, as the last stages of a backbone of features."""

        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(4, affine=False)

        def forward(self, x: Tensor) -> Tensor:
            self.norm(x)
            return x

    network = tiny()
    network.pool = nn.Sequential(Beside(), network.pool)
    kit = compile(adapt(network, FullFineTune()), tmp_path / "kit", batch=BATCH, size=SIZE)
    names = {spec.name for spec in kit.manifest.statistics}
    assert "stem.1.running_mean" in names
    assert "pool.0.norm.running_mean" not in names
