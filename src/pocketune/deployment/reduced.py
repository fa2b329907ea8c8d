"""Export a trained model with 8-bit integers or 16-bit floats, and measure how far it agrees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

from pocketune.arrays import FloatArray, StrPath
from pocketune.compiler.progress import Progress, silent
from pocketune.compiler.quantize.error import run_features
from pocketune.compiler.quantize.static import OPERATORS
from pocketune.deployment.original import Original
from pocketune.deployment.plain import plain_model
from pocketune.deployment.result import Reduced, require_agreement, write_export
from pocketune.device.use.model import Model
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
    With `fp16`, weights and operators have 16-bit floats. Without photos, it is compared on random
    images.

    Args:
        model: A run or a kit.
        out: The file to write or replace.
        precision: `"int8"` or `"fp16"`.
        photos: Photos to calibrate and compare on, divided as a run divides those of one class;
            None stands for the run's own. Labels do not count. A kit needs photos for `int8`.
        progress: Called with what is done next, and the share of the time that is over.

    Raises:
        PocketuneError: The precision is unknown; the model cannot be used, or has no photos; the
            file cannot be written; or the result is off by more than `BOUND`.
    """
    check_choice(PRECISIONS, precision=precision)
    out, progress = Path(out), progress or silent
    original = Original.open(model, out, photos, progress, calibrated=precision == "int8")
    plain = plain_model(original.graph, integers=precision == "int8")
    quantization: Quantization | None = None
    progress(f"converting to {precision}", 0.1)
    if precision == "int8":
        result, quantization = original.quantized(plain, INTEGER_OPERATORS)
    else:
        result = convert_float_to_float16(plain, keep_io_types=True, op_block_list=IN_FLOAT32)
    _keep_facts(original.graph, result)

    def predict(images: NDArray[np.uint8]) -> FloatArray:
        return run_features(result, images, "logits")

    measured = original.agreement(predict, progress)
    if measured is None:
        require_agreement(original.error(predict), original.model.kit.path, precision)
    content: bytes = result.SerializeToString()
    return write_export(out, content, original, measured, precision, quantization)


def _keep_facts(original: onnx.ModelProto, result: onnx.ModelProto) -> None:
    """The metadata of the original: task, classes, network."""
    del result.metadata_props[:]
    result.metadata_props.extend(original.metadata_props)
