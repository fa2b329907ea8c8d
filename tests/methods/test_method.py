"""Methods as such: adapting leaves the original alone, methods add up, conflicts have a name."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import FrozenConv2d
from pocketune.methods import (
    BiasAndLast,
    FullFineTune,
    LastLayer,
    Method,
    MethodConflict,
    NormAndLast,
    Pass,
    Plan,
    Sum,
    TopBlocks,
    TrainableCount,
    adapt,
    trainable,
)
from pocketune.networks import about
from pocketune.surgery import batch_norms
from pocketune.weights import create_network


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return create_network("mcunet_5fps", classes=3)


@dataclass(frozen=True)
class Replace(Method):
    """Replace one layer by an identity and train some parameters."""

    layer: str
    trained: tuple[str, ...] = ()

    def plan(self, network: nn.Module) -> Plan:
        replaced = {self.layer: lambda _: nn.Identity()}
        return Plan(frozenset(self.trained), frozenset(), replaced)


@dataclass(frozen=True)
class AddBranch(Method):
    """Train a 1x1 convolution beside a block, and store what is frozen in some bits."""

    block: str
    bits: int = 32

    def plan(self, network: nn.Module) -> Plan:
        names = frozenset(f"{self.block}.branch.{name}" for name in ("weight", "bias"))
        branches = {self.block: lambda block: nn.Conv2d(8, 16, 1)}
        return Plan(names, frozenset(), branches=branches)

    @property
    def frozen_bits(self) -> int:
        return self.bits


def tiny() -> nn.Sequential:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)),
        nn.Flatten(),
        nn.Linear(16, 2),
    )


def test_adapt_leaves_the_original_as_it_is(network: nn.Module) -> None:
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    modules = [type(module) for module in network.modules()]
    adapted = adapt(network, LastLayer())
    with torch.no_grad():
        for parameter in adapted.parameters():
            parameter.zero_()
    assert [type(module) for module in network.modules()] == modules
    assert all(parameter.requires_grad for parameter in network.parameters())
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_adapted_network_knows_where_it_comes_from(network: nn.Module) -> None:
    method = TopBlocks(blocks=2)
    adapted = method.adapt(network)
    assert about(adapted).method is method
    assert about(adapted).config == about(network).config
    assert about(adapted).normalization == about(network).normalization
    assert not hasattr(network, "method")


def test_adapting_twice_is_an_error(network: nn.Module) -> None:
    with pytest.raises(PocketuneError, match=r"LastLayer\(\) already.*LastLayer\(\) \+ Norm"):
        adapt(adapt(network, LastLayer()), NormAndLast())


@pytest.mark.parametrize("method", ["last", LastLayer, None])
def test_a_name_or_a_class_is_no_method(network: nn.Module, method: object) -> None:
    with pytest.raises(PocketuneError, match=r"is not a Method; give one like MobileTL\(\) or"):
        adapt(network, method)  # type: ignore[arg-type]


def test_activations_do_not_work_in_place() -> None:
    adapted = adapt(tiny(), Replace("1", trained=("2.weight",)))
    assert not adapted[0][2].inplace


def test_a_norm_with_a_trained_scale_uses_batch_statistics() -> None:
    network = tiny()
    assert Plan.training(network, {"0.1.weight"}).batch_norms == {"0.1"}
    assert Plan.training(network, {"0.1.bias", "0.0.weight"}).batch_norms == frozenset()


def test_dropout_stays() -> None:
    network = nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2))
    Plan.training(network, {"1.weight"}).apply(network)
    assert network[0].p == 0.5


def test_sum_trains_what_either_trains(network: nn.Module) -> None:
    both = BiasAndLast() + TopBlocks(blocks=1)
    bias, top = BiasAndLast().plan(network), TopBlocks(blocks=1).plan(network)
    plan = both.plan(network)
    assert plan.trained == bias.trained | top.trained
    assert plan.batch_norms == top.batch_norms
    adapted = adapt(network, both)
    assert {n for n, p in adapted.named_parameters() if p.requires_grad} == plan.trained
    assert set(batch_norms(adapted)) == top.batch_norms


def test_sum_is_flat() -> None:
    a, b, c = LastLayer(), NormAndLast(), TopBlocks(2)
    assert (a + b) + c == a + (b + c) == Sum((a, b, c))
    assert str(a + b + c) == "LastLayer() + NormAndLast() + TopBlocks(blocks=2)"


def test_a_sum_of_nothing_is_an_error() -> None:
    with pytest.raises(PocketuneError, match="at least one"):
        Sum(())


def test_only_methods_add_up() -> None:
    with pytest.raises(TypeError):
        LastLayer() + 1  # type: ignore[operator]


@pytest.mark.parametrize(
    ("first", "second", "named"), [("0.1", "0.1", "0.1"), ("0", "0.1", "0.1"), ("0.1", "0", "0.1")]
)
def test_two_methods_replacing_one_layer_are_a_conflict(
    first: str, second: str, named: str
) -> None:
    both = Replace(first) + LastLayer() + Replace(second)
    with pytest.raises(MethodConflict, match=rf"both replace layer {named};") as error:
        Sum((both.methods[0], both.methods[2])).plan(tiny())
    assert str(both.methods[0]) in str(error.value)
    assert str(both.methods[2]) in str(error.value)


def test_replacing_different_layers_is_no_conflict() -> None:
    network = adapt(tiny(), Replace("0.1") + Replace("0.2", trained=("2.weight",)))
    assert isinstance(network[0][1], nn.Identity)
    assert isinstance(network[0][2], nn.Identity)


def test_layers_with_a_common_beginning_of_their_names_are_different() -> None:
    layers = nn.Sequential(*(nn.ReLU() for _ in range(12)))
    assert (Replace("1") + Replace("11")).plan(layers).replaced.keys() == {"1", "11"}


def test_training_what_another_method_replaced_is_a_conflict() -> None:
    method = Replace("0.1", trained=("0.1.weight",))
    with pytest.raises(MethodConflict, match=r"layer 0\.1 has no parameter weight"):
        adapt(tiny(), method)


def test_methods_are_values() -> None:
    assert TopBlocks(blocks=3) == TopBlocks()
    assert len({FullFineTune(), FullFineTune(), TopBlocks(2), TopBlocks(3)}) == 3


@dataclass(frozen=True)
class Passing(Method):
    """Train the last layer of `tiny`, and run passes over the network."""

    passes: tuple[Pass, ...]

    def plan(self, network: nn.Module) -> Plan:
        return Plan(frozenset({"2.weight"}), frozenset(), passes=self.passes)


def test_passes_run_in_their_order_and_late_ones_when_layers_are_what_they_stay() -> None:
    seen: list[tuple[str, type[nn.Module]]] = []

    def note(name: str) -> Callable[[nn.Module], None]:
        return lambda network: seen.append((name, type(network[0][0])))

    first, late, second = Pass(note("first")), Pass(note("late"), late=True), Pass(note("second"))
    adapt(tiny(), Passing((late, first)) + Passing((second,)))
    assert seen == [("first", nn.Conv2d), ("second", nn.Conv2d), ("late", FrozenConv2d)]


def test_a_pass_that_several_methods_ask_for_runs_once() -> None:
    runs: list[nn.Module] = []
    both = Passing((Pass(runs.append),)) + Passing((Pass(runs.append),))
    adapt(tiny(), both)
    assert len(runs) == 1


def test_a_branch_is_trained_beside_what_another_method_trains(network: nn.Module) -> None:
    method = AddBranch("features.1") + LastLayer()
    adapted = adapt(network, method)
    trained = {name for name, p in adapted.named_parameters() if p.requires_grad}
    last = {name for name, p in adapt(network, LastLayer()).named_parameters() if p.requires_grad}
    assert trained == last | {"features.1.branch.weight", "features.1.branch.bias"}


def test_two_branches_on_one_block_are_a_conflict(network: nn.Module) -> None:
    with pytest.raises(MethodConflict, match=r"both add a branch to block features\.1;"):
        adapt(network, AddBranch("features.1") + AddBranch("features.1"))
    assert len((AddBranch("features.1") + AddBranch("features.2")).plan(network).branches) == 2


def test_a_sum_stores_frozen_weights_in_the_fewest_bits_asked_for(network: nn.Module) -> None:
    method = AddBranch("features.1", bits=8) + AddBranch("features.2")
    assert method.frozen_bits == about(adapt(network, method)).frozen_bits == 8
    assert about(adapt(network, method, frozen_bits=32)).frozen_bits == 32


def test_frozen_bits_that_there_are_not(network: nn.Module) -> None:
    with pytest.raises(PocketuneError, match=r"frozen_bits=0 is not possible.*8 or 32"):
        adapt(network, LastLayer(), frozen_bits=0)
    with pytest.raises(PocketuneError, match=r"frozen_bits=4 is not possible.*8 or 32"):
        adapt(network, AddBranch("features.1", bits=4))


def test_counts_parameters_and_not_statistics() -> None:
    network = nn.Sequential(nn.Linear(10, 5), nn.BatchNorm1d(5))
    network[0].requires_grad_(False)
    assert trainable(network) == TrainableCount(trained=10, total=65)


def test_reads_as_a_sentence() -> None:
    text = str(TrainableCount(trained=1_695_972, total=2_927_612))
    assert text == "1,695,972 of 2,927,612 parameters are trained (57.93%)"
