"""ONNX Runtime's static quantizer: int8 weights per channel, uint8 activations.

Only this file uses undocumented parts of ONNX Runtime: the calibrators' session and the arguments
of `QDQQuantizer`. It was written for ONNX Runtime 1.31.

The result is standard ONNX: QuantizeLinear and DequantizeLinear around float operators. A runtime
may compute it in float as it is, or fuse it into integer operators, as ONNX Runtime does.
"""

from __future__ import annotations

import contextlib
import copy
import io
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import shape_inference
from onnxruntime.quantization.calibrate import (
    CalibrationDataReader,
    CalibrationMethod,
    MinMaxCalibrater,
    PercentileCalibrater,
    TensorsData,
)
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import QuantType

from pocketune.device.engine.session import open_session

# Operators computed in integers. A product with a value per channel (squeeze and excitation, the
# normalization of images) is not among them: the runtime's integer operators that broadcast are
# ten times slower than the float ones.
OPERATORS = ("Conv", "Clip", "Relu", "Add", "MaxPool")


LAYERS = ("Conv", "Add", "Gemm", "MatMul")
"""Operators that can stay in float32 one by one."""
_SHAPES = ("Flatten", "Gather", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that hand on the numbers of a layer."""


class _AsOnDevice:
    """Opens the session as the device does, with its threads and the arena of all sessions."""

    def create_inference_session(self) -> None:
        """Open the model that has the watched tensors as outputs."""
        path: str = self.augmented_model_path  # type: ignore[attr-defined]
        self.infer_session = open_session(Path(path), as_written=False)


class _Once(CalibrationDataReader):  # type: ignore[misc]
    """Gives one batch to a calibrator."""

    def __init__(self, images: NDArray[np.uint8]) -> None:
        self._feeds: dict[str, NDArray[np.uint8]] | None = {"images": images}

    def get_next(self) -> dict[str, NDArray[np.uint8]] | None:
        """The batch, then None."""
        feeds, self._feeds = self._feeds, None
        return feeds


class MinMax(_AsOnDevice, MinMaxCalibrater):  # type: ignore[misc]
    """The whole range of the values seen."""


class Percentile(_AsOnDevice, PercentileCalibrater):  # type: ignore[misc]
    """The range without the outermost 0.001 % of values."""


class StaticQuantizer:
    """Quantizes one model repeatedly, with ranges that are measured once.

    Args:
        model: Takes `images` uint8 (N, S, S, 3).
        ranges: Of its activations, from `measure_ranges` or `nominal_ranges`.
        operators: Those to compute in integers; products are quantized if one factor is constant.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        ranges: TensorsData,
        operators: Sequence[str] = OPERATORS,
    ) -> None:
        self._model = shape_inference.infer_shapes(model)
        self._ranges = ranges
        self._operators = list(operators)
        self._quantizable = list(_quantizable(self._model, operators))
        self.layers = [n.name for n in self._quantizable if n.op_type in LAYERS]
        """Names of the layers and residual sums; the operators between follow those they read."""

    def quantize(self, floats: Collection[str] = ()) -> onnx.ModelProto:
        """The model with all layers quantized but those named in `floats`."""
        model, chosen = copy.deepcopy(self._model), self._in_integers(floats)
        if chosen:  # the quantizer takes an empty list for all nodes
            model = self._quantized(model, chosen)
        model.graph.ClearField("value_info")
        for tensor in model.graph.initializer:
            tensor.ClearField("data_location")  # it says "in this file", which needs no saying
        model.producer_name = "pocketune"
        model.producer_version = ""
        del model.metadata_props[:]
        standard = [opset for opset in model.opset_import if not opset.domain]
        del model.opset_import[:]
        model.opset_import.extend(standard)
        onnx.checker.check_model(model)
        return model

    def _quantized(self, model: onnx.ModelProto, chosen: list[str]) -> onnx.ModelProto:
        quantizer = QDQQuantizer(
            model,
            True,  # per channel
            False,  # the full range of weights
            QuantType.QInt8,
            QuantType.QUInt8,
            self._ranges,
            chosen,
            [],
            self._operators,
            {},
        )
        quantizer.quantize_model()
        quantizer.model.topological_sort()
        made: onnx.ModelProto = quantizer.model.model
        return made

    def _in_integers(self, floats: Collection[str]) -> list[str]:
        """The nodes to quantize: not those that read nothing but layers in float32.

        Rounding between such layers costs accuracy and saves nothing.
        """
        chosen = []
        integers: dict[str, bool] = {}  # of the values that come from a layer
        quantizable = {node.name for node in self._quantizable}
        for node in self._model.graph.node:
            known = [integers[name] for name in node.input if name in integers]
            follows = any(known) or not known
            if node.name in quantizable:
                follows = node.name not in floats if node.op_type in LAYERS else follows
                if follows:
                    chosen.append(node.name)
            elif not known:
                continue
            elif node.op_type not in _SHAPES:  # it computes in float32, as norms do
                follows = False
            integers.update(dict.fromkeys(node.output, follows))
        return chosen


def measure_ranges(
    model: onnx.ModelProto,
    images: NDArray[np.uint8],
    calibrater: type[MinMax | Percentile],
    operators: Sequence[str] = OPERATORS,
) -> TensorsData:
    """Ranges of the activations on `images`; `calibrater` makes them from the values seen.

    Images are run one by one: histograms of all at once would take gigabytes.
    """
    model = shape_inference.infer_shapes(model)
    options = {"symmetric": False} if calibrater is Percentile else {}
    with tempfile.TemporaryDirectory(prefix="pocketune-") as folder:
        path, watched = Path(folder) / "model.onnx", str(Path(folder) / "watched.onnx")
        onnx.save(model, path)
        watcher = calibrater(path, list(operators), watched, **options)
        watcher.augment_graph()
        watcher.create_inference_session()
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
            for image in images:
                watcher.collect_data(_Once(image[None]))
            return watcher.compute_data()


def nominal_ranges(model: onnx.ModelProto) -> TensorsData:
    """The range [0, 1] for every activation, for a quantized graph of the right size only."""
    names = {name for node in model.graph.node for name in (*node.input, *node.output)}
    span = np.float32(0), np.float32(1)
    return TensorsData(CalibrationMethod.MinMax, dict.fromkeys(names, span))


def _quantizable(model: onnx.ModelProto, operators: Sequence[str]) -> Iterator[onnx.NodeProto]:
    """The nodes that may compute with integers; the normalization of the images does not.

    What computes with integers already, behind a DequantizeLinear, stays as it is.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    integers = {n.output[0] for n in model.graph.node if n.op_type == "DequantizeLinear"}
    for node in model.graph.node:
        inputs = set(node.input)
        if inputs & integers or (node.op_type in ("Add", "Mul") and inputs & constants):
            continue
        if node.op_type == "MatMul" and not inputs & constants:
            continue
        if node.op_type in operators:
            yield node
