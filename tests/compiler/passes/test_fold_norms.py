"""Frozen norms in convolutions: programs compute the same in float64, and what must stay stays."""

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.passes.fold import fold_norms, fold_padding
from pocketune.compiler.passes.program import Program
from pocketune.compiler.passes.simplify import fold_constants, skip_copies

from .programs import program_of, run, targets

Norm = Callable[[Tensor, Tensor, Tensor], Tensor]

NORMS: dict[str, Norm] = {
    "scale": lambda y, scale, shift: y * scale,
    "shift": lambda y, scale, shift: y + shift,
    "scale and shift": lambda y, scale, shift: y * scale + shift,
    "shift and scale": lambda y, scale, shift: (y + shift) * scale,
    "both at once": lambda y, scale, shift: torch.addcmul(shift, y, scale),
    "twice": lambda y, scale, shift: (y * scale + shift) * scale + shift,
}


def double(*shape: int, seed: int = 0, grad: bool = False) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.requires_grad_(grad)


def folded(
    function: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], constants: Sequence[Tensor]
) -> Program:
    """The program behind the pass; it must compute what the function does."""
    program = program_of(function, inputs, constants)
    for prepare in (fold_constants, skip_copies, fold_norms):
        prepare(program)
    expected = function(*inputs, *constants)
    with torch.no_grad():
        torch.testing.assert_close(run(program, inputs), [t.detach() for t in expected])
    return program


