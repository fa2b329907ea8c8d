"""Memory by operator, of events that are written down by hand."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.accounting.record import Event, Freed, Operation
from pocketune.accounting.timeline import Memory, Role, Snapshot, largest_bytes, peak, timeline

RESIDENT = Memory(trained_parameters=100, optimizer=200)


def ran(
    made: dict[int, int] | None = None,
    touched: tuple[int, ...] = (),
    *,
    phase: str = "forward",
    module: str = "layer",
    workspace: int = 0,
) -> Operation:
    made = made or {}
    return Operation(phase, module, "aten.op", frozenset((*touched, *made)), made, workspace, 0, 0)


def memories(events: list[Event], roles: dict[int, Role], given: dict[int, int]) -> list[Memory]:
    return [snapshot.memory for snapshot in timeline(events, roles, RESIDENT, given)]


def test_what_is_resident_is_there_at_every_operator() -> None:
    for memory in memories([ran(), ran(phase="backward")], {}, {}):
        assert memory == RESIDENT


def test_each_role_has_its_category() -> None:
    roles = {0: Role.IMAGES, 1: Role.KEPT, 2: Role.GRADIENT}
    (memory,) = memories([ran({1: 10, 2: 20, 3: 40})], roles, {0: 5})
    assert (memory.images, memory.kept, memory.gradients, memory.temporaries) == (5, 10, 20, 40)
    assert memory.total == 375


def test_images_that_are_kept_count_as_kept_from_the_start() -> None:
    (memory,) = memories([ran()], {0: Role.KEPT}, {0: 5})
    assert (memory.images, memory.kept) == (0, 5)


def test_a_storage_counts_until_it_is_freed() -> None:
    events: list[Event] = [
        ran({1: 10}),
        ran({2: 20}, (1,)),
        Freed(1),
        ran({}, (2,)),
        Freed(2),
        ran(),
    ]
    assert [m.temporaries for m in memories(events, {}, {})] == [10, 30, 20, 0]


def test_kept_tensors_and_images_are_freed_in_the_backward_pass() -> None:
    roles = {0: Role.IMAGES, 1: Role.KEPT}
    events: list[Event] = [ran({1: 10}), Freed(1), Freed(0), ran(phase="backward")]
    before, after = memories(events, roles, {0: 5})
    assert (before.kept, before.images) == (10, 5)
    assert (after.kept, after.images) == (0, 0)


def test_a_storage_that_was_there_before_the_step_may_be_freed() -> None:
    assert memories([Freed(7), ran()], {}, {}) == [RESIDENT]


def test_temporaries_that_an_operator_does_not_touch_wait_in_the_forward_pass() -> None:
    shortcut = [ran({1: 10}), ran({2: 20})]
    assert [(m.residual, m.temporaries) for m in memories([*shortcut], {}, {})] == [
        (0, 10),
        (10, 20),
    ]
    backward = [ran({1: 10}, phase="backward"), ran({2: 20}, phase="backward")]
    assert [(m.residual, m.temporaries) for m in memories([*backward], {}, {})] == [
        (0, 10),
        (0, 30),
    ]


def test_a_storage_of_a_role_never_waits() -> None:
    _, second = memories([ran({1: 10}), ran({2: 20})], {1: Role.KEPT}, {})
    assert (second.residual, second.kept, second.temporaries) == (0, 10, 20)


def test_a_workspace_is_there_while_its_operator_runs() -> None:
    assert [m.workspace for m in memories([ran(workspace=9), ran()], {}, {})] == [9, 0]


def test_a_snapshot_says_where_it_was_taken() -> None:
    (snapshot,) = timeline([ran(phase="backward", module="fc")], {}, RESIDENT, {})
    assert (snapshot.phase, snapshot.layer, snapshot.operator) == ("backward", "fc", "aten.op")


@given(st.lists(st.tuples(st.integers(1, 50), st.booleans(), st.integers(0, 9)), max_size=12))
def test_the_total_is_what_was_made_and_not_freed(steps: list[tuple[int, bool, int]]) -> None:
    """Sizes, whether each is kept, and how many operators later it is freed."""
    events: list[Event] = []
    expected = []
    roles = {number: Role.KEPT for number, (_, kept, _) in enumerate(steps) if kept}
    for now, (size, _, _) in enumerate(steps):
        events.append(ran({now: size}))
        alive = [s for i, (s, _, life) in enumerate(steps[: now + 1]) if i + life >= now]
        expected.append(RESIDENT.total + sum(alive))
        events += [Freed(i) for i, (_, _, life) in enumerate(steps[: now + 1]) if i + life == now]
    assert [memory.total for memory in memories(events, roles, {})] == expected


def test_every_category_counts_once_in_the_total() -> None:
    powers = {field.name: 2**number for number, field in enumerate(fields(Memory))}
    memory = Memory(**powers)
    assert memory.total == 2 ** len(powers) - 1
    assert memory.by_category() == powers == json.loads(json.dumps(asdict(memory)))


def snapshots(*temporaries: int) -> list[Snapshot]:
    return [
        Snapshot("forward", str(number), "aten.op", Memory(temporaries=size))
        for number, size in enumerate(temporaries)
    ]


def test_the_peak_is_the_first_of_the_highest() -> None:
    assert peak(snapshots(1, 5, 5, 2)).layer == "1"


def test_the_largest_of_each_category_may_come_from_different_moments() -> None:
    first = Snapshot("forward", "", "", Memory(kept=3, temporaries=9))
    second = Snapshot("backward", "", "", Memory(kept=8, gradients=1))
    largest = largest_bytes([first, second])
    assert (largest["kept"], largest["temporaries"], largest["gradients"]) == (8, 9, 1)
    assert largest["images"] == 0


@pytest.mark.parametrize("role", Role)
def test_every_role_is_a_category_of_memory(role: Role) -> None:
    assert role.value in Memory().by_category()
