"""The memory estimate of a run, from the manifest of its kit."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pocketune.data.loader import AHEAD
from pocketune.device.head.cells import cell_bytes, cell_channels
from pocketune.device.head.fit import fit_bytes
from pocketune.device.memory.sizes import format_size
from pocketune.device.use.known import description_bytes
from pocketune.heap import KEPT
from pocketune.tasks.maps import STRIP

if TYPE_CHECKING:
    from pocketune.data.decoding import Decoding
    from pocketune.kit.manifest import GraphSpec, Manifest, Quantization


# Measured with ONNX Runtime 1.31 on Linux, and fitted to the peaks of whole runs, each of a
# network, method, batch, optimizer and photos drawn at random (benchmarks/bench_memory.py). The sum
# is meant as an upper bound: it has room for the turns that threads take, by which equal runs
# differ. How often it is too low or too high is in docs/benchmarks.md.
RUNTIME = 13_000_000
"""Bytes that the runtime and the training loop take once, mostly for pages of code and threads."""
OPENING = 15_000_000
"""The same while a graph is opened that the runtime optimizes, for the first time in a process."""
CLOSED = 8_500_000
"""Bytes of these that stay when the graphs are closed, beside the arena."""
REOPENING = 4_000_000
"""Bytes on top of these while a graph is opened once more."""
NODE_BYTES = 4_500
"""Bytes that the runtime holds for each node of a graph."""
WEIGHTS_OVERHEAD = 1.2
"""Size of a graph's weights in memory relative to the file: some are kept in two layouts."""
OPENING_COPIES, OPENING_LARGEST = 2, 3
"""While a graph is opened whose kernels the runtime converts to another layout: copies of all
weights, and further copies of the largest one that is converted."""
_WORKERS = 2
"""Threads that decode photos, each one at a time."""
SCORED_STRIPS = 3
"""Arrays of the size of a strip that a validation of masks makes at once, beside the arena."""
ARENA_OVERHEAD = 1.1
"""Least size of the runtime's arena relative to the live tensors at the peak: it also holds what
operators take while they run. Gaps between tensors can need more, which the compiler simulates."""
GAPS_OVERHEAD = 1.14
"""Size of the arena relative to the simulated one, which has only the tensors and the gaps: what
operators take while they run moves tensors to other gaps. Arenas of 4 MB and more were 0.5 to 1.2
times the simulated ones, those above 1.14 by 0.2 MB (benchmarks/bench_arena.py)."""
FEATURES_HELD = 2
"""Batches of features in memory: the heap keeps the place of the one before, if it is small."""


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
            masks, also the logits that a validation compares with them.
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
        batch: Images that the graphs process at once; by default the kit's batch.
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
    # The frozen part runs a few images at a time, the other graphs a batch at a time.
    parts = batch / manifest.batch
    arenas = {
        name: arena_size(graph) * (manifest.images_at_once if name == "features" else parts)
        for name, graph in manifest.graphs.items()
    }
    if manifest.graphs["step"].packs:
        arenas["step"] += manifest.graphs["step"].weights
    held = {n: _held(n, graph, manifest.quantization) for n, graph in manifest.graphs.items()}
    frozen = held.get("features", Held(0, 0))
    # Only one of the step and the prediction is open at a time.
    graphs = frozen.open + max(held["step"].open, held["predict"].open)
    kept = feature_bytes(manifest, batch)
    arena = round(max(arenas.values()))
    evaluating = round(max(size for name, size in arenas.items() if name != "step"))
    optimizer = round(slots * parameters)
    together = batch * accumulate
    batches = AHEAD + 1 if photos is None else min(AHEAD + 1, max(1, photos // together))
    label = _label_bytes(manifest, classes)
    waiting = photo_bytes(manifest.size, together, label, workers=0, waiting=batches + 1)
    if manifest.task.dense and decoding is not None:
        masks = decoding.waiting((AHEAD + 2) * batch)
        waiting = max(waiting, photo_bytes(manifest.size, batch, workers=0) + masks)
    decoded = decoded_bytes(manifest.size, decoding)
    if batches == 1:  # decoded before the step is opened, which gives some of it back
        decoded -= round(min(decoded / 2, max(0, arenas["step"] - evaluating)))
    decoded += _compared_bytes(manifest, decoding)
    # The prediction is opened after the steps of each epoch. All graphs are opened once more when
    # the classifier has been computed: before the steps, and after them if they change its
    # features. What the arena has held stays.
    refitted = refits and _changes_features(manifest)
    ran = arena if refitted else evaluating
    opening, again = opening_bytes(manifest), CLOSED + REOPENING + kept + optimizer
    again += waiting + decoded
    phases = [OPENING + opening + waiting, again + frozen.open + held["predict"].opening + arena]
    if refits:
        phases.append(again + opening + ran)
    beside = RUNTIME + arena + kept + optimizer + waiting + decoded
    estimate = MemoryEstimate(
        process=process,
        runtime=RUNTIME,
        graphs=max(graphs, max(phases) - beside),
        activations=arena + kept,
        parameters=parameters * (2 if accumulate > 1 else 1) + statistics,
        optimizer=optimizer,
        photos=waiting + decoded,
    )
    if images is None:
        return estimate
    head = process + parameters + statistics + (optimizer if refitted else 0)
    if manifest.embeddings is not None:
        head += CLOSED + ran + fit_bytes(images, manifest.embeddings, classes)
    elif channels := cell_channels(manifest, trained=trained):
        head += estimate.photos + cell_fit_bytes(manifest, channels, classes)
    return replace(estimate, head=max(0, head - estimate.total))


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
    waiting, decoded = _evaluated_photos(manifest, classes, decoding, photos)
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
    graphs = {name: graph for name, graph in manifest.graphs.items() if name != "step"}
    held = sum(_held(n, graph, manifest.quantization).open for n, graph in graphs.items())
    activations = feature_bytes(manifest, manifest.batch) + round(
        max(
            arena_size(graph) * (manifest.images_at_once if name == "features" else 1)
            for name, graph in graphs.items()
        )
    )
    waiting, decoded = _evaluated_photos(manifest, classes, decoding)
    opening = OPENING + opening_bytes(manifest)
    estimate = MemoryEstimate(
        process=process,
        runtime=RUNTIME,
        graphs=max(held, opening - RUNTIME - activations - decoded),
        activations=activations,
        parameters=2 * values,  # the model's, and the engine's copy
        optimizer=0,
        photos=waiting + decoded,
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
    graphs = {name: graph for name, graph in manifest.graphs.items() if name != "step"}
    held = sum(_held(n, graph, manifest.quantization).open for n, graph in graphs.items())
    arena = max(map(arena_size, graphs.values()))
    return RUNTIME + held + round(arena) + cell_bytes(channels, classes, math.prod(cells))


def opening_bytes(manifest: Manifest) -> int:
    """Most bytes for opening the graphs that evaluate photos, one after the other."""
    held = {n: _held(n, g, manifest.quantization) for n, g in manifest.graphs.items()}
    frozen = held.get("features", Held(0, 0))
    return max(frozen.opening, frozen.open + held["predict"].opening)


def feature_bytes(manifest: Manifest, batch: int) -> int:
    """Bytes of the features of a batch, which the step reads, and of the one before if it stays."""
    if manifest.features is None:
        return 0
    size = batch * _bytes(manifest.features)
    return size if size >= KEPT else FEATURES_HELD * size


def _changes_features(manifest: Manifest) -> bool:
    """Whether steps change the embeddings that a classifier can be computed from."""
    trained = {spec.name for spec in manifest.parameters}
    return manifest.embeddings is not None and not trained <= set(manifest.task.head)


def _evaluated_photos(
    manifest: Manifest, classes: int, decoding: Decoding | None, photos: int | None = None
) -> tuple[int, int]:
    """Bytes of photos that wait to be evaluated, and of what is decoded beside them."""
    most, dense = (AHEAD + 2) * manifest.batch, manifest.task.dense
    images = most if photos is None else min(most, photos)
    label = 0 if dense else _label_bytes(manifest, classes)
    waiting = photo_bytes(manifest.size, images, label, workers=0, waiting=1)
    if dense and decoding is not None:
        waiting += decoding.waiting(images)
    decoded = decoded_bytes(manifest.size, decoding) + _compared_bytes(manifest, decoding)
    return waiting, decoded


def _compared_bytes(manifest: Manifest, decoding: Decoding | None) -> int:
    """Bytes for comparing masks with predictions, one by one, or for what is done with these."""
    if not manifest.task.dense:
        return 0
    compared = 0 if decoding is None else max(decoding.compared, decoding.beside)
    return SCORED_STRIPS * 4 * STRIP + compared


def _label_bytes(manifest: Manifest, classes: int) -> int:
    """Bytes of the label of one image."""
    task = manifest.task
    return math.prod(task.label_shape(manifest.size, classes)) * np.dtype(task.label_type).itemsize


def photo_bytes(
    size: int, batch: int, label: int = 0, workers: int = _WORKERS, waiting: int = AHEAD + 2
) -> int:
    """Bytes of decoded photos: one in each worker, and batches that are ready or in the step.

    A label takes `label` bytes in a batch.

    A JPEG is decoded at the smallest scale that is at least the requested size: a photo of 4:3 at
    less than twice its side. The crop is one more image.
    """
    pixels = 3 * size * size
    return waiting * batch * (pixels + label) + workers * (4 * pixels * 4 // 3 + pixels)


def decoded_bytes(size: int, decoding: Decoding | None) -> int:
    """Bytes of the photos that are decoded at the same time.

    Without `decoding`, they are those of `photo_bytes`.
    """
    if decoding is None:
        return photo_bytes(size, 0)
    return decoding.total(_WORKERS) + _WORKERS * 3 * size * size


def arena_size(graph: GraphSpec) -> float:
    """Bytes of the runtime's arena for a graph."""
    return max(ARENA_OVERHEAD * graph.memory, GAPS_OVERHEAD * graph.arena)


class Held(NamedTuple):
    """Bytes that the runtime holds for an open graph, and their peak while it is opened."""

    open: int
    opening: int


def _held(name: str, graph: GraphSpec, quantization: Quantization | None) -> Held:
    """The memory for a graph.

    8-bit weights become float32 when a graph is opened, unless the graph computes with integers or
    is executed as written.
    """
    integers = name == "features" and quantization is not None and quantization.activations == 8
    growth = 4 if quantization is not None and name != "step" and not integers else 1
    nodes = graph.nodes * NODE_BYTES
    held = opening = WEIGHTS_OVERHEAD * growth * graph.weights
    if graph.largest:
        opening = growth * (OPENING_COPIES * graph.weights + OPENING_LARGEST * graph.largest)
    return Held(round(held) + nodes, round(opening) + nodes)


def _bytes(shape: tuple[int, ...]) -> int:
    return 4 * math.prod(shape)
