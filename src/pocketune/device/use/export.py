"""Export a trained network as one ONNX file, for any ONNX runtime."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pocketune.arithmetic import usual_arithmetic
from pocketune.arrays import FloatArray, StrPath
from pocketune.device.engine import session as runtime
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.use.model import Model, as_model
from pocketune.device.use.onnx_merge import merge
from pocketune.device.use.replaceable import EXPORTED, refuse_to_overwrite
from pocketune.errors import PocketuneError, check_choice, first_line
from pocketune.files import make_folder_of, replacing
from pocketune.kit.names import FEATURES, PREDICT
from pocketune.tasks.maps import interpolation

TOLERANCE = 1e-3
"""Largest difference from `Engine.predict`, relative to the largest logit or classifier's bias.
Networks that magnify rounding differ by up to 3e-4; what a wrong graph computes is further off. A
bias is as large as what cancels out in the logits, the rounding of which they keep."""

_CHECKED_IMAGES = 3


OUTPUTS = ("logits", "classes")


@usual_arithmetic
def export(model: Model | StrPath, out: StrPath = "model.onnx", *, output: str = "logits") -> Path:
    """Export a model as one ONNX file, from uint8 `images` (N, S, S, 3) to float32 `logits`.

    Logits are (N, classes), or (N, classes, h, w) for `segmentation`. The trained values are
    constants of the graph, and the graph normalizes the pixels itself. The file's metadata holds
    the `task` and, as a JSON list, the `classes`. The probabilities are the softmax of the
    logits for `classification` and `segmentation` and their sigmoid for `attributes`. Before
    the file gets its name, it is run on random images and compared with the model.

    Args:
        model: A run or a kit.
        out: The file to write or replace.
        output: `"logits"`; or `"classes"` for the class of each pixel, uint8 (N, S, S), of a
            model of `segmentation`: the largest of the logits, which are resized to the image.

    Returns:
        The file's path.

    Raises:
        PocketuneError: The model cannot be used, or has no such output; the file cannot be
            written, is a file of the model, or would replace something else than an exported
            model; or the exported graph does not compute what the model computes.
    """
    model, out = as_model(model), Path(out)
    _check_output(output, model)
    refuse_to_overwrite(model.kit.path, out, EXPORTED)
    content = _merged(model, output)
    make_folder_of(out)
    with replacing(out) as file:
        file.write_bytes(content)
        _check(file, model, output)
    return out


def _check_output(output: str, model: Model) -> None:
    check_choice(OUTPUTS, output=output)
    if output == "classes" and not model.task.dense:
        raise PocketuneError(
            f"{model.kit.path} classifies images, so it has no class for each pixel: export its "
            "logits"
        )


def _merged(model: Model, output: str) -> bytes:
    kit, manifest = model.kit, model.manifest
    shape = model.task.output_shape(manifest.size)
    properties = {
        "classes": json.dumps(model.classes, ensure_ascii=False),
        "task": manifest.task.name,
        "network": json.dumps(manifest.network),
        "pocketune": manifest.version,
    }
    try:
        return merge(
            None if manifest.features is None else kit.read(FEATURES),
            kit.read(PREDICT),
            values=model.state,
            size=manifest.size,
            shape=shape,
            properties=properties,
            resizing=_resizing(shape, manifest.size) if output == "classes" else None,
        )
    except ValueError as error:
        raise PocketuneError(f"the kit {kit.path} cannot be exported: {error}") from error


def _resizing(shape: tuple[int, ...], size: int) -> tuple[FloatArray, FloatArray]:
    """Matrices (S, h) and (S, w), from logits (classes, h, w) to the pixels of an image."""
    down, across = (interpolation(size, 0, size, cells) for cells in shape[1:])
    return down, across


def _check(file: Path, model: Model, output: str) -> None:
    manifest = model.kit.manifest
    side = manifest.size
    shape = (_CHECKED_IMAGES, side, side, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    expected = OnnxEngine(model.kit, model.state).predict(images)
    try:
        session = runtime.open_session(file, as_written=False, integers=True)
        (found,) = session.run([output], {"images": images})
    except Exception as error:  # the runtime's own types, which have no common base
        raise PocketuneError(
            f"the kit {model.kit.path} cannot be exported: the runtime refuses the result "
            f"({first_line(error)})"
        ) from error
    off = _behind(found, expected) if output == "classes" else np.abs(found - expected).max()
    biases = (model.state[name] for name in model.task.head if model.state[name].ndim == 1)
    largest = max(float(np.abs(values).max()) for values in (expected, *biases))
    difference = float(off / max(1.0, largest))
    if not difference <= TOLERANCE:  # also true for nan
        raise PocketuneError(
            f"the kit {model.kit.path} cannot be exported: the exported logits differ by "
            f"{difference:.1e} relative to the largest, more than {TOLERANCE:.0e}"
        )


def _behind(classes: NDArray[np.uint8], logits: FloatArray) -> float:
    """How far the resized logits of these classes (N, S, S) are at most below the largest ones."""
    vertical, horizontal = _resizing(logits.shape[1:], classes.shape[1])
    worst = 0.0
    for chosen, each in zip(classes, logits, strict=True):
        pixels = vertical @ each @ horizontal.T
        own = np.take_along_axis(pixels, chosen[None].astype(np.intp), axis=0)
        worst = max(worst, float((pixels.max(axis=0) - own).max()))
    return worst
