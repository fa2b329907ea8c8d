"""Export a trained network as one ONNX file, for any ONNX runtime."""

import json
from pathlib import Path

import numpy as np

from pocketune.arrays import StrPath
from pocketune.device.engine import session as runtime
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.use.model import Model, as_model
from pocketune.device.use.onnx_merge import merge
from pocketune.errors import PocketuneError
from pocketune.files import replacing, writing
from pocketune.kit.names import FEATURES, PREDICT, RUN_FILES

TOLERANCE = 1e-4
"""Largest difference from :meth:`Engine.predict`, relative to the largest logit."""

_CHECKED_IMAGES = 3


def export(model: Model | StrPath, out: StrPath = "model.onnx") -> Path:
    """Export a model as one ONNX file, from uint8 ``images`` (N, S, S, 3) to float32 ``logits``.

    Logits are (N, classes). The trained values are constants of the graph, and the graph normalizes
    the pixels itself. The file's metadata holds the ``task`` and, as a JSON list, the ``classes``.
    The probabilities are the softmax of the logits for ``classification`` and their sigmoid for
    ``attributes``. Before the file gets its name, it is run on random images and compared with the
    model.

    Args:
        model: A run folder or a kit.
        out: The file to write or replace.

    Returns:
        The file's path.

    Raises:
        PocketuneError: The model cannot be used; the file cannot be written, or is a file of the
            model; or the exported graph does not compute what the model computes.
    """
    model, out = as_model(model), Path(out)
    refuse_to_overwrite(model.kit.path, out)
    content = _merged(model)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as file:
        file.write_bytes(content)
        _check(file, model)
    return out


def refuse_to_overwrite(model: Path, out: Path) -> None:
    """Check that a file to write is not a kit or a file of it.

    Raises:
        PocketuneError: It is.
    """
    if out.resolve() in {model.resolve(), *(model.resolve() / name for name in RUN_FILES)}:
        raise PocketuneError(
            f"{out} is the exported run or kit, or a file in it: choose another file"
        )


def _merged(model: Model) -> bytes:
    kit, manifest = model.kit, model.manifest
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
            shape=model.task.output_shape(manifest.size),
            properties=properties,
        )
    except ValueError as error:
        raise PocketuneError(f"the kit {kit.path} cannot be exported: {error}") from error


def _check(file: Path, model: Model) -> None:
    side = model.kit.manifest.size
    shape = (_CHECKED_IMAGES, side, side, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    expected = OnnxEngine(model.kit, model.state).predict(images)
    quantization = model.kit.manifest.quantization
    integers = quantization is not None and quantization.activations == 8
    try:
        session = runtime.open_session(file, as_written=False, integers=integers)
        (logits,) = session.run(["logits"], {"images": images})
    except Exception as error:  # the runtime's own types, which have no common base
        raise PocketuneError(
            f"the kit {model.kit.path} cannot be exported: the runtime refuses the result "
            f"({str(error).splitlines()[0]})"
        ) from error
    difference = float(np.abs(logits - expected).max() / max(1.0, float(np.abs(expected).max())))
    if not difference <= TOLERANCE:  # also true for nan
        raise PocketuneError(
            f"the kit {model.kit.path} cannot be exported: the exported logits differ by "
            f"{difference:.1e} relative to the largest, more than {TOLERANCE:.0e}"
        )
