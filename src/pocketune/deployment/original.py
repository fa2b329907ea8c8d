"""A model that is exported in fewer bits: its float32 graph, and the photos of the export."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from pocketune.arrays import StrPath
from pocketune.compiler.progress import Progress
from pocketune.compiler.quantize.calibration import Calibration
from pocketune.compiler.quantize.error import relative_error, run_features
from pocketune.compiler.quantize.search import quantize_features
from pocketune.data import ImageDataset
from pocketune.deployment.agreement import Agreement, Predict, agreement
from pocketune.deployment.photos import CALIBRATED, COMPARED, photos_for, sampled_images
from pocketune.device.use.export import export
from pocketune.device.use.model import Model, as_model
from pocketune.device.use.replaceable import EXPORTED, Kind, refuse_to_overwrite
from pocketune.kit.manifest import Quantization


@dataclass(frozen=True)
class Original:
    """A model to export in fewer bits.

    Attributes:
        model: The run or the kit.
        graph: The model as one ONNX graph in float32.
        train: Photos to calibrate on; None if there are none.
        held_out: Photos to compare on; the same if there are no others.
    """

    model: Model
    graph: onnx.ModelProto
    train: ImageDataset | None
    held_out: ImageDataset | None

    @classmethod
    def open(
        cls,
        model: Model | StrPath,
        out: Path,
        photos: StrPath | None,
        progress: Progress,
        *,
        calibrated: bool,
        kind: Kind = EXPORTED,
    ) -> Original:
        """Open a model and find its photos.

        Args:
            model: A run or a kit.
            out: The file to write later.
            photos: The photos; None stands for the run's own.
            progress: Called with what is done.
            calibrated: Whether photos are needed to calibrate on.
            kind: Kind of the file, which replaces only one of its kind.

        Raises:
            PocketuneError: The model cannot be used, `out` is a file of it or of another kind, or
                there are no photos.
        """
        model = as_model(model)
        refuse_to_overwrite(model.kit.path, out, kind)
        progress("reading the photos", 0.0)
        train, held_out = photos_for(model, photos, needed=calibrated)
        with tempfile.TemporaryDirectory(prefix="pocketune-") as folder:
            graph = onnx.load(export(model, Path(folder) / "float.onnx"))
        return cls(model, graph, train, held_out)

    @property
    def compares_on_training(self) -> bool:
        """Whether there are photos to compare on, and they are those to calibrate on."""
        return self.held_out is not None and self.held_out is self.train

    def quantized(
        self, plain: onnx.ModelProto, operators: Sequence[str]
    ) -> tuple[onnx.ModelProto, Quantization]:
        """The model in integers, calibrated on its photos; see `quantize_features`.

        Args:
            plain: The same function, in float32.
            operators: What is quantized.

        Raises:
            PocketuneError: Fewer than two photos can be read.
        """
        assert self.train is not None
        images = sampled_images(self.train, self.model, CALIBRATED, least=2)
        return quantize_features(
            plain, Calibration(images), self.graph, output="logits", operators=operators
        )

    def error(self, reduced: Predict) -> float:
        """Error of the logits in fewer bits on random images, as a share of their norm."""
        size = self.model.manifest.size
        images = np.random.default_rng(0).integers(0, 256, (3, size, size, 3), dtype=np.uint8)
        return relative_error(reduced(images), run_features(self.graph, images, "logits"))

    def agreement(self, reduced: Predict, progress: Progress) -> Agreement | None:
        """How far the logits in fewer bits agree with those in float32; None without photos."""
        if self.held_out is None:
            return None
        progress("comparing the predictions", 0.7)
        return agreement(
            sampled_images(self.held_out, self.model, COMPARED, least=1),
            lambda images: run_features(self.graph, images, "logits"),
            reduced,
            several=self.model.task.activation == "sigmoid",
        )
