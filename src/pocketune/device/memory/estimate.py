"""The memory estimate of a run, from the manifest of its kit."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from pocketune.device.head.cells import cell_bytes, cell_channels
from pocketune.device.head.fit import fit_bytes
from pocketune.device.memory.graphs import (
    arena_size,
    arena_sizes,
    feature_bytes,
    held,
    opening_bytes,
)
from pocketune.device.memory.photos import decoded_bytes, evaluated_photos, training_photos
from pocketune.device.memory.sizes import format_size
from pocketune.device.use.known import description_bytes

if TYPE_CHECKING:
    from pocketune.data.images.cost import Decoding
    from pocketune.kit.manifest import Manifest


# Measured with ONNX Runtime 1.31 on Linux, and fitted to the peaks of whole runs, each of a
# network, method, batch, optimizer and photos drawn at random (benchmarks/bench_memory.py). The sum
# is meant as an upper bound: it has room for the turns that threads take, by which equal runs
# differ. How often it is too low or too high is in docs/benchmarks.md.
RUNTIME = 13_500_000
"""Bytes that the runtime and the training loop take once, mostly for pages of code and threads."""
OPENING = 15_000_000
"""The same while a graph is opened that the runtime optimizes, for the first time in a process."""
CLOSED = 8_500_000
"""Bytes of these that stay when the graphs are closed, beside the arena."""
REOPENING = 4_000_000
"""Bytes on top of these while a graph is opened once more."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a run will take, by purpose.

    Attributes:
        process: Python, numpy, the runtime and everything else that is resident already.
        runtime: Taken once, when the runtime opens and runs its first graph.
        graphs: Frozen weights and nodes of the graphs that are open at the same time; or the memory
            for opening the frozen part, if that sets the peak.
        activations: Live tensors, including gradients, at the peak of the graph that needs most;
            the graphs share one arena. Then the features of a batch.
        parameters: The trained parameters and the running statistics.
        optimizer: The optimizer's state.
        photos: Photos that are being decoded, and batches with labels that wait for the step. For
            masks, also the logits that a validation compares with them, as far as these take more
            than the step holds beyond the prediction.
        cache: Features that are kept between epochs, as far as they are in memory.
        head: What the classifier's computation, while the graphs are closed, or the description of
            the classes in the end takes beyond all this.
    """

    process: int
    runtime: int
    graphs: int
    activations: int
    parameters: int
    optimizer: int
    photos: int
    head: int = 0
    cache: int = 0

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(getattr(self, field.name) for field in fields(self))

    def with_cache(self, size: int) -> MemoryEstimate:
        """The estimate of a run that keeps features in so many bytes.

        The classifier is computed before there are any.
        """
        return replace(self, cache=size, head=max(0, self.head - size))

    def within(self, budget: int | None) -> MemoryEstimate:
        """The estimate of a run that leaves out of `head` what a budget has no room for."""
        if budget is None:
            return self
        return replace(self, head=min(self.head, max(0, budget - self.total + self.head)))

    def __str__(self) -> str:
        every = ((field.name, getattr(self, field.name)) for field in fields(self))
        parts = ((name, size) for name, size in every if size or name not in ("head", "cache"))
        return ", ".join(f"{name} {format_size(size)}" for name, size in parts)


def estimate_memory(
    manifest: Manifest,
    *,
    process: int,
    classes: int,
    slots: float,
    batch: int | None = None,
    accumulate: int = 1,
    images: int | None = None,
    refits: bool = True,
    trained: bool = False,
    photos: int | None = None,
    decoding: Decoding | None = None,
) -> MemoryEstimate:
    """Peak resident memory of a training run.

    Args:
        manifest: Of the kit to train, or of one that is only drafted.
        process: Resident bytes before the graphs are loaded.
        classes: Number of classes of the photos.
        slots: Size of the optimizer's state relative to the parameters.
        batch: Images in a batch; by default the kit's.
        accumulate: Batches in a step; more than one need memory for the sum of their gradients.
        images: Training photos that the classifier is computed from before the first step; None if
            it is not computed.
        refits: Whether the classifier is computed again after the last step, as by default, if the
            steps change its features.
        trained: Whether the kit's decode head, if it has one, has been trained.
        photos: Training photos; by default so many that several batches are prepared at once.
        decoding: What decoding the photos takes; by default they are little larger than the kit's
            size.
    """
    batch = batch or manifest.batch
    shapes = manifest.shapes(classes)
    parameters = sum(_bytes(shapes[spec.name]) for spec in manifest.parameters)
    statistics = sum(_bytes(shapes[spec.name]) for spec in manifest.statistics)
    arenas, graphs = arena_sizes(manifest, batch), held(manifest)
    frozen = graphs["features"].open
    arena = round(max(arenas.values()))
    evaluating = round(max(size for name, size in arenas.items() if name != "step"))
    kept = feature_bytes(manifest, min(batch, manifest.micro_batch))
    optimizer = round(slots * parameters)
    sums = (accumulate > 1) + (batch > manifest.micro_batch)  # of gradients, each as large
    waiting, decoded, compared = training_photos(
        manifest,
        classes,
        decoding,
        batch=batch,
        accumulate=accumulate,
        photos=photos,
        returned=max(0, arenas["step"] - evaluating),
    )
    refitted = refits and _changes_features(manifest)
    ran = arena if refitted else evaluating
    opening = _opening_peak(
        manifest,
        waiting=waiting,
        closed=CLOSED + kept + optimizer + waiting + decoded,
        arena=arena,
        refitting=ran if refits else None,
    )
    # Only one of the step and the prediction is open at a time, and masks are compared beside the
    # prediction.
    open_at_once = frozen + max(graphs["step"].open, graphs["predict"].open)
    compared = max(0, frozen + graphs["predict"].open + compared - open_at_once)
    beside = RUNTIME + arena + kept + optimizer + waiting + decoded + compared
    estimate = MemoryEstimate(
        process=process,
        runtime=RUNTIME,
        graphs=max(open_at_once, opening - beside),
        activations=arena + kept,
        parameters=parameters * (1 + sums) + statistics,
        optimizer=optimizer,
        photos=waiting + decoded + compared,
    )
    if images is None:
        return estimate
    taken = process + parameters + statistics + (optimizer if refitted else 0)
    if manifest.embeddings is not None:
        taken += CLOSED + ran + fit_bytes(images, manifest.embeddings, classes)
    elif channels := cell_channels(manifest, trained=trained):
        taken += estimate.photos + cell_fit_bytes(manifest, channels, classes)
    return replace(estimate, head=max(0, taken - estimate.total))


def _opening_peak(
    manifest: Manifest, *, waiting: int, closed: int, arena: int, refitting: int | None
) -> int:
    """Most bytes while a graph is opened, beside the process and the values.

    The prediction is opened after the steps of each epoch. All graphs are opened once more when
    the classifier has been computed: before the steps, and after them if they change its features.
    What the arena has held stays.

    Args:
        manifest: Of the kit.
        waiting: Bytes of the photos that wait while the first graph is opened.
        closed: Bytes of a run whose graphs are closed, beside the arena.
        arena: Bytes of the arena after a step.
        refitting: Bytes of the arena once a classifier has been computed; None if none is.
    """
    graphs, opening, again = held(manifest), opening_bytes(manifest), closed + REOPENING
    predicting = graphs["features"].open + graphs["predict"].opening
    phases = [OPENING + opening + waiting, again + predicting + arena]
    if refitting is not None:
        phases.append(again + opening + refitting)
    return max(phases)


def with_description(
    estimate: MemoryEstimate,
    manifest: Manifest,
    *,
    classes: int,
    photos: int,
    decoding: Decoding | None = None,
) -> MemoryEstimate:
    """The estimate of a run that describes its classes after the last step.

    Args:
        estimate: Of the run, with its cache.
        manifest: Of its kit.
        classes: Number of classes of the photos.
        photos: Training photos, or validation photos if these are more.
        decoding: What decoding the photos takes; see `estimate_memory`.
    """
    if manifest.embeddings is None or manifest.task.activation != "softmax":
        return estimate
    resident = estimate.parameters + estimate.optimizer + estimate.activations + estimate.cache
    taken = ending_bytes(manifest, classes=classes, photos=photos, decoding=decoding)
    without = estimate.total - estimate.head
    beyond = estimate.process + CLOSED + resident + taken - without
    return replace(estimate, head=max(estimate.head, beyond))


def ending_bytes(
    manifest: Manifest, *, classes: int, photos: int, decoding: Decoding | None = None
) -> int:
    """Bytes that describing the classes takes in a process whose graphs are closed.

    They are those of the graphs that compute the embeddings, while these are opened, or of the fit.
    See `with_description`.
    """
    waiting, decoded, _ = evaluated_photos(manifest, classes, decoding, photos)
    again = REOPENING + opening_bytes(manifest) + waiting + decoded
    return max(again, description_bytes(classes, manifest.embeddings or 0, photos))


def estimate_prediction(
    manifest: Manifest,
    *,
    process: int,
    classes: int,
    decoding: Decoding | None = None,
    first: Decoding | None = None,
) -> MemoryEstimate:
    """Peak resident memory of predicting or evaluating; see `estimate_memory`.

    Args:
        manifest: Of the kit.
        process: Resident bytes before the graphs are loaded.
        classes: Number of classes of the model.
        decoding: What decoding the photos takes, by default as of little ones.
        first: The same of those of the first batch, if these are not among them: they are decoded
            before a graph is opened.
    """
    shapes = manifest.shapes(classes)
    values = sum(_bytes(shapes[spec.name]) for spec in (*manifest.parameters, *manifest.statistics))
    graphs, arenas = held(manifest), arena_sizes(manifest, manifest.batch)
    del arenas["step"]
    activations = feature_bytes(manifest, manifest.batch) + round(max(arenas.values()))
    waiting, decoded, compared = evaluated_photos(manifest, classes, decoding)
    opening = OPENING + opening_bytes(manifest)
    estimate = MemoryEstimate(
        process=process,
        runtime=RUNTIME,
        graphs=max(
            graphs["features"].open + graphs["predict"].open,
            opening - RUNTIME - activations - decoded - compared,
        ),
        activations=activations,
        parameters=2 * values,  # the model's, and the engine's copy
        optimizer=0,
        photos=waiting + decoded + compared,
    )
    if first is None:
        return estimate
    before = process + CLOSED + estimate.parameters + waiting + decoded_bytes(manifest.size, first)
    return replace(estimate, photos=estimate.photos + max(0, before - estimate.total))


def cell_fit_bytes(manifest: Manifest, channels: int, classes: int) -> int:
    """Bytes for the classifier of masks: its computation, and the graphs that give the maps.

    Args:
        manifest: Of the kit.
        channels: Channels of the maps that the classifier reads.
        classes: Number of classes of the photos.
    """
    _, *cells = manifest.task.output_shape(manifest.size)
    graphs = held(manifest)
    arena = max(arena_size(graph) for name, graph in manifest.graphs.items() if name != "step")
    opened = graphs["features"].open + graphs["predict"].open
    return RUNTIME + opened + round(arena) + cell_bytes(channels, classes, math.prod(cells))


def _changes_features(manifest: Manifest) -> bool:
    """Whether steps change the embeddings that a classifier can be computed from."""
    trained = {spec.name for spec in manifest.parameters}
    return manifest.embeddings is not None and not trained <= set(manifest.task.head)


def _bytes(shape: tuple[int, ...]) -> int:
    return 4 * math.prod(shape)
