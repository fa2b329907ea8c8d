"""Export a trained model with 8-bit integers or 16-bit floats, and measure how far it agrees."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

from pocketune.arrays import FloatArray, StrPath
from pocketune.compiler.progress import Progress, silent
from pocketune.compiler.quantize.calibration import Calibration
from pocketune.compiler.quantize.error import run_features
from pocketune.compiler.quantize.search import quantize_features
from pocketune.compiler.quantize.static import OPERATORS
from pocketune.deployment.agreement import Agreement, agreement
from pocketune.deployment.photos import CALIBRATED, COMPARED, photos_for, sampled_images
from pocketune.deployment.plain import plain_model
from pocketune.deployment.result import Reduced, require_agreement, write_export
from pocketune.device.use.export import export, refuse_to_overwrite
from pocketune.device.use.model import Model, as_model
from pocketune.errors import check_choice
from pocketune.kit.manifest import Quantization

PRECISIONS = ("int8", "fp16")
INTEGER_OPERATORS = (*OPERATORS, "Gemm", "MatMul")
IN_FLOAT32 = [*DEFAULT_OP_BLOCK_LIST, "QuantizeLinear", "DequantizeLinear"]
"""Operators that 16-bit floats are converted for, among them those of an 8-bit frozen part."""


def export_reduced(
    model: Model | StrPath,
    out: StrPath = "model.onnx",
    *,
    precision: str,
    photos: StrPath | None = None,
    progress: Progress | None = None,
) -> Reduced:
    """Export a model as one ONNX file in fewer bits, from uint8 `images` to float32 `logits`.

    With `int8`, weights have 8 bits and a scale a channel, and activations 8 bits with ranges
    from photos. The file has standard operators with QuantizeLinear and DequantizeLinear around
    them, which runtimes fuse into integer operators. Layers stay in float32, those with the largest
    errors first, until the logits are off by less than a tenth of their norm on held-out photos.
    With `fp16`, weights and operators have 16-bit floats.

    Args:
        model: A run or a kit.
        out: The file to write or replace.
        precision: `"int8"` or `"fp16"`.
        photos: Photos to calibrate and compare on; None stands for the run's own. Labels do not
            count. A kit needs photos for `int8`.
        progress: Called with what is done next, and the share of the time that is over.

    Raises:
        PocketuneError: The precision is unknown; the model cannot be used, or has no photos; the
            file cannot be written; or the result is off by more than `BOUND`.
    """
    check_choice(PRECISIONS, precision=precision)
    model, out = as_model(model), Path(out)
    refuse_to_overwrite(model.kit.path, out)
    progress = progress or silent
    progress("reading the photos", 0.0)
    train, held_out = photos_for(model, photos, needed=precision == "int8")
    size = model.manifest.size
    with tempfile.TemporaryDirectory(prefix="pocketune-") as folder:
        original = onnx.load(export(model, Path(folder) / "float.onnx"))
    float_size = original.ByteSize()
    quantization: Quantization | None = None
    progress(f"converting to {precision}", 0.1)
    if precision == "int8":
        assert train is not None
        calibration = Calibration(sampled_images(train, size, CALIBRATED, least=2))
        result, quantization = quantize_features(
            plain_model(original),
            calibration,
            original,
            output="logits",
            operators=INTEGER_OPERATORS,
        )
    else:
        result = convert_float_to_float16(
            plain_model(original), keep_io_types=True, op_block_list=IN_FLOAT32
        )
    _keep_facts(original, result)
    measured = None
    if held_out is not None:
        progress("comparing the predictions", 0.7)
        images = sampled_images(held_out, size, COMPARED, least=1)
        measured = _compare(images, original, result, several=model.task.activation == "sigmoid")
        require_agreement(measured, model.kit.path, precision)
    return write_export(
        out,
        result.SerializeToString(),
        measured,
        quantization,
        float_size=float_size,
        on_training=measured is not None and held_out is train,
    )


def _compare(
    images: NDArray[np.uint8],
    original: onnx.ModelProto,
    reduced: onnx.ModelProto,
    *,
    several: bool,
) -> Agreement:
    def of(model: onnx.ModelProto) -> FloatArray:
        return run_features(model, images, "logits")

    return agreement(images, lambda _: of(original), lambda _: of(reduced), several=several)


def _keep_facts(original: onnx.ModelProto, result: onnx.ModelProto) -> None:
    """The metadata of the original: task, classes, network."""
    del result.metadata_props[:]
    result.metadata_props.extend(original.metadata_props)
