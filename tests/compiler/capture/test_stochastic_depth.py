"""Dropout of whole images, as other packages have it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pocketune.compiler import compile
from pocketune.compiler.capture.dropout import refuse_random_numbers, supply_masks
from pocketune.errors import PocketuneError
from pocketune.kit.manifest import MaskSpec
from pocketune.methods import FullFineTune, adapt


class DropPath(nn.Module):
    """As timm's."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob
        self.scale_by_keep = True

    def forward(self, x: Tensor) -> Tensor:
        if self.drop_prob == 0 or not self.training:
            return x
        kept = torch.rand(len(x), *(1,) * (x.dim() - 1)) < 1 - self.drop_prob
        return x * kept / (1 - self.drop_prob)


class SwinDropPath(DropPath):
    """As Hugging Face's."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__(drop_prob)
        del self.scale_by_keep


class StochasticDepth(nn.Module):
    """As torchvision's."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, x: Tensor) -> Tensor:
        shape = len(x) if self.mode == "row" else 1, *(1,) * (x.dim() - 1)
        return x * (torch.rand(shape) > self.p) / (1 - self.p) if self.training else x


def test_stochastic_depth_drops_whole_images() -> None:
    others = StochasticDepth(0.5, "row"), DropPath(0), SwinDropPath(0)
    net = nn.Sequential(nn.Conv2d(3, 3, 1), SwinDropPath(0.25), *others)
    expected = (MaskSpec("1.mask", (6, 1, 1, 1), 0.75), MaskSpec("2.mask", (6, 1, 1, 1), 0.5))
    assert supply_masks(net, batch=6, size=8) == expected
    assert supply_masks(net, batch=6, size=8) == expected
    images = torch.randn(6, 3, 8, 8)
    net[1].mask.copy_(torch.tensor([0, 1 / 0.75] * 3).view(6, 1, 1, 1))
    torch.testing.assert_close(net[:3].train()(images), net[0](images) * net[1].mask)
    net = nn.Sequential(nn.Conv2d(3, 3, 1), DropPath(0.25))
    assert supply_masks(net, batch=6, size=8) == expected[:1]


class ScaledInEvaluation(DropPath):
    """As the first ones were."""

    def forward(self, x: Tensor) -> Tensor:
        kept = torch.rand(len(x), *(1,) * (x.dim() - 1)) < 1 - self.drop_prob
        return x * kept if self.training else x * (1 - self.drop_prob)


class Unscaled(DropPath):
    """Whose mean becomes smaller, although its `scale_by_keep` is True."""

    def forward(self, x: Tensor) -> Tensor:
        kept = torch.rand(len(x), *(1,) * (x.dim() - 1)) < 1 - self.drop_prob
        return x * kept if self.training else x


class OfTheBatch(DropPath):
    """All images or none."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rand(()) > self.drop_prob) / (1 - self.drop_prob) if self.training else x


@pytest.mark.parametrize("kind", [ScaledInEvaluation, Unscaled, OfTheBatch])
def test_what_is_only_called_stochastic_depth_is_refused(
    kind: type[DropPath], tmp_path: Path
) -> None:
    kind = type("DropPath", (kind,), {})
    net = nn.Sequential(nn.Conv2d(3, 4, 8), kind(0.1), nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(PocketuneError, match=r"module '1': aten\.\w+.\w+ draws random numbers"):
        compile(adapt(net, FullFineTune()), tmp_path / "kit", batch=2, size=8)


def test_stochastic_depth_of_a_whole_batch_is_refused() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), StochasticDepth(0.5, "batch"))
    with pytest.raises(PocketuneError, match=r"module '1': aten\.\w+.\w+ draws random numbers"):
        refuse_random_numbers(net, batch=2, size=8)
