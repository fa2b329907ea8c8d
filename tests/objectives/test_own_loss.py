"""The loss in docs/methods.md, which is not in the package, is differentiated and compiled."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pocketune.compiler import compile
from pocketune.methods import LastLayer, adapt
from pocketune.objectives import OBJECTIVES, objective_of
from pocketune.tasks import TASKS

from ..compiler.networks import BATCH, SIZE, tiny

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


@pytest.fixture(scope="module")
def own() -> Iterator[dict[str, Any]]:
    """What the block of Python under the heading defines."""
    names: dict[str, Any] = {"__name__": "own"}
    text = PAGE.read_text("utf-8").partition("## A loss of your own")[2]
    found = re.search(r"^```python\n(.*?)^```", text, re.S | re.M)
    assert found is not None
    try:
        exec(found[1], names)
        yield names
    finally:
        TASKS.pop("focal", None)
        OBJECTIVES.pop("focal", None)


@pytest.mark.parametrize("focus", [1.5, 2.0, 3.0])
def test_its_operator_has_the_gradient_of_its_loss(own: dict[str, Any], focus: float) -> None:
    objective = objective_of(own["Focal"](("a", "b", "c"), focus=focus))
    outputs = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0])
    loss = objective.loss(outputs, labels)
    (truth,) = torch.autograd.grad(loss, outputs)
    found, _, gradient = objective.step(outputs.detach(), labels)
    torch.testing.assert_close(found, loss.detach())
    torch.testing.assert_close(gradient, truth)


def test_a_kit_learns_by_it(own: dict[str, Any], tmp_path: Path) -> None:
    network = adapt(tiny(), LastLayer())
    names = tuple(str(number) for number in range(network.classifier.out_features))
    task = own["Focal"](names)
    kit = compile(network, tmp_path / "kit", batch=BATCH, size=SIZE, task=task)
    assert kit.manifest.task.to_dict()["focus"] == 2.0
