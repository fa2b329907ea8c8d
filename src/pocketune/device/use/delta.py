"""A delta: what a run changed against its kit, as one small file.

The kit stays where it is, once; each run that started from it is a file of the tensors that it
changed. Values are stored, not differences, so that kit and delta give the run's values bit for
bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from pocketune.arrays import FloatArray, State, StrPath
from pocketune.device.use.known import Known
from pocketune.device.use.model import Model, as_model
from pocketune.device.use.replaceable import ADAPTER, Kind, refuse_to_overwrite
from pocketune.device.use.unknown import find_known
from pocketune.errors import PocketuneError, Remedy
from pocketune.files import make_folder_of, reading, regular
from pocketune.kit.kit import Kit, checked_state, kit_files
from pocketune.kit.manifest import KitError
from pocketune.kit.names import FEATURES, LAST, PARAMETERS, PREDICT
from pocketune.kit.tensors import read_tensors, write_tensors
from pocketune.kit.writer import write_kit
from pocketune.schema import FieldError, read_object
from pocketune.tasks import Score, Task

KIND = "delta"
_SAVED = Kind("a delta", rb"\"kind\": \"delta\"")
_KNOWN = "known/"
"""Beginning of the names of the tensors that describe known photos."""


@dataclass(frozen=True, kw_only=True)
class DeltaHeader:
    """The JSON in the header of a delta's file.

    Attributes:
        kit: Hash of the manifest of the kit that was trained.
        base: Hash of what the delta relies on; see `base_hash`.
        network: Configuration of the network.
        method: The method and its options.
        task: What was learned, with the run's classes.
        step: Completed optimizer steps.
        score: Score on the run's validation photos; None without validation photos.
        content: Hash of the other fields and of the tensors, which shows damage.

    Raises:
        PocketuneError: The score is not one of the task.
    """

    kit: str
    base: str
    network: dict[str, Any]
    method: dict[str, Any]
    task: Task
    step: int
    score: Score | None
    content: str

    def __post_init__(self) -> None:
        score = self.score
        if score is not None and score != self.task.score(score.value, score.loss):
            raise PocketuneError(f"{score.name!r} is not a metric of the task {self.task.name}")

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return {**asdict(self), "task": self.task.to_dict()}


@dataclass(frozen=True, eq=False)
class Delta:
    """What a run changed.

    Example:
        >>> Delta.of("runs/flowers").save("flowers.safetensors")  # doctest: +SKIP
        >>> model = Delta.load("flowers.safetensors").model("flowers.zip")  # doctest: +SKIP

    Attributes:
        header: The description.
        state: By name, the parameters and statistics that differ from the kit's, and always those
            of the output layer.
        name: The delta's file, or the run that it was made of.
        known: What photos of the classes look like, if the run was finished.
    """

    header: DeltaHeader
    state: State
    name: str
    known: Known | None = None

    def __repr__(self) -> str:
        header = self.header
        score = f", {header.score}" if header.score else ""
        learned = header.task.counted(len(self.classes))
        return f"<Delta {self.name}: {learned}, step {header.step}{score}>"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the logits."""
        return self.header.task.classes

    @classmethod
    def of(cls, run: Model | StrPath) -> Delta:
        """The delta of a run.

        Raises:
            PocketuneError: The run cannot be read.
        """
        model = as_model(run)
        start, head = model.kit.state(), model.task.head
        state = {
            name: value
            for name, value in model.state.items()
            if name in head or not _same_bits(value, start[name])
        }
        header = DeltaHeader(
            kit=model.kit.identity,
            base=base_hash(model.kit, start),
            network=model.manifest.network,
            method=model.manifest.method,
            task=model.task,
            step=model.step,
            score=model.score,
            content="unknown",
        )
        known = find_known(model)
        header = replace(header, content=_content_hash(header, _all(state, known)))
        return cls(header, state, str(model.kit.path), known)

    def save(self, path: StrPath) -> None:
        """Replace `path`, atomically.

        Raises:
            PocketuneError: It is a file of the run or something else than a delta, or cannot be
                written; the file that was there is unchanged.
        """
        path = Path(path)
        refuse_to_overwrite(Path(self.name), path, _SAVED)
        make_folder_of(path)
        tensors = _all(self.state, self.known)
        write_tensors(path, tensors, kind=KIND, metadata=self.header.to_dict())

    @classmethod
    def load(cls, path: StrPath) -> Delta:
        """Read a delta.

        Raises:
            PocketuneError: The file is missing, damaged or not a delta.
        """
        path = Path(path)
        _require_delta(path)
        tensors, metadata = read_tensors(path, kind=KIND)
        fields = {name: metadata[name] for name in metadata.keys() - {"kind", "schema"}}
        try:
            header = read_object(DeltaHeader, fields, str(path))
        except FieldError as error:
            raise PocketuneError(f"{error}; save the delta again or copy it again") from error
        if _content_hash(header, tensors) != header.content:
            raise PocketuneError(f"{path} is damaged; save the delta again or copy it again")
        state = {name: value for name, value in tensors.items() if not name.startswith(_KNOWN)}
        about = {n[len(_KNOWN) :]: value for n, value in tensors.items() if n.startswith(_KNOWN)}
        return cls(header, state, str(path), Known.of_tensors(about, str(path)) if about else None)

    def model(self, kit: Kit | StrPath) -> Model:
        """The kit with the values of the delta, which are those of the run bit for bit.

        Args:
            kit: The kit that the run started from; or one that differs only in its classes, its
                batch and its training step.

        Raises:
            KitError: The delta was made with another kit.
        """
        kit = kit if isinstance(kit, Kit) else Kit.open(kit)
        start, task = kit.state(), self.header.task
        if base_hash(kit, start) != self.header.base:
            raise KitError(
                f"{self.name} is a delta of the kit {self.header.kit[:12]}, and {kit.path} is "
                f"another one, {kit.identity[:12]}: use the kit that the run started from, or one "
                "that differs only in its classes"
            )
        shapes = kit.manifest.shapes(len(task.classes))
        state = checked_state({**start, **self.state}, shapes, self.name)
        header = self.header
        return Model(kit, task.classes, state, header.step, header.score, self.known)

    def apply(self, kit: Kit | StrPath, out: StrPath) -> Kit:
        """Write a kit that starts from the values of the delta and has its classes.

        Raises:
            KitError: The delta was made with another kit, or the new one cannot be written.
        """
        model = self.model(kit)
        files: dict[str, bytes | Path] = {
            name: model.kit.source(name) for name in kit_files(model.kit.manifest)
        }
        return write_kit(out, model.manifest, {**files, PARAMETERS: save(model.state)})


