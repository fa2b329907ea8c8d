"""Arguments that are not networks, or hold values that a kit cannot, are refused in a sentence."""

from typing import Any

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.networks.checks import require_network, require_values


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.register_buffer("counter", torch.zeros((), dtype=torch.int64))


@pytest.mark.parametrize("given", ["mobilenet_v2", None, Net, {}], ids=str)
def test_what_is_no_module(given: Any) -> None:
    with pytest.raises(PocketuneError, match="must be a PyTorch module, such as one of create_net"):
        require_network(given)


class OptimizedModule(Net):
    """Stands for what `torch.compile` returns, which takes seconds to import."""

    __module__ = "torch._dynamo.eval_frame"


@pytest.mark.parametrize(
    ("wrapped", "message"),
    [
        (nn.DataParallel(Net()), r"wrapped in DataParallel; give network\.module"),
        (OptimizedModule(), r"wrapped in OptimizedModule; give network\._orig_mod"),
    ],
)
def test_what_only_runs_a_network(wrapped: nn.Module, message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        require_network(wrapped)


def test_ordinary_networks_pass() -> None:
    network = Net()
    require_network(network)
    require_values(network)
    require_values(network.to("meta"))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats(kind: torch.dtype) -> None:
    message = f"^fc.weight is {str(kind)[6:]}, and a kit computes in float32; call network.float"
    with pytest.raises(PocketuneError, match=message):
        require_values(Net().to(kind))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite(value: float) -> None:
    network = Net()
    nn.init.constant_(network.fc.bias, value)
    with pytest.raises(PocketuneError, match=r"^fc\.bias holds a value that is not finite"):
        require_values(network)
