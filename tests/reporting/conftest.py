"""A finished run whose classes and files have names that a page must not take for markup."""

import builtins
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("jinja2", reason="reports need the extra report")
pytest.importorskip("matplotlib", reason="reports need the extra report")

from pocketune.processes.command import run_command

CLASSES = ("<script>alert(1)<b>", "größe & 花", "{{ 7 * 7 }} $x$")
EACH = 8


def write_photos(folder: Path) -> Path:
    """Photos of noise around a color of their class, and a file that is not a photo."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for index in range(EACH):
            pixels = rng.integers(0, 90, (40, 56, 3))
            pixels[..., number] += 120
            image = Image.fromarray(pixels.astype(np.uint8))
            image.save(folder / name / f"<img src=x onerror=alert({index})>.png")
    (folder / CLASSES[0] / "<details>.txt").write_text("not a photo")
    return folder


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of the bundled kit; its photos are beside it in `photos`."""
    if sys.platform == "win32":
        pytest.skip("files cannot have such names there")
    folder = tmp_path_factory.mktemp("report")
    photos = write_photos(folder / "photos")
    options = ["--epochs", 3, "--lr", 1e-5, "--val-fraction", 0.25, "--budget", "300MB"]
    options += ["--head-start", "random"]  # so that there are mistakes to show
    # In a process of its own, which alone is measured.
    code, errors = run_command(
        "train", photos, "--kit", "last", "--out", folder / "run", *options, keep_errors=True
    )
    assert code == 0, errors
    return folder / "run"


@pytest.fixture
def device_half_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages of the author half cannot be imported."""
    real = builtins.__import__

    def without(name: str, *args: object, **kwargs: object) -> object:
        if name.partition(".")[0] in ("onnx", "torch"):
            raise ModuleNotFoundError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
