"""TinyTL: what is trained, to the unit, and what a step keeps and changes."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.layers import FrozenBatchNorm2d, GroupNorm, LiteResidual
from pocketune.methods import TinyTL, TopBlocks, adapt, method_from_dict, method_to_dict, trainable
from pocketune.networks import anatomy
from pocketune.papers import published_memory
from pocketune.surgery import add_branches
from pocketune.weights import create_network

from ..compiler.networks import tiny
from ..compiler.settled import settle
from ..layers.kept import kept_bytes
from ..networks.shallow import shallow

B = TinyTL(lite_residual=False)
L = TinyTL(bias=False)
LB = TinyTL()

LITE = [3_808, 13_952, 14_224, *[21_760] * 3, 23_440, *[86_720] * 3, 88_032]
LITE += [*[124_800] * 3, 134_208, *[203_520] * 3, 228_352]


def small(**options: object) -> nn.Module:
    torch.manual_seed(0)
    return shallow(create_network("mobilenet_v2", width=0.1, classes=3, **options))


def images(batch: int = 2, size: int = 32) -> Tensor:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(1))


def open_modules(network: nn.Module) -> nn.Module:
    """Give every lite residual module a last scale, so that it does something."""
    for module in network.modules():
        if isinstance(module, LiteResidual):
            nn.init.normal_(module.norm2.weight, std=0.1)
    return network


@pytest.mark.parametrize(
    ("classes", "method", "trained"),
    [
        (100, B, 145_348),
        (100, L, 1_944_516),
        (100, LB, 1_959_748),
        (102, L, 1_947_078),
        (102, LB, 1_962_310),
    ],
)
def test_published_counts_of_proxylessnas(classes: int, method: TinyTL, trained: int) -> None:
    network = create_network("proxylessnas_mobile", classes=classes)
    assert trainable(adapt(network, method)).trained == trained


def test_the_feature_fusion_layer_may_be_trained_as_well() -> None:
    """By the paper's own count, its kernel then takes 4 bytes a weight in place of 1."""
    network = create_network("proxylessnas_mobile", classes=102)
    plain, more = adapt(network, LB), adapt(network, TinyTL(head=True))
    assert trainable(more).trained - trainable(plain).trained == 320 * 1280
    counted = [published_memory(n, "tinytl", batch=8, size=224) for n in (plain, more)]
    assert counted[1].total_bytes - counted[0].total_bytes == 3 * 320 * 1280
    modules = adapt(small(), TinyTL(bias=False, head=True))
    names = {name for name, p in modules.named_parameters() if p.requires_grad}
    fusion = anatomy(small()).feature_fusion[0]
    assert {f"{fusion.conv}.weight", f"{fusion.norm}.bias"} <= names
    with pytest.raises(PocketuneError, match="the network has none; leave it out"):
        adapt(create_network("resnet18", width=0.25), TinyTL(head=True))


def test_biases_of_a_network_that_has_lite_residual_modules() -> None:
    """Table 2 has the modules in every row; B trains their shifts, too."""
    network = create_network("proxylessnas_mobile", classes=102)
    add_branches(network, LB.plan(network).branches)
    assert trainable(adapt(network, B)).trained == 151_638
    assert trainable(adapt(network, LB)).trained == 1_962_310


def test_published_lite_residual_modules_of_proxylessnas() -> None:
    network = adapt(create_network("proxylessnas_mobile", classes=102), LB)
    modules = [m for m in network.modules() if isinstance(m, LiteResidual)]
    assert [sum(p.numel() for p in m.parameters()) for m in modules] == LITE
    assert [m.conv1.kernel_size[0] for m in modules] == [5] * 15 + [3] * 4
    assert trainable(network).total == 4_746_590


