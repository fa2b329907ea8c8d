"""A kit: the graphs, parameters and manifest that a device needs for training."""

import hashlib
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load, load_file

from pocketune.arrays import State
from pocketune.files import replacing, sha256, writing
from pocketune.kit.bundled import kit_path
from pocketune.kit.graphs import check_graph
from pocketune.kit.manifest import KitError, Manifest
from pocketune.kit.names import (
    BEST,
    BLOCKED_STEP,
    FEATURES,
    GRAPHS,
    LAST,
    MANIFEST,
    PARAMETERS,
    PREDICT,
    STEP,
)
from pocketune.kit.packed import RunFile
from pocketune.kit.storage import Storage, mapped, open_storage, reading

ROOM, EACH = 1 << 20, 4096
"""Bytes that a file may have beyond its values: in all, and for each node or tensor."""


@dataclass(frozen=True)
class Kit:
    """An opened kit. It holds the manifest; the other files are read on demand.

    Example:
        >>> kit = Kit.open("blocks")  # of the bundled kits
        >>> kit.manifest.size, kit.manifest.batch, len(kit.manifest.classes)
        (128, 8, 10)

    Attributes:
        manifest: The description of the kit.
        identity: SHA-256 of the manifest, which holds the hashes of all other files. Kits with the
            same identity are copies of one kit.
    """

    manifest: Manifest
    identity: str
    _storage: Storage

    def __repr__(self) -> str:
        made = self.manifest
        return (
            f"<Kit {self.path}: {made.network.get('name')}, {made.method_name}, {made.size} px, "
            f"batch {made.batch}, {made.task.counted(len(made.classes))}>"
        )

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = True) -> "Kit":
        """Open a kit.

        Args:
            path: A folder or a .zip of it; or the name of a bundled kit, if nothing exists at that
                path. Other files in it are ignored, so a run is also a kit.
            verify: Whether to compare the hash of every file with the manifest's, and to check that
                the graphs hold nothing that a kit may not hold.

        Raises:
            KitError: The path is not a kit, or the kit is incomplete, damaged, of another schema,
                or has a graph that a kit may not hold.
        """
        place = open_storage(kit_path(path))
        text = manifest_text(place)
        manifest = Manifest.from_json(text, str(place.path / MANIFEST))
        kit = cls(manifest, hashlib.sha256(text).hexdigest(), place)
        for name in kit_files(manifest):
            kit._check(name, verify)
        return kit

    @property
    def path(self) -> Path:
        """The kit's folder or .zip."""
        return self._storage.path

    def source(self, name: str) -> Path | bytes:
        """A file of the kit: its path, or its bytes if the kit is a .zip."""
        folder = self._storage.folder
        return folder / name if folder else self.read(name)

    def read(self, name: str) -> bytes:
        """All bytes of a file of the kit."""
        with reading(self.path, name), self._storage.open(name) as stream:
            return stream.read()

    def find(self, name: str) -> RunFile | None:
        """A file of the run that the kit is part of; None if it does not exist."""
        return self._storage.find(name)

    @property
    def is_run(self) -> bool:
        """Whether the kit is part of a run, which brings trained values."""
        return any(self.find(name) for name in (BEST, LAST))

    def state(self) -> State:
        """Initial values of parameters and running statistics, C-contiguous float32.

        Raises:
            KitError: The file is damaged, its tensors are not those of the manifest, or a value is
                not finite.
        """
        where = f"{PARAMETERS} of the kit {self.path}"
        with reading(self.path, PARAMETERS):
            source = self.source(PARAMETERS)
            values = load_file(source) if isinstance(source, Path) else load(source)
        state = checked_state(values, self.manifest.shapes(len(self.manifest.classes)), where)
        for name, array in state.items():
            if not np.isfinite(array).all():
                raise KitError(f"{where} holds a value in {name} that is not finite")
        return state

    @property
    def has_new_head(self) -> bool:
        """Whether the output layer was drawn at random for its classes, with biases of zero.

        Raises:
            KitError: See `state`.
        """
        if self.is_run:
            return False
        values = self.state()
        head = (values[name] for name in self.manifest.task.head)
        return not any(value.any() for value in head if value.ndim == 1)

    def copy_to(self, folder: Path) -> "Kit":
        """Copy the kit's own files into a folder, the manifest last, and open the copy.

        The folder is created if it does not exist; other files in it are kept. An incomplete copy
        has no manifest, so it is never mistaken for a kit.

        Raises:
            PocketuneError: The folder cannot be written, or a file of the kit cannot be read.
        """
        with writing(folder):
            if folder.exists() and self.path.exists() and folder.samefile(self.path):
                return self
            folder.mkdir(parents=True, exist_ok=True)
            (folder / MANIFEST).unlink(missing_ok=True)
        for name in (*kit_files(self.manifest), MANIFEST):
            with (
                reading(self.path, name),
                self._storage.open(name) as source,
                replacing(folder / name) as partial,
                partial.open("wb") as stream,
            ):
                shutil.copyfileobj(source, stream)
        return Kit.open(folder, verify=False)

    def _check(self, name: str, verify: bool) -> None:
        expected = self.manifest.files.get(name)
        if expected is None:
            raise KitError(f"the manifest of the kit {self.path} does not list {name}")
        with reading(self.path, name):
            size = self._storage.size(name)
        if size > _most_bytes(name, self.manifest):
            raise KitError(
                f"{name} of the kit {self.path} has {size:,} bytes, more than its manifest says; "
                "copy the kit again"
            )
        with reading(self.path, name), self._storage.open(name) as stream:
            if verify and sha256(stream) != expected:
                raise KitError(
                    f"{name} of the kit {self.path} is not the file that its manifest describes "
                    "(wrong SHA-256): it is damaged or was changed; copy the kit again"
                )
        if verify and name in GRAPHS:
            self._check_graph(name)

    def _check_graph(self, name: str) -> None:
        source = self.source(name)
        with reading(self.path, name), mapped(source) as data:
            check_graph(name, data, self.manifest, f"{name} of the kit {self.path}")


