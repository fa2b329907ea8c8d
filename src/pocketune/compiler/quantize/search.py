"""Quantize the frozen part to 8 bits, as far as the error of its features allows.

All layers are quantized first. If the error of the features then exceeds `ERROR_BOUND`, or the
classes separate worse, the layers with the largest errors stay in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from pocketune.compiler.quantize.calibration import Calibration
from pocketune.compiler.quantize.error import FeatureError, Judge, relative_error, run_features
from pocketune.compiler.quantize.static import (
    OPERATORS,
    MinMax,
    Percentile,
    StaticQuantizer,
    measure_ranges,
)
from pocketune.kit.manifest import Quantization

ERROR_BOUND = 0.1
"""Largest error of the features, as a share of their norm."""

ACCURACY_BOUND = 0.02
"""Largest loss of accuracy of the nearest centroid; one image fewer is always allowed."""

_PROBES = 8
"""Images on which the errors of single layers are compared."""


@dataclass(frozen=True)
class _Attempt:
    """A quantized frozen part and its error."""

    model: onnx.ModelProto
    result: FeatureError
    floats: int
    layers: int


def quantize_features(
    model: onnx.ModelProto,
    calibration: Calibration,
    exact: onnx.ModelProto | None = None,
    *,
    output: str = "features",
    operators: Sequence[str] = OPERATORS,
) -> tuple[onnx.ModelProto, Quantization]:
    """Quantize weights per channel and calibrated activations.

    Args:
        model: The frozen part in float32: `images` uint8 -> `features` float32.
        calibration: The user's own images.
        exact: The model to measure errors against, if `model` already has rounded weights.
        output: Name of the output that takes the place of the features.
        operators: Those that are computed in integers.

    Returns:
        The model with the same input and output, within the bounds above, and what it costs.
    """
    judge, images = Judge(exact or model, calibration, output), calibration.ranges
    quantizer = _quantizer(model, images, MinMax, operators)
    best = _attempt(quantizer, judge, [])
    if not _within_bounds(best.result, calibration):
        cut = _quantizer(model, images, Percentile, operators)
        other = _attempt(cut, judge, [])
        if _within_bounds(other.result, calibration) or other.result.error < best.result.error:
            quantizer, best = cut, other
    if not _within_bounds(best.result, calibration):
        order = _by_sensitivity(model, quantizer, calibration, output)
        best = _keep_floats(order, quantizer, judge, calibration)
    return best.model, Quantization(
        activations=8,
        images=len(calibration.held_out),
        error=best.result.error,
        accuracy=best.result.accuracy,
        float_accuracy=best.result.float_accuracy,
        layers=best.layers,
        float_layers=best.floats,
    )


def _quantizer(
    model: onnx.ModelProto,
    images: NDArray[np.uint8],
    calibrater: type[MinMax | Percentile],
    operators: Sequence[str],
) -> StaticQuantizer:
    ranges = measure_ranges(model, images, calibrater, operators)
    return StaticQuantizer(model, ranges, operators)


def _attempt(quantizer: StaticQuantizer, judge: Judge, floats: list[str]) -> _Attempt:
    model = quantizer.quantize(floats)
    return _Attempt(model, judge.judge(model), len(floats), len(quantizer.layers))


def _within_bounds(result: FeatureError, calibration: Calibration) -> bool:
    if result.accuracy is None or result.float_accuracy is None:
        return result.error <= ERROR_BOUND
    allowed = max(ACCURACY_BOUND, 1 / len(calibration.held_out)) + 1e-9
    fell = result.float_accuracy - result.accuracy
    return result.error <= ERROR_BOUND and fell <= allowed


def _keep_floats(
    order: list[str], quantizer: StaticQuantizer, judge: Judge, calibration: Calibration
) -> _Attempt:
    """The attempt with the fewest layers in float32 that is within bounds, by bisection.

    The first layers of `order` stay in float32.
    """
    few, enough = 0, len(order)
    best = _attempt(quantizer, judge, order)
    while enough - few > 1:
        count = (few + enough) // 2
        attempt = _attempt(quantizer, judge, order[:count])
        if _within_bounds(attempt.result, calibration):
            enough, best = count, attempt
        else:
            few = count
    return best


def _by_sensitivity(
    model: onnx.ModelProto, quantizer: StaticQuantizer, calibration: Calibration, output: str
) -> list[str]:
    """The layers, by the error that each alone causes, the largest first."""
    images = calibration.spread(_PROBES)
    truth = run_features(model, images, output)
    errors = {}
    for layer in quantizer.layers:
        alone = quantizer.quantize([name for name in quantizer.layers if name != layer])
        errors[layer] = relative_error(run_features(alone, images, output), truth)
    return sorted(errors, key=lambda layer: -errors[layer])
