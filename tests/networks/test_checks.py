"""Arguments that are not networks, or hold values that a kit cannot, are refused in a sentence."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pocketune
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


SPACE = pocketune.SupernetSpace(width=0.35, sizes=(64,), depths=(1,), expansions=(3,))
NETWORKS: dict[str, Callable[[Any], object]] = {
    "about": pocketune.about,
    "set_about": lambda network: pocketune.set_about(network, frozen_bits=8),
    "truncate": lambda network: pocketune.truncate(network, 3),
    "trainable": pocketune.trainable,
    "profile_memory": pocketune.profile_memory,
    "dc_ratio": pocketune.dc_ratio,
    "dc_energy": pocketune.dc_energy,
    "calibrate": lambda network: pocketune.calibrate(network, []),
    "save_network": lambda network: pocketune.save_network(network, "never.safetensors"),
    "prune": lambda network: pocketune.prune(network, {}),
    "plan_pruning": lambda network: pocketune.plan_pruning(network, "1MB"),
    "prune_for_memory": lambda network: pocketune.prune_for_memory(network, "1MB"),
    "from_network": pocketune.Supernet.from_network,
}


@pytest.mark.parametrize("given", [3, None, torch.zeros(3)], ids=["number", "none", "tensor"])
@pytest.mark.parametrize("function", NETWORKS)
def test_every_function_that_takes_a_network(function: str, given: object) -> None:
    with pytest.raises(PocketuneError, match=r"^network=.* must be a PyTorch module"):
        NETWORKS[function](given)


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_scripts_are_refused() -> None:
    script = torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 3)))
    with pytest.raises(PocketuneError, match=r"TorchScript module, .*; give the module that was"):
        pocketune.adapt(script, pocketune.LastLayer())


@pytest.mark.parametrize(
    ("ratios", "message"),
    [
        ([0.5], r"^ratios is of type list; give a ratio for each block, as in \{'features\.2': 0"),
        (None, "^ratios is of type NoneType"),
        ({"features.2": "0.5"}, r"block features\.2 must lie in \[0, 1\), not '0\.5'"),
    ],
)
def test_ratios_of_prune(ratios: Any, message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        pocketune.prune(pocketune.create_network("mcunet_5fps"), ratios, importance="weight")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda supernet: supernet.activate(None), "^config is of type NoneType; give a SubnetCo"),
        (lambda supernet: supernet.activate(SPACE), "^config is of type Space"),
        (lambda supernet: supernet.subnet({}), "^config is of type dict"),
        (lambda supernet: supernet.sample(0), "^rng is of type int; give a Generator"),
        (lambda _: pocketune.Supernet(3), "^space is of type int; give a Space"),
        (
            lambda supernet: pocketune.save_supernet(supernet.network, "never.safetensors"),
            r"^supernet is of type \w+; give a Supernet",
        ),
    ],
)
def test_arguments_of_supernets(call: Callable[[Any], object], message: str) -> None:
    with torch.device("meta"):
        supernet = pocketune.Supernet(SPACE)
    with pytest.raises(PocketuneError, match=message):
        call(supernet)


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


class TwoInputs(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return (x + y) * scale


def test_a_network_is_given_images_only() -> None:
    with pytest.raises(PocketuneError, match=r"^TwoInputs needs x and y, and .*; give y a default"):
        pocketune.anatomy(TwoInputs())


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


def test_only_buffers_hold_infinities() -> None:
    network = Net()
    network.register_buffer("mask", torch.tensor([0, -torch.inf, torch.inf]))
    require_values(network)
    require_values(network.to("meta"))
    network = Net()
    nn.init.constant_(network.fc.bias, -torch.inf)
    with pytest.raises(PocketuneError, match=r"^fc\.bias holds a value that is not finite"):
        require_values(network)


@pytest.mark.parametrize(
    ("name", "value"), [("scale", torch.nan), ("running_mean", torch.inf), ("running_var", -1e39)]
)
def test_buffers_that_are_not_masks(name: str, value: float) -> None:
    network = Net()
    network.register_buffer(name, torch.tensor([1.0, value]))
    with pytest.raises(PocketuneError, match=rf"^{name} holds a value that is not finite"):
        require_values(network)
