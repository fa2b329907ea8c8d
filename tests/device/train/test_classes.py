"""Runs for other classes than those of the kit."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from pocketune.arrays import FloatArray
from pocketune.device.train.checkpoint import TrainedNetwork
from pocketune.kit.kit import Kit
from pocketune.kit.names import BEST

from ..softmax_engine import SoftmaxEngine, write_photos, write_softmax_kit
from .examples import Run


def test_other_classes_get_a_new_classifier(run: Run, tmp_path: Path) -> None:
    other = write_photos(tmp_path / "photos", classes=("cyan", "pink"))
    start: dict[str, Mapping[str, FloatArray]] = {}

    def spying(kit: Kit, state: Mapping[str, FloatArray]) -> SoftmaxEngine:
        start["state"] = state
        return SoftmaxEngine(kit, state)

    result = run(photos=other, engine=spying, epochs=1)
    assert result.classes == ("cyan", "pink")
    weight, bias = start["state"]["fc.weight"], start["state"]["fc.bias"]
    assert weight.shape == (2, 48)
    assert np.abs(weight).max() <= 1 / math.sqrt(48)
    assert weight.std() == pytest.approx(1 / math.sqrt(48 * 3), rel=0.2)
    np.testing.assert_array_equal(bias, [0, 0])
    assert TrainedNetwork.load(result.run / BEST).state["fc.weight"].shape == (2, 48)


@pytest.mark.parametrize("epochs", [0, 1])
def test_more_classes_than_the_kit_has_in_any_order(epochs: int, run: Run, tmp_path: Path) -> None:
    """The first photo of a table may be of the last class; that of folders is of the first."""
    photos, names = tmp_path / "photos", ("e", "d", "c", "b", "a")
    write_photos(photos, classes=names)
    paths = [path for name in names for path in sorted((photos / name).iterdir())]
    rows = [
        f"{path.rename(photos / f'{number:02}.png').name},{path.parent.name}"
        for number, path in enumerate(paths)
    ]
    (photos / "labels.csv").write_text("\n".join(["file,label", *rows]))
    result = run(photos=photos / "labels.csv", epochs=epochs, head_start="auto")
    assert result.classes == ("a", "b", "c", "d", "e")
    assert result.head not in ("random", "kept")


def test_the_kits_classes_keep_their_order_and_classifier(run: Run, tmp_path: Path) -> None:
    kit = write_softmax_kit(tmp_path / "kit", classes=("red", "blue", "green"))
    start: dict[str, FloatArray] = {}

    def spying(kit: Kit, state: Mapping[str, FloatArray]) -> SoftmaxEngine:
        start.update(state)
        return SoftmaxEngine(kit, state)

    result = run(kit=kit, engine=spying, epochs=5)
    assert result.classes == ("red", "blue", "green")
    np.testing.assert_array_equal(start["fc.weight"], kit.state()["fc.weight"])
    assert result.best is not None and result.best.value == 1.0


def test_a_run_as_a_kit_is_trained_on(run: Run, tmp_path: Path) -> None:
    trained = TrainedNetwork.load(run().run / BEST).state
    starts: list[Mapping[str, FloatArray]] = []

    def spying(kit: Kit, state: Mapping[str, FloatArray]) -> SoftmaxEngine:
        starts.append(state)
        return SoftmaxEngine(kit, state)

    run(kit=tmp_path / "run", out=tmp_path / "same", engine=spying, epochs=1)
    other = write_photos(tmp_path / "photos", classes=("cyan", "pink"))
    run(kit=tmp_path / "run", photos=other, out=tmp_path / "other", engine=spying, epochs=1)
    np.testing.assert_array_equal(starts[0]["fc.weight"], trained["fc.weight"])
    np.testing.assert_array_equal(starts[1]["mean"], trained["mean"])
    assert starts[1]["fc.weight"].shape == (2, 48)
