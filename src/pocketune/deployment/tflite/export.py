"""Export a trained model for TensorFlow Lite, and measure how far it agrees."""

from __future__ import annotations

import io
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray, StrPath
from pocketune.compiler.progress import Progress, silent
from pocketune.deployment.original import Original
from pocketune.deployment.reduced import INTEGER_OPERATORS
from pocketune.deployment.result import Reduced, write_export
from pocketune.deployment.tflite.flatbuffer import schema_classes
from pocketune.deployment.tflite.operators import Translator
from pocketune.deployment.tflite.prepare import prepared_model
from pocketune.device.use.model import Model
from pocketune.device.use.replaceable import Kind
from pocketune.errors import PocketuneError, check_choice
from pocketune.kit.manifest import Quantization

PRECISIONS = ("int8", "float32")
IN_INTEGERS = (
    *INTEGER_OPERATORS,
    *("Concat", "Gelu", "HardSigmoid", "HardSwish", "Mul", "ReduceMean", "Sigmoid"),
)
"""Operators that TensorFlow Lite has for integers; ONNX Runtime is slower with the last ones."""
LABELS = "labels.txt"
"""The classes, one a line, in a zip archive at the end of the file."""
KIND = Kind("a TensorFlow Lite file", b"TFL3")
TOLERANCE = 1e-3
"""Largest error of a file in float32 on random images, as a share of the logits' norm."""
ROUNDED = 0.05
"""The same where a frozen part computes with integers, which LiteRT rounds in other places."""


def export_tflite(
    model: Model | StrPath,
    out: StrPath = "model.tflite",
    *,
    precision: str = "int8",
    photos: StrPath | None = None,
    progress: Progress | None = None,
) -> Reduced:
    """Export a model as a TensorFlow Lite flatbuffer, from one image to its logits.

    It takes uint8 `images` (1, S, S, 3) and gives float32 `logits` (1, classes), or
    (1, h, w, classes) for `segmentation`. With `int8`, the model is quantized as
    `export_reduced` does, and nearly all operators between compute with integers. The file is run
    by LiteRT before it gets its name.

    Args:
        model: A run or a kit.
        out: The file to write or replace.
        precision: `"int8"` or `"float32"`.
        photos: Photos to calibrate and compare on, divided as a run divides those of one class;
            None stands for the run's own. Labels do not count. A kit needs photos for `int8`.
        progress: Called with what is done next, and the share of the time that is over.

    Raises:
        PocketuneError: LiteRT is not installed; the precision is unknown; the model cannot be used,
            has no photos, or has an operator that is not translated; the file cannot be written; or
            the result is off by more than `BOUND`.
    """
    check_choice(PRECISIONS, precision=precision)
    schema_classes()
    out, progress = Path(out), progress or silent
    calibrated = precision == "int8"
    original = Original.open(model, out, photos, progress, calibrated=calibrated, kind=KIND)
    plain = prepared_model(original.graph)
    quantization: Quantization | None = None
    Translator(plain).translate()  # refuses an operator before the minutes of quantization
    progress(f"converting to {precision}", 0.1)
    if precision == "int8":
        plain, quantization = original.quantized(plain, IN_INTEGERS)
    content = Translator(plain).translate()
    if precision == "float32":
        _check(original, content)
    measured = original.agreement(lambda images: run_tflite(content, images), progress)
    content += _labels(original.model.classes)
    return write_export(out, content, original, measured, precision, quantization)


def run_tflite(content: bytes, images: NDArray[np.uint8]) -> FloatArray:
    """Logits (N, ...) of images, one at a time; those of pixels as ONNX orders them.

    Args:
        content: The flatbuffer.
        images: uint8 (N, S, S, 3).
    """
    from ai_edge_litert.interpreter import Interpreter

    with _without_log():
        interpreter: Any = Interpreter(model_content=content, num_threads=1)
        run = interpreter.get_signature_runner()
        first = run(images=images[:1])["logits"]  # which chooses the kernels
    rest = [run(images=image[None])["logits"] for image in images[1:]]
    logits = np.concatenate([first, *rest])
    ordered: FloatArray = np.moveaxis(logits, -1, 1)
    return ordered


@contextmanager
def _without_log() -> Iterator[None]:
    """Leave out what LiteRT tells standard error of itself: that it has chosen its CPU kernels.

    Its library writes there directly and has no setting for that. What fails raises all the same.
    """
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _check(original: Original, content: bytes) -> None:
    error = original.error(lambda images: run_tflite(content, images))
    most = ROUNDED if original.model.manifest.computes_integers else TOLERANCE
    if not error <= most:
        raise PocketuneError(
            f"{original.model.kit.path} cannot be exported for TensorFlow Lite: the logits differ "
            f"by {error:.1e} of their norm, more than {most:.0e}"
        )


def _labels(classes: Sequence[str]) -> bytes:
    """A zip archive with the classes, which readers of flatbuffers pass over."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        lines = "".join(f"{' '.join(name.split())}\n" for name in classes)
        archive.writestr(zipfile.ZipInfo(LABELS), lines.encode())
    return content.getvalue()