@pytest.mark.parametrize(
    "name", ["mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "mcunet_5fps", "resnet18"]
)
def test_a_module_beside_every_block_but_the_first(name: str) -> None:
    network = adapt(create_network(name, classes=3), LB)
    first, *others = anatomy(network).blocks
    assert not hasattr(network.get_submodule(first.name), "branch")
    for block in others:
        assert isinstance(network.get_submodule(block.name).branch, LiteResidual)


def test_modules_are_small_beside_the_network() -> None:
    counts = trainable(adapt(create_network("mobilenet_v2", classes=1000), L))
    assert counts.trained - 1_281_000 < 0.4 * counts.total


@pytest.mark.parametrize("method", [B, L, LB], ids=str)
def test_trained_names(method: TinyTL) -> None:
    network = adapt(small(), method)
    trained = {name for name, p in network.named_parameters() if p.requires_grad}
    classifier = {name for name in trained if name.startswith("classifier")}
    assert len(classifier) == 2
    for name, _ in network.named_parameters():
        if ".branch." in name:
            expected = not (method.bias and name.endswith("norm2.bias"))
        else:
            expected = name in classifier or (method.bias and name.endswith("bias"))
        assert (name in trained) == expected, name


@pytest.mark.parametrize("method", [L, LB], ids=str)
def test_at_first_the_modules_change_nothing(method: TinyTL) -> None:
    network = small().eval()
    torch.testing.assert_close(adapt(network, method)(images()), network(images()))


def test_every_module_has_the_size_of_its_block_at_odd_sizes() -> None:
    network = open_modules(adapt(small(), LB)).eval()
    for size in (1, 2, 32, 37, 71):
        assert torch.isfinite(network(images(size=size))).all()


def test_norms_become_group_norms() -> None:
    network = adapt(small(), TinyTL(norm="group"), frozen_bits=32)
    norms = [network.get_submodule(layer.norm) for layer in anatomy(network).layers]
    assert all(type(norm) is GroupNorm for norm in norms)
    assert all(norm.num_channels // norm.num_groups == 8 for norm in norms)
    for layer in anatomy(network).layers:
        filters = network.get_submodule(layer.conv).weight.flatten(1)
        torch.testing.assert_close(filters.mean(1), torch.zeros(len(filters)), atol=1e-5, rtol=0)
        torch.testing.assert_close(filters.std(1), torch.ones(len(filters)), atol=1e-2, rtol=0)


def test_filters_that_another_method_trains_stay_standardized() -> None:
    original = small(padding="same").double()
    group = TinyTL(norm="group", lite_residual=False)
    adapted, x = (
        adapt(original, TopBlocks(4) + group, frozen_bits=32).eval(),
        images(size=64).double(),
    )
    before = adapted(x)
    alone = adapt(original, group, frozen_bits=32).eval()
    torch.testing.assert_close(before, alone(x), atol=1e-3, rtol=1e-3)
    strided = adapted.features[4].conv[1][0]
    with torch.no_grad():
        strided.weight.mul_(3).add_(1)
    torch.testing.assert_close(adapted(x), before, atol=1e-3, rtol=1e-3)


def test_scale_and_shift_survive_the_change_of_norm() -> None:
    network = small()
    nn.init.uniform_(network.features[3].conv[0][1].weight)
    norm = adapt(network, TinyTL(norm="group")).features[3].conv[0][1]
    assert torch.equal(norm.weight, network.features[3].conv[0][1].weight)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_images_of_a_batch_do_not_see_each_other(norm: str) -> None:
    """So that a batch may hold one image, and gradients of several add up."""
    network = open_modules(adapt(small(), TinyTL(norm=norm))).double().train()
    network.classifier[0].p = 0.0
    x = images(3).double()
    alone = torch.cat([network(x[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(network(x), alone)


@pytest.mark.parametrize("method", [B, L, TinyTL(norm="group")], ids=str)
def test_a_batch_of_one_learns(method: TinyTL) -> None:
    network = adapt(settle(small(), images(8)), method).train()
    x, labels = images(3), torch.tensor([0, 1, 2])
    optimizer = torch.optim.Adam([p for p in network.parameters() if p.requires_grad], 3e-3)
    for step in range(36):
        loss = functional.cross_entropy(network(x[step % 3][None]), labels[step % 3][None])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert network.eval()(x).argmax(1).tolist() == [0, 1, 2]


def test_biases_keep_one_bit_an_activation() -> None:
    network, x = adapt(small(), B).train(), images(2, 64)
    elements = 0

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal elements
        elements += output.numel()

    for layer in anatomy(network).layers:
        if layer.activation:
            network.get_submodule(layer.activation).register_forward_hook(count)
    kept = kept_bytes(network, x)
    small_tensors = 64_000  # scales of norms, the dropout's mask, the classifier's input
    assert elements / 8 <= kept <= elements / 8 + small_tensors
    assert kept < kept_bytes(small().train(), x) / 20


def test_a_round_trip_as_plain_values() -> None:
    method = TinyTL(bias=False, norm="group", kernel=3, groups=4)
    assert method_from_dict(method_to_dict(method)) == method


def test_the_original_network_stays_as_it_is() -> None:
    network = small()
    before = copy.deepcopy(network.state_dict())
    adapt(network, TinyTL(norm="group"))
    after = network.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert not any(isinstance(m, GroupNorm | FrozenBatchNorm2d) for m in network.modules())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bias": False, "lite_residual": False}, "LastLayer"),
        ({"norm": "layer"}, "must be one of batch, group"),
        ({"kernel": 4}, "odd"),
        ({"groups": 0}, "at least 1"),
    ],
)
def test_refuses_options_that_make_no_sense(options: dict[str, object], message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        TinyTL(**options)  # type: ignore[arg-type]


def test_refuses_modules_that_are_larger_than_three_networks() -> None:
    network = create_network("resnet50", width=0.25, classes=3)
    with pytest.raises(PocketuneError, match=r"13,\d+,\d+ values, .* 1,\d+,\d+; .*residual=False"):
        adapt(network, LB)
    assert trainable(adapt(network, B)).trained > 0


def test_refuses_networks_without_blocks() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    with pytest.raises(PocketuneError, match="Sequential cannot be followed"):
        adapt(network, LB)


def test_channels_that_8_does_not_divide() -> None:
    network = tiny(channels=12)
    network.blocks.append(copy.deepcopy(network.blocks[0]))
    adapted = adapt(network, LB)
    norms = [m for m in adapted.modules() if isinstance(m, GroupNorm)]
    assert [m.num_channels // m.num_groups for m in norms] == [8, 6, 8, 6]
    assert torch.isfinite(adapted(images(size=16))).all()


def test_refuses_a_block_whose_channels_make_no_groups() -> None:
    network = tiny(channels=17)
    network.blocks.append(copy.deepcopy(network.blocks[0]))
    with pytest.raises(PocketuneError, match=r"block blocks\.1: 17 channels.*lite_residual=False"):
        adapt(network, TinyTL(groups=1))


def test_refuses_a_layer_whose_channels_make_no_groups_by_name() -> None:
    network = create_network("mobilenet_v2", classes=3, width=0.35, hidden={"features.3": 13})
    with pytest.raises(
        PocketuneError, match=r"layer features\.3\.conv\.0\.1: 13 channels.*'batch'"
    ):
        adapt(network, TinyTL(norm="group"))


def test_refuses_groups_that_do_not_divide_the_channels() -> None:
    with pytest.raises(PocketuneError, match="groups=1"):
        adapt(small(), TinyTL(groups=3))