def _require_delta(path: Path) -> None:
    """Refuse a run, another folder, an adapter, and a file of another format than a delta's.

    Raises:
        PocketuneError: It is one of these, or the file cannot be read.
    """
    start = None
    with reading(path):
        if (path / LAST).is_file():
            raise PocketuneError(
                f"{path} is a run, not a delta",
                remedy=Remedy("save delta", "use Delta.of({run!r})", run=str(path)),
            )
        if not path.is_dir():
            with regular(path).open("rb") as file:
                start = file.read(9)
    if start is not None and start[4:8] == ADAPTER.sign:
        raise PocketuneError(
            f"{path} is an adapter of ONNX Runtime, which does not say what it was made for; give "
            "the .safetensors file of the same run"
        )
    if start is None or start[8:] not in (b"", b"{"):  # the first character of the header
        raise PocketuneError(
            f"{path} is not a delta",
            remedy=Remedy("delta file", "give a file that Delta.save has written"),
        )


def base_hash(kit: Kit, start: Mapping[str, FloatArray]) -> str:
    """Hash of the parts of a kit that a delta does not hold.

    These are the graphs of a prediction, the task, the size of the images, and the initial values
    other than the output layer's, which every delta holds. Kits that differ in their classes,
    their batch or their training step have the same hash.

    Args:
        kit: The kit.
        start: Its initial values.
    """
    manifest = kit.manifest
    head = set(manifest.task.head)
    facts = {
        "graphs": [manifest.files.get(FEATURES), manifest.files[PREDICT]],
        "size": manifest.size,
        "task": manifest.task.name,
        "head": {name: start[name].shape[1:] for name in sorted(head)},
    }
    return _hash(facts, {name: value for name, value in start.items() if name not in head})


def _all(state: State, known: Known | None) -> State:
    """The tensors of a delta's file."""
    described = known.tensors() if known else {}
    return {**state, **{_KNOWN + name: value for name, value in described.items()}}


def _content_hash(header: DeltaHeader, state: Mapping[str, FloatArray]) -> str:
    return _hash({**header.to_dict(), "content": None}, state)


def _hash(facts: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> str:
    """SHA-256 of JSON and tensors, whatever their order."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(json.dumps([name, tensors[name].shape]).encode())
        digest.update(np.ascontiguousarray(tensors[name], "<f4").tobytes())
    return digest.hexdigest()


def _same_bits(one: FloatArray, other: FloatArray) -> bool:
    """Whether two tensors are equal bit for bit, also in nan and in the sign of zero."""
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def as_delta(delta: Delta | StrPath) -> Delta:
    """The delta itself, or the one in a file."""
    return delta if isinstance(delta, Delta) else Delta.load(delta)
