"""What a plan is refused for before anything is measured."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pocketune
from pocketune.device.train.photos import load_photos
from pocketune.errors import PocketuneError

from .tasks.regression import Regression


def test_a_task_whose_smaller_scores_are_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its photos may be found by titles of columns that no other task knows."""
    task = Regression(("width", "height"))
    monkeypatch.setattr("pocketune.planning.load_photos", partial(load_photos, task=task))
    rng = np.random.default_rng(0)
    for number in range(20):
        image = Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8))
        image.save(tmp_path / f"{number}.png")
    rows = [f"{number}.png,{number / 10},{number / 7:.3f}" for number in range(20)]
    (tmp_path / "labels.csv").write_text("\n".join(["file,width,height", *rows]))
    message = f"smaller ones are of the error of the task {Regression.name}: name a kit"
    with pytest.raises(PocketuneError, match=message):
        pocketune.plan(tmp_path / "labels.csv", tmp_path / "plan")
    assert not (tmp_path / "plan").exists()