@settings(max_examples=20)
@given(
    norm=st.sampled_from(sorted(NORMS)),
    kernel=st.sampled_from([1, 3]),
    stride=st.integers(1, 2),
    groups=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
)
def test_no_operation_on_a_whole_map_is_left(
    norm: str, kernel: int, stride: int, groups: int, bias: bool
) -> None:
    def forward(x: Tensor, w: Tensor, b: Tensor, scale: Tensor, shift: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w, b if bias else None, stride, kernel // 2, groups=groups)
        return [NORMS[norm](y, scale, shift)]

    constants = [double(8, 4 // groups, kernel, kernel, seed=1), double(8, seed=2)]
    constants += [double(1, 8, 1, 1, seed=3), double(1, 8, 1, 1, seed=4)]
    program = folded(forward, [double(2, 4, 5, 3)], constants)
    assert targets(program) == ["convolution.default"]


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("kernel", [1, 3])
def test_the_gradient_goes_through_the_scaled_kernel(kernel: int, groups: int) -> None:
    def step(x: Tensor, g: Tensor, w: Tensor, scale: Tensor, shift: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w, padding=kernel // 2, groups=groups) * scale + shift
        return list(torch.autograd.grad(y, [x], g))

    constants = [double(4, 4 // groups, kernel, kernel, seed=1)]
    constants += [double(1, 4, 1, 1, seed=3), double(1, 4, 1, 1, seed=4)]
    inputs = [double(2, 4, 5, 3, grad=True), double(2, 4, 5, 3, seed=5)]
    program = folded(step, inputs, constants)
    assert not any(name.startswith("mul") for name in targets(program))


@pytest.mark.parametrize("outputs", [4, 5])
def test_the_gradient_of_a_transposed_convolution_keeps_its_scale(outputs: int) -> None:
    """The first axis of its kernel are inputs."""

    def step(x: Tensor, g: Tensor, w: Tensor, scale: Tensor) -> list[Tensor]:
        y = F.conv_transpose2d(x, w, stride=2) * scale
        return list(torch.autograd.grad(y, [x], g))

    constants = [double(4, outputs, 2, 2, seed=1), double(1, outputs, 1, 1, seed=2)]
    inputs = [double(2, 4, 3, 3, grad=True), double(2, outputs, 6, 6, seed=3)]
    folded(step, inputs, constants)


def test_a_trained_kernel_keeps_the_scale_and_takes_the_shift_as_its_bias() -> None:
    def forward(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor) -> list[Tensor]:
        return [F.conv2d(x, w) * scale, F.conv2d(x, w) + shift]

    inputs = [double(2, 4, 3, 3), double(6, 4, 1, 1, seed=1)]
    program = folded(forward, inputs, [double(1, 6, 1, 1, seed=2), double(1, 6, 1, 1, seed=3)])
    names = targets(program)
    assert sum(name.startswith("mul") for name in names) == 1
    assert not any(name.startswith("add") for name in names)


@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1, 1), (1, 4, 3, 3), (2, 4, 1, 1), (1, 1, 1, 3), (4, 1, 1)],
    ids=str,
)
def test_a_factor_that_is_not_one_number_a_channel_stays(shape: tuple[int, ...]) -> None:
    def forward(x: Tensor, w: Tensor, factor: Tensor) -> list[Tensor]:
        return [F.conv2d(x, w) * factor, F.conv2d(x, w) + factor]

    program = folded(forward, [double(2, 4, 3, 3)], [double(4, 4, 1, 1), double(*shape, seed=1)])
    names = targets(program)
    assert sum(name.startswith(("mul", "add")) for name in names) == 2


def test_a_shift_that_is_multiplied_first_stays() -> None:
    def forward(x: Tensor, w: Tensor, shift: Tensor) -> list[Tensor]:
        return [torch.add(F.conv2d(x, w), shift, alpha=2)]

    program = folded(forward, [double(2, 4, 3, 3)], [double(4, 4, 1, 1), double(1, 4, 1, 1)])
    assert any(name.startswith("add") for name in targets(program))


def test_a_trained_bias_is_not_scaled() -> None:
    def forward(x: Tensor, b: Tensor, w: Tensor, scale: Tensor) -> list[Tensor]:
        return [F.conv2d(x, w, b) * scale]

    inputs = [double(2, 4, 3, 3), double(4, seed=1)]
    program = folded(forward, inputs, [double(4, 4, 1, 1, seed=2), double(1, 4, 1, 1, seed=3)])
    assert any(name.startswith("mul") for name in targets(program))


def test_a_transposed_convolution_is_not_scaled_by_its_outputs() -> None:
    """The first axis of its kernel are inputs."""

    def forward(x: Tensor, w: Tensor, scale: Tensor) -> list[Tensor]:
        return [F.conv_transpose2d(x, w) * scale]

    program = folded(forward, [double(2, 4, 3, 3)], [double(4, 4, 3, 3), double(1, 4, 1, 1)])
    assert any(name.startswith("mul") for name in targets(program))


def test_a_transposed_convolution_takes_the_scale_before_it() -> None:
    def forward(x: Tensor, w: Tensor, scale: Tensor) -> list[Tensor]:
        return [F.conv_transpose2d(x.exp() * scale, w, stride=2)]

    program = folded(forward, [double(2, 4, 3, 3)], [double(4, 6, 3, 3), double(1, 4, 1, 1)])
    assert targets(program) == ["exp.default", "convolution.default"]


def test_an_ordinary_convolution_does_not_take_the_scale_before_it() -> None:
    """Its kernel would have to be scaled along the other axis."""

    def forward(x: Tensor, w: Tensor, scale: Tensor) -> list[Tensor]:
        return [F.conv2d(x.exp() * scale, w)]

    program = folded(forward, [double(2, 4, 3, 3)], [double(4, 4, 1, 1), double(1, 4, 1, 1)])
    assert any(name.startswith("mul") for name in targets(program))


def test_the_output_before_the_norm_is_still_there_for_those_who_ask() -> None:
    def forward(x: Tensor, w: Tensor, scale: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w)
        return [y, y * scale]

    program = folded(forward, [double(2, 4, 3, 3)], [double(4, 4, 1, 1), double(1, 4, 1, 1)])
    assert targets(program) == ["convolution.default"] * 2


def test_a_convolution_that_is_given_is_not_changed() -> None:
    """What it was computed from is not looked at, its kernel included."""

    def forward(x: Tensor, w: Tensor, scale: Tensor) -> list[Tensor]:
        return [F.conv2d(x, w) * scale]

    whole = program_of(forward, [double(2, 4, 3, 3)], [double(4, 4, 1, 1), double(1, 4, 1, 1)])
    (convolution,) = (n for n in whole.graph.nodes if "convolution" in str(n.target))
    program = Program(whole.wanted, [convolution], dict(whole.constants))  # type: ignore[arg-type]
    fold_norms(program)
    assert targets(program) == ["mul.Tensor"]


def test_pads_that_were_taken_up_stay_with_the_scaled_convolution() -> None:
    def forward(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor) -> list[Tensor]:
        return [F.conv2d(F.pad(x, (0, 1, 2, 3)), w) * scale + shift]

    constants = [double(4, 4, 3, 3), double(1, 4, 1, 1, seed=1), double(1, 4, 1, 1, seed=2)]
    program = program_of(forward, [double(2, 4, 5, 5)], constants)
    for each in (fold_constants, skip_copies, fold_padding, fold_norms):
        each(program)
    (left,) = program.needed()
    assert left.meta["pads"] == (2, 0, 3, 1)
