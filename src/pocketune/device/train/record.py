"""The record of a finished run: what it was and what it gave, in `result.json`."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketune.device.machine import Machine
from pocketune.device.train.log import read_log
from pocketune.errors import PocketuneError, printable
from pocketune.files import ARCHIVE_DAMAGE, reading, replacing
from pocketune.kit.names import BEST, METRICS, RESULT
from pocketune.kit.storage import run_file
from pocketune.schema import Positive, parse_object, read_versioned
from pocketune.tasks import Score

if TYPE_CHECKING:
    from pocketune.arrays import StrPath
    from pocketune.device.train.checkpoint import TrainState
    from pocketune.device.train.folder import Run
    from pocketune.kit.manifest import Manifest

SCHEMA = 1
"""Version of the record's fields; a reader refuses all others."""


@dataclass(frozen=True)
class PhotosRecord:
    """The photos of a run.

    Attributes:
        name: Name of their folder or file.
        training: Number of training photos.
        validation: Number of validation photos.
        fingerprint: Hash of the names and labels of both, in order.
        imbalance: Training photos of the largest class for each of the smallest; 1 where photos
            have no single class.
        unreadable: Validation photos that cannot be decoded, which no score counts.
        untrained: Training photos that cannot be decoded.
    """

    name: str
    training: int
    validation: int
    fingerprint: str
    imbalance: float = 1.0
    unreadable: int = 0
    untrained: int = 0

    @property
    def trained(self) -> int:
        """Training photos that could be decoded."""
        return self.training - self.untrained

    @property
    def scored(self) -> int:
        """Validation photos that a score counts."""
        return self.validation - self.unreadable


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What a finished run was and what it gave; its curves are in `metrics.jsonl`.

    Example:
        >>> RunRecord.read("runs/flowers").best.value  # doctest: +SKIP
        0.954

    Attributes:
        version: The pocketune that finished the run.
        kit: Hash of the kit's manifest.
        network: Configuration of the network.
        method: The method and its options.
        frozen_bits: Bits of the frozen part's weights: 8 or 32.
        task: Name of the task.
        classes: Class names in the order of the logits.
        size: Height and width of the images, in pixels.
        batch: Images in a step, over all accumulated batches.
        settings: The settings of the run, with all defaults filled in.
        photos: The photos.
        engine: What computed the gradients, with its version.
        machine: The machine that finished the run.
        steps: Completed optimizer steps.
        reason: Why the run ended: `steps`, `patience` or `time`; `stopped` in the studio.
        start: Score on the validation photos before the first step; None if it was not measured.
        best: The best score on the validation photos; None without validation photos.
        best_step: The step of the best score, whose values are in `best.safetensors`.
        last: Score on the validation photos after the last step; None without validation photos.
        peak_memory: Peak resident bytes of the process, the largest if the run was resumed.
        predicted_memory: The peak that was predicted before the run; None in a browser, where
            `peak_memory` is that of the WebAssembly heap.
        seconds: Wall-clock seconds of the run, from finding the photos to its end, without pauses
            between processes.
        training_seconds: Part of these that the steps took.
        step_seconds: Median seconds of a step, with the wait for its photos; None without steps.
        step_flops: Floating point operations of a step.
        parameters: Number of trained values.
        result_bytes: Bytes of `best.safetensors`.
        head: Where the classifier came from: `class means`, `LDA` or `ridge` of the photos,
            `kept` from the kit or run, or `random`.
        estimate: Cross-validated score of the computed classifier on the training photos; of a kept
            one, its score. None if it is unknown.
        refitted: Form of the classifier that was computed again after the last step, if its score
            is the best; None if the best classifier was trained by steps, or is that of the start.
        memory_parts: The predicted peak by purpose, as `MemoryEstimate`; None in a browser.
        schema: Version of these fields.
    """

    version: str
    kit: str
    network: dict[str, Any]
    method: dict[str, Any]
    frozen_bits: Positive
    task: str
    classes: tuple[str, ...]
    size: Positive
    batch: Positive
    settings: dict[str, Any]
    photos: PhotosRecord
    engine: str
    machine: Machine
    steps: int
    reason: str
    start: Score | None
    best: Score | None
    best_step: int
    last: Score | None
    peak_memory: int
    predicted_memory: int | None
    seconds: float
    training_seconds: float
    step_seconds: float | None
    step_flops: int
    parameters: int
    result_bytes: int
    head: str = "random"
    estimate: Score | None = None
    refitted: str | None = None
    memory_parts: dict[str, int] | None = None
    schema: Positive = SCHEMA

    @property
    def seed(self) -> int:
        """The random seed."""
        return int(self.settings["seed"])

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: object, where: str) -> RunRecord:
        """A record from the object of `to_dict`.

        Args:
            data: The object.
            where: The object's place, for messages.

        Raises:
            FieldError: A field is missing, unknown or of the wrong type.
        """
        return read_versioned(cls, data, where, SCHEMA)

    def write(self, folder: Path) -> None:
        """Replace the record in the run's folder, atomically.

        Raises:
            PocketuneError: It cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"
        with replacing(folder / RESULT) as file:
            file.write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, folder: StrPath) -> RunRecord:
        """The record of a finished run.

        Args:
            folder: The run folder, or a .zip of it.

        Raises:
            PocketuneError: The run is not finished, or its record is damaged or of another version.
        """
        path = run_file(Path(folder), RESULT)
        if path is None:
            raise PocketuneError(f"{folder} is not a finished run: it has no {RESULT}")
        with reading(path, *ARCHIVE_DAMAGE):
            text = path.read_bytes()
        return cls.from_dict(parse_object(text, str(path)), str(path))


