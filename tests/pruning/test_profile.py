"""Memory by block, and the model of peaks, against figures added up by hand."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.accounting import LayerCost
from pocketune.papers.counts import PublishedMemory
from pocketune.pruning import MemoryProfile, Recipe
from pocketune.pruning.profile import PeakModel
from pocketune.surgery.channels import FEWEST


def memory(*layers: tuple[str, str | None, int, int], shortcut: int = 0) -> PublishedMemory:
    """Of layers (path, block, kept, temporary); every layer of a block holds its `shortcut`."""
    held, costs = 0, []
    for name, block, kept, temporary in layers:
        costs.append(
            LayerCost(
                name=name,
                kind="Conv2d",
                block=block,
                kept_bytes=kept,
                cumulative_kept_bytes=held + kept,
                temporary_bytes=temporary,
                peak_bytes=temporary + held + (shortcut if block else 0),
            )
        )
        held += kept
    return PublishedMemory("made up", 1, held, 0, held, None, tuple(costs))


def network(one: int, two: int, shortcut: int = 0) -> PublishedMemory:
    """Two blocks with so many hidden channels of 100 bytes each, behind a stem.

    Each block's first layer makes the hidden channels and keeps nothing, its second reads and
    keeps them.
    """
    return memory(
        ("stem", None, 1000, 5000),
        ("a.0", "a", 0, 400 + 100 * one),
        ("a.1", "a", 100 * one, 100 * one + 200),
        ("b.0", "b", 0, 200 + 100 * two),
        ("b.1", "b", 100 * two, 100 * two + 600),
        ("classifier", None, 70, 80),
        shortcut=shortcut,
    )


COUNTS = {"a": 40, "b": 60}
FULL = network(40, 60)


def model(counts: Mapping[str, int] = COUNTS, shortcut: int = 0) -> PeakModel:
    full, least = network(40, 60, shortcut), network(FEWEST, FEWEST, shortcut)
    return PeakModel(full, least, counts, {})


def test_a_profile_has_the_blocks_and_what_is_kept_in_the_end() -> None:
    profile = MemoryProfile.of(FULL)
    assert [block.name for block in profile.blocks] == ["a", "b"]
    assert profile.cumulative_kept_bytes == 1000 + 4000 + 6000 + 70
    a, b = profile.blocks
    assert (a.temporary_bytes, a.peak_bytes) == (4400, 5400)
    assert (a.kept_bytes, a.cumulative_kept_bytes) == (4000, 5000)
    assert (b.temporary_bytes, b.peak_bytes) == (6600, 11600)
    assert profile.peak is b
    assert profile.block("a") is a


@pytest.mark.parametrize(
    ("target", "above", "sensitive"),
    [
        (4399, ("a", "b"), ("a", "b")),
        (4400, ("a", "b"), ("b",)),  # a limit may be reached
        (5400, ("b",), ("b",)),
        (6600, ("b",), ()),
        (11599, ("b",), ()),
        (11600, (), ()),
    ],
)
def test_blocks_above_a_target_by_their_peak_and_sensitive_by_what_is_temporary(
    target: int, above: tuple[str, ...], sensitive: tuple[str, ...]
) -> None:
    profile = MemoryProfile.of(FULL)
    assert profile.above(target) == above
    assert profile.sensitive(target) == sensitive


def peaks(found: PublishedMemory) -> dict[str, int]:
    return {block.name: block.peak_bytes for block in MemoryProfile.of(found).blocks}


@pytest.mark.parametrize("shortcut", [0, 777])
def test_the_model_is_exact_at_both_its_measurements(shortcut: int) -> None:
    made = model(shortcut=shortcut)
    for channels in (COUNTS, dict.fromkeys(COUNTS, FEWEST)):
        expected = peaks(network(channels["a"], channels["b"], shortcut))
        assert {block: made.peak(block, channels) for block in COUNTS} == expected


@given(one=st.integers(FEWEST, 40), two=st.integers(FEWEST, 60), shortcut=st.integers(0, 5000))
def test_the_model_is_exact_between_them_but_for_rounded_masks(
    one: int, two: int, shortcut: int
) -> None:
    made, channels = model(shortcut=shortcut), {"a": one, "b": two}
    expected = peaks(network(one, two, shortcut))
    for block, layers in (("a", 0), ("b", 1)):  # layers before the peak that keep something
        error = made.peak(block, channels) - expected[block]
        assert -1e-6 <= error <= layers + 1e-6


@given(channels=st.integers(FEWEST, 61), pixels=st.integers(1, 9))
def test_masks_of_one_bit_are_never_estimated_too_small(channels: int, pixels: int) -> None:
    """They are rounded up to bytes at every number of channels, and not only at the two."""

    def masks(count: int) -> PublishedMemory:
        kept = -(-count * pixels // 8)
        return memory(("a.0", "a", kept, 0), ("a.1", "a", kept, 0), ("a.2", "a", 0, 50))

    made = PeakModel(masks(61), masks(FEWEST), {"a": 61}, {})
    estimate, measured = made.peak("a", {"a": channels}), peaks(masks(channels))["a"]
    assert measured <= estimate + 1e-9
    assert estimate <= measured + 2 * 2  # two masks


@given(one=st.integers(FEWEST, 39), two=st.integers(FEWEST, 60))
def test_a_channel_more_never_takes_less(one: int, two: int) -> None:
    made = model()
    for block in COUNTS:
        fewer = made.peak(block, {"a": one, "b": two})
        more = made.peak(block, {"a": one + 1, "b": two})
        assert fewer <= more + 1  # the byte by which masks are rounded up


def test_what_later_blocks_have_does_not_count() -> None:
    made = model()
    assert made.peak("a", {"a": 20, "b": FEWEST}) == made.peak("a", {"a": 20, "b": 60})


def test_a_block_without_counts_keeps_all_its_channels() -> None:
    made = model({"b": 60})
    assert made.peak("a", {"b": FEWEST}) == peaks(FULL)["a"]
    assert made.peak("b", {"b": 60}) == peaks(FULL)["b"]


def test_a_layer_outside_that_makes_hidden_channels_shrinks_with_its_block() -> None:
    """As the stem does for a first block without an expansion."""
    full = memory(("stem", None, 800, 900), ("a.0", "a", 400, 1000))
    least = memory(("stem", None, 20, 100), ("a.0", "a", 10, 30))
    alone = PeakModel(full, least, {"a": 40}, {})
    owned = PeakModel(full, least, {"a": 40}, {"stem": "a"})
    assert alone.peak("a", {"a": FEWEST}) == 800 + 30
    assert owned.peak("a", {"a": FEWEST}) == 20 + 30
    assert alone.peak("a", {"a": 40}) == owned.peak("a", {"a": 40}) == 800 + 1000


CHOICES = {"a": range(FEWEST, 41), "b": range(FEWEST, 61)}


@given(st.integers(1000, 12000))
def test_each_block_keeps_the_most_channels_that_fit(limit: int) -> None:
    made = model()
    sensitive = MemoryProfile.of(FULL).above(limit)
    left, failed = made.fit(sensitive, CHOICES, limit)
    counts = {**COUNTS, **left}
    for block, count in left.items():
        assert made.peak(block, counts) <= limit
        assert count < COUNTS[block]
        assert made.peak(block, {**counts, block: count + 1}) > limit
    if failed is None:
        assert all(made.peak(block, counts) <= limit for block in COUNTS)
    else:
        assert made.peak(failed, {**counts, failed: FEWEST}) > limit


@given(st.integers(3000, 12000), st.integers(0, 3000))
def test_a_larger_target_leaves_the_first_block_no_narrower(limit: int, more: int) -> None:
    def first(target: int) -> int | None:
        left, failed = model().fit(MemoryProfile.of(FULL).above(target), CHOICES, target)
        return None if failed == "a" else left.get("a", COUNTS["a"])

    small, large = first(limit), first(limit + more)
    assert small is None or (large is not None and large >= small)


def test_only_possible_numbers_of_channels_are_chosen() -> None:
    left, failed = model().fit(["a"], {"a": [8, 16, 24, 32, 40], "b": CHOICES["b"]}, 4300)
    assert (left, failed) == ({"a": 24}, None)  # 29 would fit


def test_the_floor_can_be_reached_and_no_byte_less() -> None:
    made, before = model(), MemoryProfile.of(FULL)
    floor, _ = made.floor(before, CHOICES)
    assert made.fit(before.above(floor), CHOICES, floor)[1] is None
    assert made.fit(before.above(floor - 1), CHOICES, floor - 1)[1] is not None


def test_a_block_without_choices_sets_the_floor() -> None:
    made, before = model({"a": 40}), MemoryProfile.of(FULL)
    _, block = made.floor(before, {"a": CHOICES["a"]})
    assert block == "b"


@pytest.mark.parametrize(
    ("options", "lr"),
    [({}, 0.01), ({"follow": "blocks"}, 0.05), ({"follow": "blocks", "lr": 0.2}, 0.2)],
)
def test_a_recipe_s_peak_learning_rate(options: dict, lr: float) -> None:
    assert Recipe(**options).peak_lr == lr
