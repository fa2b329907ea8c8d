"""A supernet and its sub-networks compute the same."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from tests.supernet.small import MODULES, configs, images, rng, space, supernet
from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.errors import PocketuneError
from pocketune.methods import TinyTL, adapt
from pocketune.networks import Normalization, about
from pocketune.supernet import SubnetConfig, Supernet
from pocketune.weights import create_network, load_network, save_network

SHARED = supernet(**MODULES, first="reduced")
FEW = settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(configs(SHARED.space))
@FEW
def test_a_sub_network_gives_the_outputs_of_the_supernet_to_the_bit(config: SubnetConfig) -> None:
    SHARED.activate(config)
    x = images(config.size)
    with torch.no_grad():
        assert torch.equal(SHARED(x), SHARED.subnet(config)(x))


@given(configs(SHARED.space))
@FEW
def test_training_changes_both_alike(config: SubnetConfig) -> None:
    """Outputs, gradients and running statistics in training mode."""
    trained = copy.deepcopy(SHARED).train()
    trained.activate(config)
    network, x = trained.subnet(config), images(config.size)
    outputs = []
    for each in (trained, network):
        torch.manual_seed(0)  # for dropout
        outputs.append(each(x))
    assert torch.equal(*outputs)
    state = trained.state_of(config)
    for name, buffer in network.named_buffers():
        assert torch.equal(state[name], buffer), name
    outputs[1].square().sum().backward()
    named = dict(network.named_parameters())
    pairs = [(state[name], named[name].grad) for name in named]
    wanted = torch.autograd.grad(
        outputs[0].square().sum(), list(trained.parameters()), allow_unused=True
    )
    again = torch.autograd.grad(
        [value for value, _ in pairs], list(trained.parameters()), [g for _, g in pairs],
        allow_unused=True,
    )  # fmt: skip
    for ours, theirs in zip(wanted, again, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or torch.equal(ours, theirs)


def test_statistics_beyond_the_cut_stay() -> None:
    trained = supernet().train()
    trained.activate(trained.smallest)
    before = {name: value.clone() for name, value in trained.named_buffers()}
    trained(images())
    norm = "network.features.2.conv.0.1.running_mean"
    middle = len(trained.state_of(trained.smallest)["features.2.conv.0.1.running_mean"])
    after = dict(trained.named_buffers())[norm]
    assert not torch.equal(after[:middle], before[norm][:middle])
    assert torch.equal(after[middle:], before[norm][middle:])


def test_gradients_arrive_where_the_sub_network_reads() -> None:
    trained = supernet().train()
    trained.activate(trained.smallest)
    trained(images()).sum().backward()
    named = dict(trained.named_parameters())
    kernel = named["network.features.2.conv.1.0.weight"].grad
    assert kernel is not None
    assert kernel[:, :, 2:5, 2:5].abs().sum() > 0
    assert kernel[:, :, 0].abs().sum() == 0
    for size in ("3", "5"):
        matrix = named[f"matrices.0.{size}"].grad
        assert matrix is not None and matrix.abs().sum() > 0
    assert named["network.features.3.conv.0.0.weight"].grad is None, "a block that does not run"


def test_the_largest_sub_network_is_what_is_stored() -> None:
    stored = supernet()
    state = stored.state_of(stored.largest)
    assert {name: value.data_ptr() for name, value in state.items()} == {
        name: value.data_ptr()
        for name, value in (*stored.network.named_parameters(), *stored.network.named_buffers())
    }


def test_group_norms_and_standardized_kernels_are_those_of_the_cut() -> None:
    made = supernet(norm="group", standardized=True)
    for seed in range(3):
        config = made.sample(rng(seed))
        made.activate(config)
        network, x = made.subnet(config), images()
        assert torch.equal(made(x), network(x))
        norms = [module for module in network.modules() if isinstance(module, nn.GroupNorm)]
        assert {norm.num_channels // norm.num_groups for norm in norms} == {8}
        assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())


def test_a_space_may_have_one_kernel() -> None:
    made = supernet(kernels=(5,), expansions=(2, 3))
    assert not made.matrices
    made.activate(made.smallest)
    assert torch.equal(made(images()), made.subnet(made.smallest)(images()))


def test_a_sub_network_has_values_of_its_own() -> None:
    stored = supernet()
    network = stored.subnet(stored.largest)
    before = {name: value.clone() for name, value in stored.state_dict().items()}
    with torch.no_grad():
        for value in network.parameters():
            value.zero_()
    assert all(torch.equal(value, before[name]) for name, value in stored.state_dict().items())
    assert all(value.requires_grad for value in network.parameters())


def test_a_sub_network_is_a_network_of_ours(tmp_path: Path) -> None:
    config = SHARED.sample(rng(2))
    network = SHARED.subnet(config)
    file = tmp_path / "subnet.safetensors"
    save_network(network, file)
    x = images()
    for read in (
        load_network(file),
        create_network("ofa_mobilenet_v2", width=0.2, classes=3, weights=file),
    ):
        assert about(read) == about(network)
        assert torch.equal(read.eval()(x), network(x))
    adapted = adapt(network, TinyTL()).eval()
    torch.testing.assert_close(adapted(x), network(x), rtol=0.05, atol=0.05)  # in 8 bits
    trained = [name for name, p in adapted.named_parameters() if p.requires_grad]
    modules = [name for name in trained if "branch" in name]
    assert len(modules) == 5 * len(SHARED.space.active(config))


def test_the_values_of_a_sub_network_follow_the_mode_and_the_images() -> None:
    normalization = Normalization((0.1, 0.2, 0.3), (1, 1, 1))
    made = Supernet(space(), normalization)
    assert about(made.subnet(made.smallest)).normalization == normalization
    assert made.subnet(made.smallest).training
    assert not made.eval().subnet(made.smallest).training


def test_a_sub_network_uses_no_random_numbers() -> None:
    made = supernet()
    torch.manual_seed(0)
    made.subnet(made.sample(rng()))
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(1))


def test_other_classes_keep_everything_but_the_classifier() -> None:
    other = SHARED.with_classes(7)
    assert other.space.classes == 7
    network = other.subnet(other.largest)
    assert network(images()).shape == (2, 7)
    mine, theirs = SHARED.state_dict(), other.state_dict()
    for name in mine:
        same = mine[name].shape == theirs[name].shape and torch.equal(mine[name], theirs[name])
        assert same == ("classifier" not in name), name
    assert SHARED.subnet(SHARED.largest)(images()).shape == (2, 3)


def test_a_config_of_another_space_is_refused() -> None:
    with pytest.raises(PocketuneError, match="no images of 224 px"):
        SHARED.activate(SubnetConfig(depths=(1,) * 5, kernels=(3,) * 11, expansions=(3,) * 11))


def test_a_step_trains_the_active_sub_network() -> None:
    made, x, labels = supernet().train(), images(), torch.tensor([0, 1])
    made.activate(made.smallest)
    optimizer = torch.optim.SGD(made.parameters(), lr=0.05)

    def loss() -> Tensor:
        torch.manual_seed(0)
        return F.cross_entropy(made(x), labels)

    first = loss()
    for _ in range(5):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    assert loss() < first
