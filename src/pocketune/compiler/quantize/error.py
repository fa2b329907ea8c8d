"""The error of a quantized frozen part against the one in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from pocketune.compiler.quantize.calibration import Calibration
from pocketune.device.engine.session import open_session

Features = NDArray[np.float32]


@dataclass(frozen=True)
class FeatureError:
    """The error of a quantized frozen part against the one in float32, on held-out images.

    Attributes:
        error: Norm of the features' difference, as a share of the features' norm.
        accuracy: Of classification by the nearest class centroid, in [0, 1]; None without labels.
        float_accuracy: The same in float32.
    """

    error: float
    accuracy: float | None
    float_accuracy: float | None


class Judge:
    """Compares frozen parts with the one in float32, which runs once.

    Args:
        model: The frozen part in float32.
        calibration: Images, their labels where they are known.
        output: Name of the output that is compared.
    """

    def __init__(
        self, model: onnx.ModelProto, calibration: Calibration, output: str = "features"
    ) -> None:
        self._calibration = calibration
        self._output = output
        self._truth = self._run(model)
        self._accuracy = self._centroid_accuracy(self._truth)

    def judge(self, model: onnx.ModelProto) -> FeatureError:
        """The error of `model`; see `FeatureError`."""
        features = self._run(model)
        held_out = self._calibration.held_out
        error = relative_error(features[held_out], self._truth[held_out])
        return FeatureError(error, self._centroid_accuracy(features), self._accuracy)

    def _run(self, model: onnx.ModelProto) -> Features:
        return run_features(model, self._calibration.images, self._output)

    def _centroid_accuracy(self, features: Features) -> float | None:
        """Share of the held-out images that lie nearest to the mean of their own class."""
        labels = self._calibration.labels
        if labels is None:
            return None
        pooled = _pooled(features)
        fitted, held_out = self._calibration.fitted, self._calibration.held_out
        classes = np.unique(labels[fitted])
        centroids = np.stack([pooled[fitted][labels[fitted] == c].mean(axis=0) for c in classes])
        distances = np.square(pooled[held_out][:, None] - centroids).sum(axis=2)
        return float((classes[distances.argmin(axis=1)] == labels[held_out]).mean())


def _pooled(features: Features) -> Features:
    """Means (N, C) of square maps (N, C, H, W) or (N, H, W, C), or of tokens (N, T, C)."""
    channels_first = features.ndim == 4 and features.shape[2] == features.shape[3]
    places = (2, 3) if channels_first else tuple(range(1, features.ndim - 1))
    means: Features = features.mean(axis=places)
    return means


def run_features(
    model: onnx.ModelProto, images: NDArray[np.uint8], output: str = "features"
) -> Features:
    """Features (N, ...) of images, one at a time as the device computes them."""
    session: Any = open_session(model.SerializeToString(), as_written=False, integers=True)
    rows = [session.run([output], {"images": image[None]})[0] for image in images]
    features: Features = np.concatenate(rows)
    return features


def relative_error(values: Features, truth: Features) -> float:
    """Norm of the difference as a share of the truth's; 0 where both are zero."""
    norm = float(np.linalg.norm(truth.astype(np.float64)))
    difference = float(np.linalg.norm(values.astype(np.float64) - truth))
    return difference / norm if norm else float(difference > 0)
