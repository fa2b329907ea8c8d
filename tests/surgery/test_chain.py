"""Which filtered convolutions are chained, and that their gradients stay what they are."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pocketune.filtering import FilteredConv2d, PooledBatchNorm2d
from pocketune.layers import FrozenBatchNorm2d
from pocketune.methods import (
    GradientFilter,
    Method,
    MobileTL,
    SignedBackward,
    Sum,
    TopBlocks,
    adapt,
)
from pocketune.networks import about, anatomy
from pocketune.surgery import chain_filters, freeze_batch_norms
from pocketune.weights import create_network

from ..networks.names import EVERY_METHOD
from .test_prune import require_size


def network(name: str) -> nn.Module:
    options = {} if name == "mcunet_5fps" else {"width": 0.25}
    return create_network(name, classes=4, **options).eval()


def gradients(adapted: nn.Module) -> dict[str, Tensor]:
    x = torch.randn(1, 3, 50, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    adapted(x).square().sum().backward()
    return {name: p.grad for name, p in adapted.named_parameters() if p.grad is not None}


def check(adapted: nn.Module) -> None:
    """Gradients in float64, chained and not."""
    adapted = adapted.double()
    apart = copy.deepcopy(adapted)
    for module in apart.modules():
        if isinstance(module, FilteredConv2d):
            module.passes_pooled = False
    torch.testing.assert_close(gradients(adapted), gradients(apart))


@pytest.mark.parametrize("name", [n for n in EVERY_METHOD if n not in ("resnet34", "resnet101")])
def test_every_network(name: str) -> None:
    adapted = adapt(network(name), GradientFilter(layers=9))
    assert about(adapted).filter_chains
    check(adapted)


def test_a_network_of_one_size() -> None:
    of_one_size = network("mobilenet_v2")
    require_size(of_one_size, 96)
    assert about(adapt(of_one_size, GradientFilter(layers=3))).filter_chains


def test_runs_through_linear_bottlenecks_and_their_shortcuts() -> None:
    """From the middle of a residual block, whose input is frozen, to the feature fusion."""
    adapted = adapt(network("mobilenet_v2"), GradientFilter(layers=9))
    assert about(adapted).filter_chains == (
        (
            "features.15.conv.1.0",
            "features.15.conv.2",
            "features.16.conv.0.0",
            "features.16.conv.1.0",
            "features.16.conv.2",
            "features.17.conv.0.0",
            "features.17.conv.1.0",
            "features.17.conv.2",
            "features.18.0",
        ),
    )


def test_a_map_that_is_added_where_gradients_are_whole_ends_a_chain() -> None:
    """Block 16 adds its input to what its projection makes, which is not filtered."""
    block = tuple(f"features.15.conv.{layer}" for layer in ("0.0", "1.0", "2"))
    adapted = adapt(
        network("mobilenet_v2"), GradientFilter(layers=(*block, "features.16.conv.0.0"))
    )
    assert about(adapted).filter_chains == (block,)
    check(adapted)


def test_a_shortcut_that_is_trained_before_ends_a_chain() -> None:
    """Block 16 adds to its projection's output what a convolution that is not filtered made."""
    block = tuple(f"features.16.conv.{layer}" for layer in ("0.0", "1.0", "2"))
    following = "features.17.conv.0.0"
    original = network("mobilenet_v2")
    adapted = adapt(original, GradientFilter(layers=(*block, following)))
    assert about(adapted).filter_chains == ((*block, following),)
    apart = adapt(original, TopBlocks(blocks=4) + GradientFilter(layers=(*block, following)))
    freeze_batch_norms(apart, keep=())
    for norm in apart.modules():
        if isinstance(norm, FrozenBatchNorm2d):
            norm.requires_grad_(False)
    assert chain_filters(apart) == (block,)
    check(apart)


def test_norms_inside_a_chain_take_pooled_maps() -> None:
    adapted = adapt(network("resnet18"), GradientFilter(layers=4))
    kinds = {norm: type(adapted.get_submodule(f"layer4.0.{norm}")) for norm in ("bn1", "bn2")}
    assert kinds == {"bn1": PooledBatchNorm2d, "bn2": FrozenBatchNorm2d}
    names = [n for n in network("resnet18").state_dict() if not n.endswith("num_batches_tracked")]
    assert list(adapted.state_dict()) == names


def test_resnets_are_chained_inside_their_blocks() -> None:
    adapted = adapt(network("resnet18"), GradientFilter(layers=4))
    assert about(adapted).filter_chains == (
        ("layer4.0.conv1", "layer4.0.conv2"),
        ("layer4.1.conv1", "layer4.1.conv2"),
    )


def test_squeeze_excite_ends_a_chain() -> None:
    adapted = adapt(network("mobilenet_v3_small"), GradientFilter(layers=4))
    assert about(adapted).filter_chains == (("features.11.block.3.0", "features.12.0"),)


