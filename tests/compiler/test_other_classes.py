"""Kits learn any number of classes, also where the scores pass through further operators."""

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor, nn
from torch.nn import functional

from pocketune.compiler import compile
from pocketune.compiler.check import CompileError
from pocketune.methods import FullFineTune, LastLayer, Method, adapt
from pocketune.tasks import Attributes, Task

from .networks import BATCH, SIZE


class Scored(nn.Module):
    """A convolution and an output layer, whose scores pass through a function."""

    def __init__(self, scored: Callable[[Tensor], Tensor], head: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU())
        self.head, self._scored = head, scored

    def forward(self, x: Tensor) -> Tensor:
        maps = self.stem(x)
        return self._scored(
            self.head(maps if isinstance(self.head, nn.Conv2d) else maps.mean((2, 3)))
        )


def convolution() -> nn.Module:
    return nn.Conv2d(4, 3, 1)


def linear() -> nn.Module:
    return nn.Linear(4, 3)


FINE: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[], nn.Module]]] = {
    "mean of maps": (lambda x: x.mean((2, 3)), convolution),
    "pooled maps": (lambda x: functional.adaptive_avg_pool2d(x, 1).flatten(1), convolution),
    "largest of maps": (lambda x: functional.adaptive_max_pool2d(x, 1)[..., 0, 0], convolution),
    "all pixels pooled": (
        lambda x: functional.avg_pool2d(x, x.shape[2:]).view(len(x), -1),
        convolution,
    ),
    "largest in one window": (
        lambda x: functional.max_pool2d(x, x.shape[2:]).view(len(x), -1),
        convolution,
    ),
    "largest of rows": (lambda x: x.flatten(2).max(-1).values, convolution),
    "plain": (lambda x: x, linear),
    "logarithms": (lambda x: functional.log_softmax(x, 1), linear),
    "normalized": (lambda x: 10 * functional.normalize(x), linear),
}


@pytest.mark.parametrize("method", [FullFineTune(), LastLayer()], ids=str)
@pytest.mark.parametrize("name", FINE)
def test_scores_of_any_number_of_classes(name: str, method: Method, tmp_path: Path) -> None:
    scored, head = FINE[name]
    compile(adapt(Scored(scored, head()), method), tmp_path / "kit", batch=BATCH, size=SIZE)


@pytest.mark.parametrize(
    ("scored", "task", "problem"),
    [
        (lambda x: x / (x.std(1, keepdim=True) + 0.1), None, "are off by"),
        (lambda x: x - x.mean(1, keepdim=True), Attributes(("a", "b", "c")), "are off by"),
        (lambda x: functional.layer_norm(x, x.shape[1:]), None, "a step with 4 classes fails"),
    ],
    ids=["deviation", "mean", "layer norm"],
)
def test_scores_that_depend_on_the_number_of_classes_are_refused(
    scored: Callable[[Tensor], Tensor], task: Task | None, problem: str, tmp_path: Path
) -> None:
    adapted = adapt(Scored(scored, linear()), FullFineTune())
    with pytest.raises(CompileError, match=f"depends on their number.*{problem}"):
        compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE, task=task)
    assert not list(tmp_path.iterdir())


def test_gradients_that_are_rounding_alone_are_not_compared(tmp_path: Path) -> None:
    """The norm takes off again what the convolution's bias adds, so its gradient is zero."""
    network = Scored(lambda x: 1000 * functional.log_softmax(x, 1), linear())
    compile(adapt(network, FullFineTune()), tmp_path / "kit", batch=BATCH, size=SIZE)
