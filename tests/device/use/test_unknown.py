"""Models that cannot tell photos of none of their classes say why."""

from dataclasses import replace
from pathlib import Path

import pytest

from pocketune.device import Model, predict
from pocketune.device.train.progress import Silent
from pocketune.device.train.record import RunRecord
from pocketune.device.train.run import train
from pocketune.device.use.delta import Delta
from pocketune.device.use.unknown import find_known, known_of
from pocketune.errors import PocketuneError
from pocketune.tasks import Attributes

from ..softmax_engine import SoftmaxEngine, write_softmax_kit
from ..softmax_engine import write_photos as write_softmax_photos
from ..tiny_kit import TinyKit


def test_models_that_cannot_tell_say_why(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    with pytest.raises(
        PocketuneError, match=r"kit cannot tell .*: a finished run can, .* is a kit"
    ):
        predict(kit.path, tmp_path, unknown=True)
    attributes = TinyKit(task=Attributes).write(tmp_path / "attributes")
    with pytest.raises(PocketuneError, match="none of the attributes cannot be told: the model"):
        predict(attributes.path, tmp_path, unknown=True)


def test_a_run_that_cannot_tell_says_which_cause_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = write_softmax_kit(tmp_path / "kit")
    photos = write_softmax_photos(tmp_path / "photos")
    train(kit, photos, tmp_path / "run", epochs=1, engine=SoftmaxEngine, progress=Silent())
    (tmp_path / "run" / "known.safetensors").unlink()
    model = Model.open(tmp_path / "run")

    def why() -> str:
        with pytest.raises(PocketuneError) as caught:
            known_of(model)
        return str(caught.value).partition("none of its classes")[2]

    looked = ", because it has not looked at them again after the last step: "
    assert why().startswith(f"{looked}the run was stopped or its time was up; train it again")
    record = RunRecord.read(model.kit.path)
    limited = replace(record, settings={**record.settings, "budget": 1})
    limited.write(model.kit.path)
    assert why().startswith(f"{looked}its budget was too small or the run was stopped or its time")
    replace(limited, reason="time").write(model.kit.path)
    assert why().startswith(f"{looked}its budget was too small or its time was up; train it again")
    monkeypatch.setattr("pocketune.device.use.known.MOST", 1)
    assert why() == ", because 3 are too many"
    (model.kit.path / "result.json").unlink()
    assert why().startswith(", because the run is not finished; resume with: ")


def test_a_delta_without_a_description_has_not_that_of_the_run_it_is_used_with(
    tmp_path: Path,
) -> None:
    kit = write_softmax_kit(tmp_path / "kit")
    photos = write_softmax_photos(tmp_path / "photos")
    for name in ("one", "other"):
        out = tmp_path / name
        train(kit, photos, out, epochs=1, engine=SoftmaxEngine, progress=Silent())
    (tmp_path / "other" / "known.safetensors").unlink()
    model = Delta.of(tmp_path / "other").model(tmp_path / "one")
    assert find_known(model) is None
    assert find_known(Delta.of(tmp_path / "one").model(tmp_path / "other")) is not None
