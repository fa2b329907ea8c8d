"""Files for TensorFlow Lite: what they compute, hold and refuse."""

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="needs the extra tflite")

from pocketune.deployment import export_tflite, result
from pocketune.deployment.tflite import export as exporting
from pocketune.deployment.tflite.export import run_tflite
from pocketune.device import export
from pocketune.device.engine.session import open_session
from pocketune.device.use.model import Model
from pocketune.errors import PocketuneError

from ...device.tiny_kit import CLASSES


@pytest.mark.parametrize(("precision", "error"), [("int8", 0.1), ("float32", 1e-4)])
def test_it_computes_what_the_model_computes(
    tmp_path: Path, model: Model, photos: Path, precision: str, error: float
) -> None:
    stages: list[str] = []
    made = export_tflite(
        model,
        tmp_path / "deep" / "small.tflite",
        precision=precision,
        photos=photos,
        progress=lambda what, share: stages.append(what),
    )
    images = np.random.default_rng(5).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    session = open_session(export(model, tmp_path / "float.onnx"), as_written=False)
    truth = session.run(["logits"], {"images": images})[0]
    found = run_tflite(made.path.read_bytes(), images)
    assert np.linalg.norm(found - truth) < error * np.linalg.norm(truth)
    assert made.agreement is not None and made.agreement.photos == 6
    assert made.agreement.error < error
    assert (made.layers > 0) == (precision == "int8")
    assert stages == [
        "reading the photos",
        f"converting to {precision}",
        "comparing the predictions",
    ]


def test_the_runtime_s_log_is_left_out(
    tmp_path: Path, model: Model, capfd: pytest.CaptureFixture[str]
) -> None:
    export_tflite(model, tmp_path / "model.tflite", precision="float32")
    assert capfd.readouterr().err == ""
    print("later", file=sys.stderr)
    assert capfd.readouterr().err == "later\n"


def test_the_file(tmp_path: Path, model: Model) -> None:
    """Its signature, its types, and the classes in the archive at its end."""
    from ai_edge_litert.interpreter import Interpreter

    made = export_tflite(model, tmp_path / "model.tflite", precision="float32")
    assert made.path.read_bytes()[4:8] == b"TFL3"
    interpreter = Interpreter(model_path=str(made.path))
    (taken,), (given,) = interpreter.get_input_details(), interpreter.get_output_details()
    assert (taken["dtype"], taken["shape"].tolist()) == (np.uint8, [1, 8, 8, 3])
    assert taken["quantization"] == (1.0, 0)
    assert (given["dtype"], given["shape"].tolist()) == (np.float32, [1, len(CLASSES)])
    assert interpreter.get_signature_list() == {
        "serving_default": {"inputs": ["images"], "outputs": ["logits"]}
    }
    with zipfile.ZipFile(made.path) as archive:
        assert archive.read("labels.txt").decode().splitlines() == list(CLASSES)


def test_what_is_refused(tmp_path: Path, model: Model, photos: Path, monkeypatch) -> None:
    out = tmp_path / "small.tflite"
    with pytest.raises(PocketuneError, match="precision='fp16' must be one of int8, float32"):
        export_tflite(model, out, precision="fp16", photos=photos)
    with pytest.raises(PocketuneError, match="does not say where its photos are; give photos"):
        export_tflite(model, out)
    with pytest.raises(PocketuneError, match="choose another file"):
        export_tflite(model, model.kit.path / "step.onnx", photos=photos)
    (tmp_path / "photo.jpg").write_bytes(b"a photo")
    with pytest.raises(PocketuneError, match="exists and is not a TensorFlow Lite file: choose"):
        export_tflite(model, tmp_path / "photo.jpg", photos=photos)
    with monkeypatch.context() as patch:
        patch.setattr(result, "BOUND", 1e-9)
        with pytest.raises(PocketuneError, match=r"would be off by .*; give more photos"):
            export_tflite(model, out, photos=photos)
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "TOLERANCE", -1.0)
        with pytest.raises(PocketuneError, match="the logits differ by"):
            export_tflite(model, out, precision="float32")
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    with pytest.raises(PocketuneError, match=r'pip install "pocketune\[tflite\]"'):
        export_tflite(model, out, photos=photos)
    assert not out.exists()
