"""From the costs of single layers to totals and blocks, on calls that are written down by hand."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.papers import by_block, published_flops, published_memory
from pocketune.papers.counts import (
    LayerFlops,
    LayerMemory,
    at_peak,
    layer_by_layer,
    packed_bytes,
    sum_of_flops,
    sum_of_kept,
)
from pocketune.papers.published import FLOPS, MEMORY
from pocketune.papers.tinytl import parameter_bytes, shifted, trains_more_than_classifier
from pocketune.papers.trace import ModuleCall, ModuleTrace, trace_modules


def call(
    path: str, block: str | None = None, shortcut: tuple[int, ...] | None = None
) -> ModuleCall:
    return ModuleCall(
        path=path,
        module=nn.ReLU(),
        kind=nn.ReLU,
        inputs=((1, 2, 3, 3),),
        outputs=((1, 2, 3, 3),),
        block=block,
        shortcut=shortcut,
        in_branch=False,
        trained=frozenset(),
        gradient_in=False,
        gradient_out=False,
        is_leaf=True,
    )


COSTS = [
    (call("stem"), LayerMemory(10, 100)),
    (call("a.0", "a", (1, 5)), LayerMemory(20, 200)),
    (call("a.1", "a", (1, 5)), LayerMemory(0, 300)),
    (call("between"), LayerMemory(7, 1)),
    (call("b.0", "b"), LayerMemory(40, 50)),
]


def test_each_layer_s_peak_is_its_own_on_top_of_what_was_kept_before() -> None:
    layers = layer_by_layer(COSTS)
    assert [layer.kept_bytes for layer in layers] == [10, 20, 0, 7, 40]
    assert [layer.cumulative_kept_bytes for layer in layers] == [10, 30, 30, 37, 77]
    assert [layer.peak_bytes for layer in layers] == [
        100, 200 + 10 + 20, 300 + 30 + 20, 1 + 30, 50 + 37,
    ]  # fmt: skip
    assert [layer.kind for layer in layers] == ["ReLU"] * 5


def test_a_shortcut_can_be_left_out() -> None:
    layers = layer_by_layer(COSTS, shortcuts=False)
    assert [layer.peak_bytes for layer in layers] == [100, 210, 330, 31, 87]


def test_a_batch_multiplies_activations_and_not_parameters() -> None:
    memory = at_peak("mine", layer_by_layer(COSTS), parameter_bytes=1000, batch=4)
    assert memory.peak_layer == "a.1"
    assert (memory.activation_bytes, memory.total_bytes) == (4 * 350, 1000 + 4 * 350)
    assert (memory.kept_bytes, memory.batch, memory.convention) == (77, 4, "mine")


def test_of_two_equal_peaks_the_first_is_named() -> None:
    costs = [(call("x"), LayerMemory(0, 9)), (call("y"), LayerMemory(0, 9))]
    assert at_peak("mine", layer_by_layer(costs), parameter_bytes=0, batch=1).peak_layer == "x"


def test_a_sum_of_what_is_kept_has_no_peak_and_no_parameters() -> None:
    memory = sum_of_kept("mine", layer_by_layer(COSTS), batch=3)
    assert memory.peak_layer is None
    assert (memory.parameter_bytes, memory.total_bytes, memory.activation_bytes) == (0, 231, 231)


def test_blocks_have_the_largest_of_their_layers_and_the_sum_of_what_they_keep() -> None:
    a, b = by_block(at_peak("mine", layer_by_layer(COSTS), parameter_bytes=0, batch=1))
    assert (a.name, a.kind, a.kept_bytes, a.cumulative_kept_bytes) == ("a", "block", 20, 30)
    assert (a.temporary_bytes, a.peak_bytes) == (300, 350)
    assert (b.name, b.kept_bytes, b.cumulative_kept_bytes, b.peak_bytes) == ("b", 40, 77, 87)


def test_flops_add_up_forward_and_backward() -> None:
    costs = [(call("x"), LayerFlops(3, 5)), (call("y"), LayerFlops(10, 0))]
    flops = sum_of_flops("mine", costs, batch=2)
    assert (flops.forward, flops.backward, flops.total) == (13, 5, 18)
    assert [layer.flops.total for layer in flops.layers] == [8, 10]


@given(count=st.integers(0, 10**6), width=st.integers(1, 32))
def test_packed_bits_fill_whole_bytes(count: int, width: int) -> None:
    assert (packed_bytes(count, width) - 1) * 8 < count * width <= packed_bytes(count, width) * 8


class Twice(nn.Module):
    """One activation, called on a large map and then on a small one."""

    def __init__(self) -> None:
        super().__init__()
        self.act, self.pool = nn.ReLU(), nn.AvgPool2d(2)

    def forward(self, x):
        return self.act(self.pool(self.act(x)))


def test_a_module_that_runs_twice_has_at_each_call_the_shapes_of_the_one_before() -> None:
    """As the public profiler, which reads sizes that the last call has left."""
    calls = trace_modules(Twice(), (2, 4, 4)).calls
    assert [c.input for c in calls if c.path == "act"] == [(1, 2, 4, 4), (1, 2, 2, 2)]
    found = [c.input for c in shifted(calls) if c.path == "act"]
    assert found == [(1, 2, 2, 2), (1, 2, 4, 4)]


def trace(*layers: nn.Module, shape: tuple[int, ...] = (3, 4, 4)) -> ModuleTrace:
    return trace_modules(nn.Sequential(*layers), shape)


def test_trained_parameters_take_four_bytes_and_frozen_ones_one() -> None:
    frozen = nn.Conv2d(3, 5, 3).requires_grad_(False)
    norm = nn.BatchNorm2d(5)
    norm.weight.requires_grad_(False)
    assert parameter_bytes(trace(frozen, norm)) == (5 * 27 + 5) + 5 + 4 * 5


def test_training_the_last_linear_layer_is_training_the_classifier_alone() -> None:
    before = [nn.Conv2d(3, 4, 1).requires_grad_(False), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    assert not trains_more_than_classifier(trace(*before, nn.Linear(4, 2)))
    assert trains_more_than_classifier(trace(*before, nn.Linear(4, 4), nn.Linear(4, 2)))
    before[0].requires_grad_(True)
    assert trains_more_than_classifier(trace(*before, nn.Linear(4, 2)))


N = 2 * 3 * 4 * 4
"""Elements of two samples (3, 4, 4)."""


@pytest.mark.parametrize(
    ("layer", "forward", "backward"),
    [
        (nn.ReLU(), 1, 1),
        (nn.LeakyReLU(), 1, 1),
        (nn.ReLU6(), 1, 2),
        (nn.Hardswish(), 4, 10),
        (nn.Hardsigmoid(), 3, 5),
        (nn.BatchNorm2d(3), 7, 11 + 3 + 1),
        (nn.BatchNorm2d(3).requires_grad_(False), 7, 11),
        (nn.GroupNorm(3, 3), 7, 11 + 3 + 1),
        (nn.Identity(), 0, 0),
        (nn.Dropout(), 0, 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("needed", [True, False])
def test_mobiletl_s_flops_an_element(
    layer: nn.Module, forward: int, backward: int, needed: bool
) -> None:
    seen = trace_modules(nn.Sequential(layer), (3, 4, 4), input_gradient=needed)
    flops = FLOPS["mobiletl"].count(seen, 2)
    own = 3 + 1 if seen.calls[0].trained else 0  # of a norm's scale and shift
    of_input = backward - own
    assert flops.forward == forward * N
    assert flops.backward == (own + (of_input if needed else 0)) * N


@pytest.mark.parametrize(
    ("layer", "tinytl", "mobiletl", "stored"),
    [
        (nn.ReLU(), 6, 6, 6),
        (nn.ReLU6(), 6, 12, 12),
        (nn.Hardswish(), 192, 192, 192),
        (nn.Hardsigmoid(), 192, 0, 192),
        (nn.BatchNorm2d(3), 192, 192, 192),
        (nn.BatchNorm2d(3).requires_grad_(False), 0, 0, 0),
        (nn.Conv2d(3, 2, 1), 192, 192, 192),
        (nn.Conv2d(3, 2, 1).requires_grad_(False), 0, 0, 0),
        (nn.Flatten(), 0, 0, 0),
    ],
    ids=str,
)
def test_bytes_that_a_sample_keeps(
    layer: nn.Module, tinytl: int, mobiletl: int, stored: int
) -> None:
    """48 elements behind a convolution that is trained, so that a gradient arrives."""
    seen = trace(nn.Conv2d(3, 3, 1), layer)
    kept = {
        name: [cost.kept_bytes for cost in MEMORY[name].measure(seen, 1).layers if cost.name == "1"]
        for name in ("tinytl", "mobiletl", "mobiletl-stored")
    }
    assert kept == {"tinytl": [tinytl], "mobiletl": [mobiletl], "mobiletl-stored": [stored]}


def test_mobiletl_adds_a_trained_kernel_to_what_is_temporary() -> None:
    seen = trace(nn.Conv2d(3, 6, 3, padding=1, groups=3, bias=False))
    (layer,) = MEMORY["mobiletl"].measure(seen, 1).layers
    assert layer.temporary_bytes == 4 * 48 + 4 * 96 // 3 + 4 * 6 * 9
    (other,) = MEMORY["tinytl"].measure(seen, 1).layers
    assert other.temporary_bytes == 4 * 48 + 4 * 96 // 3


@pytest.mark.parametrize("groups", [1, 2])
def test_gradient_filtering_counts_the_backward_pass_of_convolutions(groups: int) -> None:
    network = nn.Sequential(
        nn.Conv2d(4, 6, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, padding=1, groups=groups, bias=False),
        nn.Flatten(),
        nn.Linear(8 * 16, 3, bias=False),
    )
    seen = trace_modules(network, (4, 4, 4))
    flops = FLOPS["gradfilter"].count(seen, 2)
    pixels, first, second = 2 * 16, 4 * 6, 6 * 8 // groups
    expected = [
        first * (9 * pixels + pixels - 1),
        0,
        second * (9 * pixels + pixels - 1) + 2 * second * 9 * pixels,
        0,
        2 * prod((8 * 16, 3)) * 3,
    ]
    assert [layer.flops.backward for layer in flops.layers] == expected
    assert flops.forward == 0
    kept = MEMORY["gradfilter"].measure(seen, 2)
    assert kept.total_bytes == 2 * 4 * (4 * 16 + 6 * 16)


def test_every_convention_counts_a_batch_as_so_many_samples() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    for name in MEMORY:
        one, five = (published_memory(network, name, batch=n, size=4) for n in (1, 5))
        assert five.activation_bytes == 5 * one.activation_bytes
        assert five.layers == one.layers
        assert one.total_bytes == one.parameter_bytes + one.activation_bytes


def test_conventions_of_memory_are_none_of_flops() -> None:
    with pytest.raises(PocketuneError, match="no published convention 'tinytl' here; choose from"):
        published_flops(nn.Conv2d(3, 4, 3), "tinytl")
