"""Write the files of Python that the unit tests of the page's formats read.

    python -m tests.studio.make_fixtures

They are a tiny kit, a run of it, its delta and its export, and JSON with what Python makes of it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.train import train
from pocketune.device.train.progress import Silent
from pocketune.device.use.delta import Delta, base_hash
from pocketune.device.use.export import export
from pocketune.device.use.model import Model
from pocketune.device.use.unknown import known_of
from pocketune.kit.names import BEST

from ..device.runs import make_settings, write_photos
from ..device.tiny_kit import CLASSES, TinyKit

PLACE = Path(__file__).parents[2] / "web" / "tests" / "fixtures" / "formats"

TEXTS = (
    '{"b": 1, "a": [1.0, 0.5, 1e-05, 1E22, -0.0, 123456789.125, 1e16, 0.0001], "c": {}, "d": []}',
    '{"10": 1, "9": 2, "\\u00fc\\ud83d\\ude00": "\\n\\t\\u0001\\"/\\\\\\u007f", "z": null}',
    ' [true , false, 12345678901234567890, "\U0001f600\uffff", "\u2028"] ',
    '{"a": 1, "a": 2, "\U0001f600": 1, "\uffff": 2}',
)
FLOATS = (0.1, 1 / 3, 1e-5, 1.5e-7, 1e15, 1e16, 123456.0, 5e-324, 1.7976931348623157e308, 0.0001)
NO_JSON = ("", "{", "[1,]", '{"a" 1}', "01", "1.", "+1", "nul", '"\t"', '"\\x"', "[1] 2", "'a'")


def json_cases() -> dict[str, object]:
    """JSON, and what Python writes of it."""
    cases = []
    for text in TEXTS:
        value = json.loads(text)
        cases.append(
            {
                "text": text,
                "plain": json.dumps(value),
                "sorted": json.dumps(value, sort_keys=True),
                "indented": json.dumps(value, indent=2, ensure_ascii=False),
            }
        )
    return {"cases": cases, "floats": [repr(x) for x in FLOATS], "invalid": NO_JSON}


def main() -> None:
    """Write all files."""
    PLACE.mkdir(parents=True, exist_ok=True)
    (PLACE / "json.json").write_text(json.dumps(json_cases(), indent=1) + "\n")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        kit = TinyKit().write(PLACE / "kit.zip")
        photos = write_photos(folder / "photos", CLASSES, each=8)
        settings = make_settings(val_fraction=0.25, optimizer="sgd")
        train(kit, photos, folder / "run", settings, progress=Silent())
        shutil.make_archive(str(PLACE / "run"), "zip", folder, "run")
        (folder / "run" / BEST).unlink()
        shutil.make_archive(str(PLACE / "last"), "zip", folder / "run")
    model = Model.open(PLACE / "run.zip")
    delta = Delta.of(model)
    delta.save(PLACE / "delta.safetensors")
    export(model, PLACE / "model.onnx")
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    logits = OnnxEngine(model.kit, model.state).predict(images)
    facts = {
        "hash": kit.identity,
        "base": base_hash(kit, kit.state()),
        "content": delta.header.content,
        "classes": model.classes,
        "step": model.step,
        "score": model.score.value if model.score else None,
        "state": {name: value.ravel().tolist() for name, value in model.state.items()},
        "last": {n: v.ravel().tolist() for n, v in Model.open(PLACE / "last.zip").state.items()},
        "threshold": float(known_of(model).threshold),
        "images": images.ravel().tolist(),
        "logits": logits.ravel().tolist(),
    }
    (PLACE / "facts.json").write_text(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