def _most_bytes(name: str, manifest: Manifest) -> int:
    """Most bytes of a file, so that it is not read before it is known to be far too large."""
    if name == PARAMETERS:
        specs = (*manifest.parameters, *manifest.statistics)
        return ROOM + sum(4 * math.prod(spec.shape) + EACH for spec in specs)
    graph = manifest.graphs["step" if name == BLOCKED_STEP else name.removesuffix(".onnx")]
    return ROOM + graph.weights + EACH * graph.nodes


def kit_files(manifest: Manifest) -> tuple[str, ...]:
    """Names of the files of a kit with this manifest, except the manifest itself."""
    blocked = (BLOCKED_STEP,) if BLOCKED_STEP in manifest.files else ()
    return (*required_files(manifest), *blocked)


def required_files(manifest: Manifest) -> tuple[str, ...]:
    """Names of the files that a kit with this manifest must have, except the manifest itself."""
    first = () if manifest.features is None else (FEATURES,)
    return (*first, STEP, PREDICT, PARAMETERS)


def checked_state(
    values: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]], where: str
) -> State:
    """Copies of the tensors of these names and shapes, C-contiguous float32.

    Args:
        values: Tensors by name; those that are not in `shapes` are ignored.
        shapes: The shape of each tensor.
        where: Origin of the tensors, for messages.

    Raises:
        KitError: A tensor is missing, of another shape or not float32.
    """
    check_state(values, shapes, where)
    # copies: a loaded tensor may be read-only
    return {name: np.array(values[name], order="C") for name in shapes}


def check_state(
    values: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]], where: str
) -> None:
    """Check what `checked_state` checks, without copies.

    Raises:
        KitError: As `checked_state`.
    """
    for name, shape in shapes.items():
        if name not in values:
            raise KitError(f"{where} lacks the tensor {name}")
        value = values[name]
        if value.shape != shape or value.dtype != np.float32:
            raise KitError(
                f"{where} holds {name} as {value.dtype} of shape {value.shape} where float32 of "
                f"shape {shape} is needed"
            )


def manifest_text(place: Storage) -> bytes:
    """The bytes of a kit's manifest of any schema.

    Raises:
        KitError: There is no manifest, or it cannot be read.
    """
    with reading(place.path, MANIFEST):
        try:
            with place.open(MANIFEST) as stream:
                return stream.read()
        except FileNotFoundError as error:
            raise KitError(
                f"{place.path} is neither a kit nor a run: it holds no {MANIFEST}"
            ) from error