def record_run(run: Run, state: TrainState, last: Score | None) -> RunRecord:
    """The record of a run that has just ended, whose best values and log are written.

    Args:
        run: The run.
        state: Its state after the last step.
        last: Score on the validation photos after the last step.
    """
    from pocketune import __version__

    manifest = run.manifest
    counters, log = state.counters, read_log(run.folder / METRICS)
    shapes = manifest.shapes(len(run.identity.classes))
    return RunRecord(
        version=__version__,
        kit=run.identity.kit,
        network={**manifest.network, "classes": len(run.identity.classes)},
        method=manifest.method,
        frozen_bits=manifest.frozen_bits,
        task=manifest.task.name,
        classes=run.identity.classes,
        size=manifest.size,
        batch=run.batch,
        settings=run.settings.to_dict(),
        photos=_photos(run),
        engine=state.engine.runtime,
        machine=Machine.current(),
        steps=counters.step,
        reason=counters.finished or "",
        start=counters.start,
        head=counters.head,
        estimate=counters.estimate,
        refitted=counters.refitted,
        best=counters.best,
        best_step=counters.best_step,
        last=last,
        peak_memory=log.peak_memory,
        predicted_memory=run.memory.total,
        memory_parts=asdict(run.memory),
        seconds=log.seconds,
        training_seconds=log.training_seconds,
        step_seconds=_median(log.step_seconds),
        step_flops=step_flops(manifest) * run.settings.accumulate,
        parameters=sum(math.prod(shapes[spec.name]) for spec in manifest.parameters),
        result_bytes=(run.folder / BEST).stat().st_size,
    )


def step_flops(manifest: Manifest) -> int:
    """Floating point operations of a step of the kit's batch, its frozen part included."""
    graphs = manifest.graphs
    features = graphs["features"].flops * manifest.batch if "features" in graphs else 0
    return manifest.micro_batches * graphs["step"].flops + features


def _photos(run: Run) -> PhotosRecord:
    photos, splits = run.photos, run.photos.splits
    skipped = () if photos.validation is None else photos.validation.skipped
    untrained = {file.name for file in (*photos.training.skipped, *photos.sample.skipped)}
    return PhotosRecord(
        name=printable(photos.path.name) or "photos",
        training=len(splits.train),
        validation=len(splits.val),
        fingerprint=run.identity.photos,
        imbalance=photos.imbalance,
        unreadable=len(skipped),
        untrained=len(untrained),
    )


def _median(values: list[float]) -> float | None:
    from statistics import median

    return median(values) if values else None
