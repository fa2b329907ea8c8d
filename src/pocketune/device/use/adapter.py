"""Trained values as an adapter in ONNX Runtime's own format, for programs in other languages."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pocketune.arrays import FloatArray, StrPath
from pocketune.device.engine import session as runtime
from pocketune.device.memory.graphs import most_arena_bytes
from pocketune.device.use.model import Model, as_model
from pocketune.device.use.replaceable import ADAPTER, refuse_to_overwrite
from pocketune.errors import PocketuneError
from pocketune.files import make_folder_of, replacing
from pocketune.kit.names import PREDICT

if TYPE_CHECKING:
    import onnxruntime as ort

_CLOSE = 1e-5
"""Largest difference of two outputs that are the same but for rounding, relative to the largest."""


def export_adapter(model: Model | StrPath, out: StrPath = "model.onnx_adapter") -> Path:
    """Write all values of a model as an `.onnx_adapter`.

    It holds every parameter and statistic that `predict.onnx` of the kit takes, so that a program
    gives it the result of `features.onnx` and nothing else. Any program with ONNX Runtime 1.20 or
    later can exchange adapters while it runs. The format has no place for the names of classes.
    Before the file gets its name, it is run and compared with the model.

    Args:
        model: A run or a kit.
        out: The file to write or replace.

    Returns:
        The file's path.

    Raises:
        PocketuneError: The model cannot be used or has a scalar, which the format cannot hold; or
            the file cannot be written, is a file of the model, or would replace something else
            than an adapter.
    """
    model, out = as_model(model), Path(out)
    refuse_to_overwrite(model.kit.path, out, ADAPTER)
    arena = most_arena_bytes(model.manifest, len(model.classes))
    graph = runtime.open_session(model.kit.source(PREDICT), as_written=False, arena=arena)
    taken = {each.name for each in graph.get_inputs()}
    values = {name: each for name, each in model.state.items() if name in taken}
    if scalars := [name for name, value in values.items() if not value.shape]:
        raise PocketuneError(
            f"the format of ONNX Runtime's adapters has no scalars, and the kit {model.kit.path} "
            f"has one, {scalars[0]}: save a delta instead"
        )
    make_folder_of(out)
    with replacing(out, RuntimeError) as file:
        runtime.write_adapter(file, values)
        _check(graph, file, values, model)
    return out


def _check(
    graph: "ort.InferenceSession", file: Path, values: Mapping[str, FloatArray], model: Model
) -> None:
    """Check that the adapter gives the outputs of its values.

    They may differ in their last bits, since the order of a sum may depend on where an array begins
    in memory, and the format aligns arrays to 8 bytes only.
    """
    manifest = model.kit.manifest
    rng = np.random.default_rng(0)
    side = manifest.size
    images = rng.integers(0, 256, (1, side, side, 3), dtype=np.uint8)
    start = (
        {"images": images}
        if manifest.features is None
        else {"features": rng.random((1, *manifest.features), dtype=np.float32)}
    )
    expected = graph.run(["logits"], {**start, **values})[0]
    found, error = runtime.run_adapted(graph, file, start), _CLOSE * np.abs(expected).max()
    same_shape = found.shape == expected.shape
    if not (same_shape and np.allclose(found, expected, rtol=0, atol=error, equal_nan=True)):
        raise PocketuneError(
            f"the kit {model.kit.path} cannot be adapted: this version of ONNX Runtime computes "
            "other outputs with the adapter than with its values; upgrade onnxruntime"
        )
