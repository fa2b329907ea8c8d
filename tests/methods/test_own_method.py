"""The method in docs/methods.md, which is not in the package, is adapted, summed and compiled."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pocketune.compiler import compile
from pocketune.errors import PocketuneError
from pocketune.methods import (
    BiasAndLast,
    LastLayer,
    Method,
    MethodConflict,
    Plan,
    adapt,
    create_method,
    registry,
)
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


@dataclass(frozen=True)
class Wrong(Method):
    """A method with a mistake in its plan, or in what it adds to one."""

    mistake: Callable[[nn.Module], object]

    def plan(self, network: nn.Module) -> Plan:
        return self.mistake(network)  # type: ignore[return-value]


NAMES = frozenset({"classifier.bias"})
MISTAKES: dict[str, tuple[Callable[[nn.Module], object], str]] = {
    "parameter": (
        lambda network: Plan.training(network, ["foo.weight"]),
        r"^the network has no parameter foo\.weight to train; give a name of network\.named_para",
    ),
    "norm": (
        lambda _: Plan(NAMES, frozenset({"foo"})),
        r"^the network has no batch norm foo; give a name of network\.named_modules\(\)",
    ),
    "block": (
        lambda _: Plan(NAMES, frozenset(), branches={"foo": lambda _: nn.Identity()}),
        "^the network has no block foo to add a branch to",
    ),
    "layer": (
        lambda _: Plan(NAMES, frozenset(), replaced={"foo": lambda _: nn.Identity()}),
        "^the network has no layer foo to replace",
    ),
    "nothing": (lambda _: None, r"^Wrong\.plan returned None; return a Plan"),
    "text": (
        lambda _: Plan("classifier.bias", frozenset()),
        "^trained='classifier.bias' of a plan must be a",
    ),
    "factory": (
        lambda _: Plan(NAMES, frozenset(), replaced={"stem.2": lambda _: None}),
        r"^stem\.2: the factory for this ReLU6? returned None; return the module",
    ),
    "branch": (
        lambda network: Plan(NAMES, frozenset(), branches={"blocks.0": lambda _: None}),
        "returned None; return the module",
    ),
}


@pytest.mark.parametrize("other", [None, LastLayer()], ids=str)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_a_method(mistake: str, other: Method | None) -> None:
    make, message = MISTAKES[mistake]
    method = Wrong(make)
    with pytest.raises(PocketuneError, match=message) as raised:
        adapt(tiny(), method if other is None else method + other)
    assert not isinstance(raised.value, MethodConflict)


def test_names_may_be_lists() -> None:
    plan = Plan(["classifier.bias"], [])  # type: ignore[arg-type]
    assert plan == Plan(NAMES, frozenset())
    assert [
        n for n, p in adapt(tiny(), Wrong(lambda _: plan)).named_parameters() if p.requires_grad
    ]


def test_what_finalize_returns() -> None:
    class Forgetful(Wrong):
        def finalize(self, plan: Plan, network: nn.Module) -> Plan:
            return None  # type: ignore[return-value]

    method = Forgetful(lambda _: Plan(NAMES, frozenset()))
    with pytest.raises(PocketuneError, match=r"^Forgetful\.finalize returned None; return a Plan"):
        adapt(tiny(), method)
