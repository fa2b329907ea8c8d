"""The method in docs/methods.md, which is not in the package, is adapted, summed and compiled."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pocketune.compiler import compile
from pocketune.methods import BiasAndLast, Method, adapt, create_method, registry
from pocketune.networks import anatomy

from ..compiler.networks import BATCH, SIZE, tiny

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the first block of Python on the page defines."""
    monkeypatch.setattr(registry, "_methods", {**registry._methods})
    names: dict[str, Any] = {"__name__": "own"}
    found = re.search(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M)
    assert found is not None
    exec(found[1], names)
    return names


def test_its_layers_let_a_tenth_of_the_gradient_through(own: dict[str, Any]) -> None:
    x = torch.tensor([-2.0, 3.0], requires_grad=True)
    made = own["LeakyBackward"]()(x)
    made.sum().backward()
    assert made.tolist() == [0, 3]
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([0.1, 1]))


def test_it_is_a_method_like_the_others(own: dict[str, Any], tmp_path: Path) -> None:
    method = create_method("leaky", blocks=1)
    assert method == own["Leaky"](1)
    network = adapt(tiny(), method + BiasAndLast())
    replaced = [name for name, m in network.named_modules() if isinstance(m, own["LeakyBackward"])]
    inside = [layer.activation for layer in anatomy(tiny()).blocks[-1].layers if layer.activation]
    assert replaced == inside
    kit = compile(adapt(tiny(), method), tmp_path / "kit", batch=BATCH, size=SIZE)
    assert kit.manifest.method == {"name": "leaky", "blocks": 1}


def test_one_without_a_name_cannot_be_recorded(own: dict[str, Any], tmp_path: Path) -> None:
    class Unnamed(own["Leaky"]):  # type: ignore[misc]
        pass

    network: nn.Module = adapt(tiny(), Unnamed(1))
    with pytest.raises(Exception, match=r'decorate it with @register_method\("unnamed"\)'):
        compile(network, tmp_path / "kit", batch=BATCH, size=SIZE)
    assert issubclass(Unnamed, Method)