@pytest.mark.parametrize(
    ("method", "chains"),
    [
        (TopBlocks(1) + GradientFilter(layers="trained"), 0),  # the batch's statistics
        (MobileTL(1) + GradientFilter(layers="trained"), 1),  # shifts are trained, scales are not
        (GradientFilter(layers=4) + SignedBackward(), 1),
        (GradientFilter(layers=4, alignment="reference"), 1),
        (GradientFilter(layers=4, patch=7, alignment="paper"), 1),
    ],
    ids=str,
)
def test_sums_of_methods(method: Method, chains: int) -> None:
    adapted = adapt(network("mobilenet_v2"), method)
    assert len(about(adapted).filter_chains) == chains
    check(adapted)


def test_one_pooling_between_two_filters_is_no_link() -> None:
    last, before = ("layer4.1.conv2",), ("layer4.1.conv1",)
    method = GradientFilter(2, layers=last) + GradientFilter(4, layers=before)
    assert about(adapt(network("resnet18"), method)).filter_chains == ()


class Detour(nn.Module):
    """A norm that looks at its input besides."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(x * 1.0)
        return y


def test_a_network_that_does_more_than_its_anatomy_tells_stays_as_it_is() -> None:
    original = network("resnet18")
    original.layer4[1].bn1 = Detour(original.layer4[1].bn1)
    adapted = adapt(original, GradientFilter(layers=4))
    assert about(adapted).filter_chains == ()
    check(adapted)


def test_a_network_without_blocks_stays_as_it_is() -> None:
    conv = FilteredConv2d(3, 3, 1)
    plain = nn.Sequential(conv, nn.ReLU(), FilteredConv2d(3, 3, 1))
    assert chain_filters(plain) == ()
    assert not conv.passes_pooled


class InTraining(nn.Module):
    """Like stochastic depth: reads the shape of a map, in training alone."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.ones(x.shape[0], 1, 1, 1) if self.training else x


def test_what_only_runs_in_training_is_tried_too() -> None:
    foreign = network("mobilenet_v2")
    foreign.features[17].add_module("drop", InTraining())
    foreign.features[17].forward = lambda x: foreign.features[17].drop(foreign.features[17].conv(x))
    adapted = adapt(foreign, GradientFilter(layers=4))
    assert adapted.train()(torch.randn(2, 3, 50, 64)).shape == (2, 4)


def test_the_callers_random_numbers_go_on_as_before() -> None:
    original = network("mobilenet_v2")
    assert any(isinstance(module, nn.Dropout) for module in original.modules())
    state = torch.get_rng_state()
    assert about(adapt(original, GradientFilter(layers=4))).filter_chains
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_chains_are_found_where_gradients_are_off(
    off: Callable[[], AbstractContextManager[None]],
) -> None:
    original = network("mobilenet_v2")
    with off():
        adapted = adapt(original, GradientFilter(layers=4))
    plain = adapt(original, GradientFilter(layers=4))
    assert about(adapted).filter_chains == about(plain).filter_chains != ()
    check(adapted)


@pytest.mark.parametrize("other", [None, TopBlocks(1)], ids=str)
def test_chains_can_be_turned_off(other: Method | None) -> None:
    original = network("mobilenet_v2")
    whole = GradientFilter(layers=4, chain=False)
    adapted = adapt(original, whole if other is None else other + whole)
    assert about(adapted).filter_chains == ()
    seen = []
    for module in adapted.modules():
        module.register_forward_hook(lambda _, inputs, output: seen.extend([*inputs, output]))
    adapted(torch.randn(1, 3, 64, 64)).sum().backward()
    assert seen
    assert all(isinstance(value, Tensor) for value in seen)


def test_reentrant_checkpoints_run_without_chains() -> None:
    adapted = adapt(network("mobilenet_v2"), GradientFilter(layers=4, chain=False)).double()
    expected = {name: gradient.clone() for name, gradient in gradients(adapted).items()}
    *first, last = adapted.features
    adapted.features = nn.Sequential(*first, _Checkpointed(last))
    adapted.zero_grad()
    found = gradients(adapted)
    assert len(found) == len(expected)
    for mine, theirs in zip(found.values(), expected.values(), strict=True):
        torch.testing.assert_close(mine, theirs)


class _Checkpointed(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = checkpoint(self.layer, x, use_reentrant=True)
        return made


def test_one_filter_that_is_to_stay_whole_keeps_all_of_them_whole() -> None:
    layers = [layer.conv for layer in anatomy(network("mobilenet_v2")).layers[-4:]]
    chained = [GradientFilter(layers=tuple(layers[:2])), GradientFilter(layers=tuple(layers[2:]))]
    whole = replace(chained[1], chain=False)
    assert about(adapt(network("mobilenet_v2"), Sum(tuple(chained)))).filter_chains
    for terms in ((chained[0], whole), (whole, chained[0])):
        assert about(adapt(network("mobilenet_v2"), Sum(terms))).filter_chains == ()
