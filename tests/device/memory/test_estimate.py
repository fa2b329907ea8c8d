"""The memory estimate: what makes it grow, and what does not."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketune.data.images.cost import Decoding
from pocketune.data.images.headers import Header
from pocketune.data.loader import AHEAD
from pocketune.device.memory.estimate import (
    CLOSED,
    OPENING,
    REOPENING,
    MemoryEstimate,
    cell_fit_bytes,
    ending_bytes,
    estimate_memory,
    estimate_prediction,
    with_description,
)
from pocketune.device.memory.graphs import (
    ARENA_OVERHEAD,
    FEATURES_HELD,
    LEAST_REGION,
    MOST_REGION,
    OPENING_COPIES,
    OPENING_LARGEST,
    REGION_OVERHEAD,
    WEIGHTS_OVERHEAD,
    arena_region,
    arena_sizes,
    held,
)
from pocketune.device.memory.photos import SCORED_STRIPS, decoded_bytes, waiting_bytes
from pocketune.device.use.known import description_bytes
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import PACKED_WEIGHTS, GraphSpec
from pocketune.tasks import Segmentation
from pocketune.tasks.maps import STRIP

from ..pixel_kit import write_pixel_kit
from ..tiny_kit import TinyKit


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    return TinyKit(statistic=False, masks=False).write(tmp_path_factory.mktemp("estimate") / "kit")


def estimate(kit: Kit, **options: int) -> MemoryEstimate:
    return estimate_memory(kit.manifest, **{"process": 1000, "classes": 3, "slots": 2, **options})


@pytest.mark.parametrize("name", ["process", "classes", "slots", "batch", "accumulate"])
@settings(max_examples=20)
@given(first=st.integers(1, 64), second=st.integers(1, 64))
def test_more_of_anything_never_takes_less(kit: Kit, name: str, first: int, second: int) -> None:
    small, large = (estimate(kit, **{name: n}) for n in sorted((first, second)))
    for field in fields(MemoryEstimate):
        if field.name != "graphs":  # opening them is hidden by what is held later
            assert getattr(small, field.name) <= getattr(large, field.name)
    assert small.total <= large.total


def test_the_kits_batch_is_meant_unless_another_is_given(kit: Kit) -> None:
    assert estimate(kit) == estimate(kit, batch=kit.manifest.batch)


def test_the_process_is_counted_once_and_changes_nothing_else(kit: Kit) -> None:
    before, after = estimate(kit), estimate(kit, process=5000)
    assert after == replace(before, process=5000)
    assert after.total - before.total == 4000


def test_each_slot_takes_the_trained_parameters_once_more(kit: Kit) -> None:
    sizes = [estimate(kit, slots=slots).optimizer for slots in (0, 1, 2)]
    assert sizes[0] == 0
    assert sizes[2] == 2 * sizes[1] == 2 * estimate(kit).parameters


def test_accumulation_takes_a_second_gradient_and_more_photos(kit: Kit) -> None:
    one, two, three = (estimate(kit, accumulate=n) for n in (1, 2, 3))
    assert two.parameters == three.parameters == 2 * one.parameters
    assert one.photos < two.photos < three.photos
    assert one.activations == three.activations


def test_a_step_in_parts_takes_their_memory_and_the_sum_of_their_gradients(kit: Kit) -> None:
    whole = replace(kit, manifest=replace(kit.manifest, batch=16, micro_batch=16))
    parts = replace(kit, manifest=replace(kit.manifest, batch=16, micro_batch=4))
    assert estimate(parts).parameters == 2 * estimate(whole).parameters
    assert estimate(parts).photos == estimate(whole).photos
    assert estimate(parts, accumulate=2).parameters == 3 * estimate(whole).parameters
    arena = estimate(whole).activations - estimate(whole, batch=8).activations
    assert arena > 0
    assert estimate(parts).activations == estimate(parts, batch=8).activations


def test_the_estimate_names_every_part_and_its_size() -> None:
    text = str(MemoryEstimate(1_000_000, 24_000_000, 0, 0, 0, 0, 5_500_000))
    assert text == (
        "process 1.0 MB, runtime 24 MB, graphs 0.0 MB, activations 0.0 MB, "
        "parameters 0.0 MB, optimizer 0.0 MB, photos 5.5 MB"
    )


def test_masks_that_wait_and_one_that_is_compared_are_counted(kit: Kit) -> None:
    task = Segmentation(kit.manifest.classes, kit.manifest.task.head)
    manifest = replace(kit.manifest, task=task)
    header = Header("JPEG", "RGB", 4000, 3000)
    none = Decoding("1.jpg", header, 10_000_000, 0)
    masks = (100_000,) * 100
    packed = replace(none, masks=masks, compared=12_000_000)
    plain, more = (
        estimate_prediction(manifest, process=1000, classes=3, decoding=each).photos
        for each in (none, packed)
    )
    assert more - plain == 12_000_000 + (AHEAD + 2) * kit.manifest.batch * 100_000
    written = replace(none, beside=20_000_000)
    found = estimate_prediction(manifest, process=1000, classes=3, decoding=written).photos
    assert found - plain == 20_000_000
    runs = [
        estimate_memory(manifest, process=1000, classes=3, slots=0, decoding=each).photos
        for each in (none, packed)
    ]
    assert runs[1] - runs[0] > 12_000_000


def with_graph(kit: Kit, name: str, **facts: int) -> Kit:
    """The kit with another graph of this name in its manifest."""
    graphs = {**kit.manifest.graphs, name: replace(kit.manifest.graphs[name], **facts)}
    return replace(kit, manifest=replace(kit.manifest, graphs=graphs))


def features(kit: Kit, batch: int) -> int:
    """Bytes of the features that are held of a batch."""
    return FEATURES_HELD * 4 * batch * math.prod(kit.manifest.features or (0,))


def test_of_step_and_prediction_only_the_larger_is_open(kit: Kit) -> None:
    step = with_graph(kit, "step", nodes=10_000)
    both = with_graph(step, "predict", nodes=10_000)
    assert estimate(both).graphs - estimate(step).graphs < 4_000_000  # for opening one


def test_the_graphs_share_one_arena(kit: Kit) -> None:
    large = with_graph(kit, "step", memory=50_000_000, weights=0)
    assert estimate(large) == estimate(with_graph(large, "predict", memory=40_000_000))
    arena = round(ARENA_OVERHEAD * 50_000_000)
    assert estimate(large).activations == arena + features(large, kit.manifest.batch)


def test_the_frozen_part_does_not_grow_with_the_batch(kit: Kit) -> None:
    large = with_graph(kit, "features", memory=90_000_000)
    images = kit.manifest.batch
    all_at_once, one = (
        estimate(large, batch=n).activations - features(kit, n) for n in (images, 1)
    )
    assert all_at_once == one


@pytest.mark.parametrize("graph", ["features", "step", "predict"])
def test_a_graph_of_the_manifest_is_counted(kit: Kit, graph: str) -> None:
    assert isinstance(kit.manifest.graphs[graph], GraphSpec)
    more = with_graph(kit, graph, nodes=100_000)
    assert estimate(more).total - estimate(kit).total > 100_000_000


def test_gaps_in_the_arena_are_counted(kit: Kit) -> None:
    more = with_graph(kit, "step", arena=50_000_000)
    arena = ARENA_OVERHEAD * 50_000_000
    assert 0.98 * arena < estimate(more).activations - estimate(kit).activations < arena


def test_what_the_arena_reserves_leaves_a_rest_larger_than_the_gaps(kit: Kit) -> None:
    """Also where the manifest is damaged: the runtime doubles a region until a tensor fits."""
    large = with_graph(kit, "step", arena=50_000_000)
    arena = max(arena_sizes(large.manifest, large.manifest.batch).values())
    assert arena_region(large.manifest) == round(REGION_OVERHEAD * arena) >= round(1.5 * arena)
    for graph in kit.manifest.graphs:
        kit = with_graph(kit, graph, memory=0, arena=0)
    assert arena_region(kit.manifest) == LEAST_REGION
    assert arena_region(with_graph(kit, "step", arena=1 << 50).manifest) == MOST_REGION


def test_the_features_of_a_batch_are_counted(kit: Kit) -> None:
    """They are small for a class of each image, and tens of megabytes for one of each pixel."""
    wide = replace(kit, manifest=replace(kit.manifest, features=(320, 64, 64)))
    more = estimate(wide, batch=4).activations - estimate(kit, batch=4).activations
    once = features(wide, 4) // FEATURES_HELD  # the heap returns what is large
    assert more == once - features(kit, 4) > 10_000_000


def test_a_validation_of_masks_is_counted(kit: Kit) -> None:
    task = Segmentation(kit.manifest.classes, kit.manifest.task.head)
    dense = replace(kit, manifest=replace(kit.manifest, task=task))
    size = kit.manifest.size
    labels = (AHEAD + 2) * (size * size - 8)
    more = estimate(dense, batch=1).photos - estimate(kit, batch=1).photos
    graphs = held(dense.manifest)
    closed = graphs["step"].open - graphs["predict"].open
    assert 0 < closed < SCORED_STRIPS * 4 * STRIP
    assert more == labels + SCORED_STRIPS * 4 * STRIP - closed


def test_the_classifier_of_masks_is_counted_above_a_trained_decode_head(tmp_path: Path) -> None:
    kit = write_pixel_kit(tmp_path / "kit", decode_head=True)
    options: dict[str, Any] = {"process": 1000, "classes": 3, "slots": 0}
    without, random, trained = (
        estimate_memory(kit.manifest, **options, **more)
        for more in ({}, {"images": 10}, {"images": 10, "trained": True})
    )
    assert without == random
    values = without.parameters + without.photos
    needed = 1000 + values + cell_fit_bytes(kit.manifest, channels=3, classes=3)
    assert trained == replace(without, head=max(0, needed - without.total))
    assert cell_fit_bytes(kit.manifest, channels=600, classes=3) > needed + 20_000_000


def test_images_wait_with_their_labels_and_one_is_decoded_in_each_thread() -> None:
    pixels = 3 * 32 * 32
    assert waiting_bytes(32, 4) == 4 * pixels
    assert waiting_bytes(32, 4, label=32 * 32) == 4 * pixels + 4 * 32 * 32
    assert decoded_bytes(32, None) == 2 * (16 * pixels // 3 + pixels)


@given(st.integers(1, 200), st.integers(1, 200))
def test_batches_wait_if_there_are_so_many(kit: Kit, few: int, many: int) -> None:
    few, many = sorted((few, many))
    assert estimate(kit, photos=few).photos <= estimate(kit, photos=many).photos
    assert estimate(kit, photos=4 * kit.manifest.batch) == estimate(kit)
    assert estimate(kit, photos=1).photos < estimate(kit).photos


def test_opening_an_optimized_prediction_is_counted(kit: Kit) -> None:
    """The step is executed as written, and opened without copies in other layouts."""
    wide = {"weights": 50_000_000, "largest": 40_000_000}
    predict, step = (estimate(with_graph(kit, n, **wide)).total for n in ("predict", "step"))
    assert predict > step + 100_000_000


WIDE = {"weights": 50_000_000, "largest": 40_000_000}


def phase(kit: Kit, **facts: object) -> int:
    """The total where opening the graphs sets it, with a state of 20 MB and an arena of 9 MB."""
    large = with_graph(kit, "step", memory=9_000_000)
    changed = replace(large, manifest=replace(large.manifest, **facts))
    parameters = sum(4 * math.prod(spec.shape) for spec in kit.manifest.parameters)
    return estimate(changed, slots=20_000_000 / parameters).total


def test_graphs_that_are_opened_once_more_find_the_arena_and_the_optimizer(kit: Kit) -> None:
    arena, state = round(ARENA_OVERHEAD * 9_000_000), 20_000_000
    wide = with_graph(kit, "features", **WIDE)
    small = estimate(wide, slots=0)
    # Once the classifier of the trained features has been computed.
    again = phase(wide, embeddings=8)
    more = CLOSED + REOPENING - OPENING + features(kit, kit.manifest.batch)
    decoded = decoded_bytes(kit.manifest.size, None)
    assert again - small.total == pytest.approx(state + arena + more + decoded, abs=100)
    # Without embeddings, the classifier is not computed from the features of the steps.
    assert again - phase(wide, embeddings=None) == pytest.approx(arena, rel=0.05)
    # Where only the output layer is trained, the features stay as they were.
    head = tuple(s for s in kit.manifest.parameters if s.name in kit.manifest.task.head)
    assert phase(wide, embeddings=8, parameters=head) < again - arena + 1_000_000


def test_a_prediction_that_is_opened_after_the_steps_finds_their_arena(kit: Kit) -> None:
    wide = with_graph(kit, "predict", **WIDE)
    large = with_graph(wide, "step", memory=70_000_000)
    for refits in (False, True):
        more = estimate(large, refits=refits).total - estimate(wide, refits=refits).total
        assert more > 65_000_000


def test_constants_that_a_step_packs_are_in_its_arena_once_more(kit: Kit) -> None:
    none, packed, more = (
        estimate(with_graph(kit, "step", memory=10_000_000, weights=weights)).activations
        for weights in (0, PACKED_WEIGHTS, PACKED_WEIGHTS + 1)
    )
    assert packed == none + PACKED_WEIGHTS
    assert more == none


def test_kernels_that_are_not_converted_are_in_memory_once(kit: Kit) -> None:
    few, many = (
        estimate(with_graph(kit, "predict", weights=50_000_000, largest=each)).total
        for each in (0, 1)
    )
    assert many - few == (OPENING_COPIES - WEIGHTS_OVERHEAD) * 50_000_000 + OPENING_LARGEST


def test_a_prediction_holds_its_values_twice_and_never_the_step(kit: Kit) -> None:
    values = sum(4 * math.prod(shape) for shape in kit.manifest.shapes(3).values())
    found = estimate_prediction(kit.manifest, process=1000, classes=3)
    assert (found.process, found.parameters, found.optimizer) == (1000, 2 * values, 0)
    step = replace(kit.manifest.graphs["step"], memory=10**9, weights=10**9, nodes=10**6)
    heavy = replace(kit.manifest, graphs={**kit.manifest.graphs, "step": step})
    assert estimate_prediction(heavy, process=1000, classes=3) == found


def described(kit: Kit, before: MemoryEstimate, classes: int, photos: int) -> MemoryEstimate:
    manifest = replace(kit.manifest, embeddings=1280)
    return with_description(before, manifest, classes=classes, photos=photos)


def test_the_description_of_many_classes_may_set_the_peak(kit: Kit) -> None:
    without = estimate(kit)
    resident = without.parameters + without.optimizer + without.activations
    alone = without.process + CLOSED + resident + description_bytes(1000, 1280, 5000)
    assert alone > without.total
    assert described(kit, without, 1000, 5000).total == alone
    assert described(kit, without, 1000, 4).total == without.total
    kept = without.with_cache(700_000)
    assert described(kit, kept, 1000, 5000).total == alone + 700_000
    assert with_description(without, kit.manifest, classes=1000, photos=5000) == without


def test_the_description_opens_the_graphs_beside_what_the_run_keeps(kit: Kit) -> None:
    wide, kept = with_graph(kit, "features", **WIDE), 30_000_000
    before = replace(estimate(wide), head=0).with_cache(kept)
    after = described(wide, before, 3, 4)
    needed = ending_bytes(wide.manifest, classes=3, photos=4)
    assert needed > OPENING_COPIES * 50_000_000 + OPENING_LARGEST * 40_000_000 + REOPENING
    resident = before.parameters + before.optimizer + before.activations + kept
    assert after.total == max(before.total, before.process + CLOSED + resident + needed)


def test_no_more_photos_wait_for_the_description_than_there_are(kit: Kit) -> None:
    one, two, many, more = (
        ending_bytes(kit.manifest, classes=3, photos=n) for n in (1, 2, 4000, 5000)
    )
    assert two - one == waiting_bytes(kit.manifest.size, 1, 8)
    assert many == more > two


def test_a_budget_leaves_out_what_can_be_left_out(kit: Kit) -> None:
    made = replace(estimate(kit), head=1000)
    without = made.total - 1000
    heads = [made.within(without + room).head for room in (-5, 0, 400, 1000, 5000)]
    assert heads == [0, 0, 400, 1000, 1000]
    assert made.within(None) == made


def test_features_in_memory_come_after_the_classifier_is_computed(kit: Kit) -> None:
    made = replace(estimate(kit), head=1000)
    some, many = made.with_cache(400), made.with_cache(5000)
    assert (some.cache, some.head, some.total) == (400, 600, made.total)
    assert (many.cache, many.head, many.total) == (5000, 0, made.total + 4000)
