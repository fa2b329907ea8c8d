"""The phases of progressive shrinking."""

from __future__ import annotations

from pocketune.shrinking.phases import Phase, phases
from pocketune.supernet import Space


def drawn(phase: Phase) -> tuple[tuple[int, ...], ...]:
    return phase.space.kernels, phase.space.depths, phase.space.expansions


def test_the_published_phases() -> None:
    """Once for All's public script; the rates are those of a batch of 64."""
    found = [
        (*drawn(phase), phase.stage.subnets, phase.epochs, round(0.03 * phase.stage.lr, 6))
        for phase in phases(Space())
    ]
    everything = (3, 5, 7), (2, 3, 4), (3, 4, 6)
    assert found == [
        ((7,), (4,), (6,), 1, 180, 0.08),
        ((3, 5, 7), (4,), (6,), 1, 125, 0.03),
        ((3, 5, 7), (3, 4), (6,), 2, 25, 0.0025),
        ((3, 5, 7), (2, 3, 4), (6,), 2, 125, 0.0075),
        ((3, 5, 7), (2, 3, 4), (4, 6), 4, 25, 0.0025),
        (*everything, 4, 125, 0.0075),
    ]


def test_channels_are_sorted_before_each_phase_of_width() -> None:
    assert [(phase.sorts, phase.keep) for phase in phases(Space())] == [
        (False, None),
        (False, None),
        (False, None),
        (False, None),
        (True, None),
        (True, 4),
    ]


def test_a_smaller_space_has_fewer_phases() -> None:
    found = phases(Space(kernels=(3,), depths=(1, 2), expansions=(6,)), epochs=12)
    assert [(drawn(phase), phase.epochs) for phase in found] == [
        (((3,), (2,), (6,)), 18),
        (((3,), (1, 2), (6,)), 12),
    ]


def test_modules_shrink_with_the_kernels() -> None:
    space = Space(module_groups=(2, 4), module_kernels=(3, 5))
    largest, kernel, *_ = phases(space)
    assert (largest.space.module_groups, largest.space.module_kernels) == ((2,), (5,))
    assert (kernel.space.module_groups, kernel.space.module_kernels) == ((2, 4), (3, 5))


def test_a_later_start_leaves_earlier_phases_out() -> None:
    names = [phase.stage.name for phase in phases(Space(), start="depth")]
    assert names == ["depth", "depth", "width", "width"]
    assert phases(Space(), start="width")[0].sorts
