"""A run in a .zip is used like its folder, and refused where it is damaged."""

import contextlib
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pocketune.device.train.progress import Silent
from pocketune.device.train.record import RunRecord
from pocketune.device.train.run import resume, train
from pocketune.device.use.delta import Delta
from pocketune.device.use.evaluate import evaluate
from pocketune.device.use.export import export
from pocketune.device.use.known import Known
from pocketune.device.use.model import Model
from pocketune.device.use.predict import predict
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import KitError
from pocketune.kit.names import BEST, LAST, RESULT
from pocketune.kit.writer import write_kit

from ..runs import (
    make_settings,
    trained_state,
    write_best,
    write_last,
    write_photos,
    write_run,
)
from ..tiny_kit import CLASSES, TinyKit


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data") / "photos", CLASSES, each=8)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("runs")
    kit = TinyKit().write(folder / "kit")
    settings = make_settings(val_fraction=0.25)
    train(kit, photos, folder / "run", settings, progress=Silent())
    return folder / "run"


@pytest.fixture(scope="module", params=["at the top", "in a folder"])
def packed(
    request: pytest.FixtureRequest, run: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A .zip of the run."""
    return pack(run, tmp_path_factory.mktemp("packed"), inside=request.param == "in a folder")


def pack(run: Path, folder: Path, *, inside: bool = False) -> Path:
    root, base = (run.parent, run.name) if inside else (run, None)
    return Path(shutil.make_archive(str(folder / "packed"), "zip", root, base))


def repack(source: Path, target: Path, **contents: bytes) -> Path:
    """A .zip whose files of these stems have other contents."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, contents.get(Path(name).stem, old.read(name)))
    return target


def test_the_values_are_those_of_the_folder(run: Path, packed: Path) -> None:
    one, other = Model.open(run), Model.open(packed)
    assert (one.classes, one.step, one.score) == (other.classes, other.step, other.score)
    for name, value in one.state.items():
        np.testing.assert_array_equal(value, other.state[name], strict=True)
        assert other.state[name].flags.writeable
    assert RunRecord.read(packed) == RunRecord.read(run)


def test_predictions_evaluation_export_and_delta_are_those_of_the_folder(
    run: Path, packed: Path, photos: Path, tmp_path: Path
) -> None:
    for options in ({}, {"unknown": True}):
        assert list(predict(packed, photos, **options)) == list(predict(run, photos, **options))
    own = evaluate(packed)  # the run's own validation photos
    assert own.to_dict() == evaluate(run).to_dict()
    assert evaluate(packed, photos).to_dict() == evaluate(run, photos).to_dict()
    first, second = (export(each, tmp_path / f"{each.name}.onnx") for each in (run, packed))
    assert first.read_bytes() == second.read_bytes()
    one, other = Delta.of(run), Delta.of(packed)
    assert one.header == other.header
    with pytest.raises(PocketuneError, match=r"packed.zip is the run or kit itself"):
        export(packed, packed)


def test_training_goes_on_from_the_values_of_the_run(
    run: Path, packed: Path, photos: Path, tmp_path: Path
) -> None:
    for name, kit in (("folder", run), ("zip", packed)):
        settings = make_settings(epochs=1)
        train(kit, photos, tmp_path / name, settings, progress=Silent())
    assert (tmp_path / "zip" / BEST).read_bytes() == (tmp_path / "folder" / BEST).read_bytes()
    assert RunRecord.read(tmp_path / "zip").head == RunRecord.read(tmp_path / "folder").head


def test_a_run_that_has_not_been_validated_brings_its_last_values(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "run")
    write_last(kit.path, kit, trained_state(TinyKit()), CLASSES, tmp_path)
    model = Model.open(pack(kit.path, tmp_path))
    assert all(np.array_equal(v, model.state[n]) for n, v in trained_state(TinyKit()).items())
    assert Kit.open(tmp_path / "packed.zip").is_run


def test_a_run_without_a_checkpoint_needs_photos_to_be_evaluated(tmp_path: Path) -> None:
    file = pack(write_run(tmp_path / "run"), tmp_path)
    with pytest.raises(PocketuneError, match=r"packed.zip does not say where its photos are; give"):
        evaluate(file)
    with pytest.raises(PocketuneError, match=r"packed.zip is not a finished run: it has no result"):
        RunRecord.read(file)


def test_what_needs_a_folder_says_so(packed: Path, tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "run")
    write_last(kit.path, kit, trained_state(TinyKit()), CLASSES, tmp_path)
    with pytest.raises(PocketuneError, match=r"a run is resumed in its folder: unpack it"):
        resume(pack(kit.path, tmp_path))
    with pytest.raises(KitError, match="exists and is not a kit: choose another name, or move it"):
        write_kit(packed, TinyKit().manifest(), TinyKit().files())
    assert Model.open(packed).step > 0


def test_a_run_of_the_studio_is_complete(run: Path, packed: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    (folder / LAST).unlink()  # as the studio writes it
    for complete in (folder, packed):
        with pytest.raises(PocketuneError, match=r"is complete: there is nothing to resume; give"):
            resume(complete)


def test_a_damaged_file_of_a_run_is_named(packed: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(packed) as archive:
        best = archive.read(next(n for n in archive.namelist() if n.endswith(BEST)))
    for content in (b"damaged", best[:-4], best[:-1] + b"?", best[:200] + b"\0" + best[201:]):
        file = repack(packed, tmp_path / "damaged.zip", best=content)
        with pytest.raises(PocketuneError, match=r"^best.safetensors in .*damaged.zip is damaged"):
            Model.open(file)
    file = repack(packed, tmp_path / "damaged.zip", known=best)
    model = Model.open(file)
    with pytest.raises(PocketuneError, match=r"known.safetensors in .* not a Pocketune known"):
        Known.load(model.kit.find("known.safetensors"), model.kit.identity, model.step)
    with pytest.raises(PocketuneError, match=r"result.json in .* is not valid JSON"):
        RunRecord.read(repack(packed, tmp_path / "damaged.zip", result=b"{"))


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    kit, state = TinyKit().write(tmp_path / "run"), trained_state(TinyKit())
    state["fc.bias"][0] = np.nan
    write_best(kit.path, kit, state, CLASSES)
    with pytest.raises(PocketuneError, match=r"fc.bias has a value that is not finite"):
        Model.open(pack(kit.path, tmp_path))


def test_a_file_that_unpacks_to_far_more_is_not_unpacked(packed: Path, tmp_path: Path) -> None:
    zeros = bytes(64 << 20)
    for stem, read in (("best", Model.open), ("result", RunRecord.read)):
        file = repack(packed, tmp_path / "bomb.zip", **{stem: zeros})
        with pytest.raises(PocketuneError, match=rf"^{stem}.* in .* unpacks .* to 67,108,864, wh"):
            read(file)


def test_a_damaged_byte_is_harmless_or_a_clear_error(run: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    for name in (*TinyKit().files(), "manifest.json", BEST, RESULT):
        shutil.copy(run / name, small)
    file = pack(small, tmp_path)
    content, right = file.read_bytes(), Model.open(file)
    for position in range(0, len(content), max(1, len(content) // 150)):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        file.write_bytes(damaged)
        with contextlib.suppress(PocketuneError):  # any other error would be a failure
            model = Model.open(file)
            RunRecord.read(file)
            if model.kit.is_run:  # else the name of a file was hit
                assert all(np.array_equal(v, model.state[n]) for n, v in right.state.items())


def test_the_last_checkpoint_of_a_run_is_read_whole(packed: Path) -> None:
    from pocketune.device.train.checkpoint import Checkpoint

    source = Kit.open(packed).find(LAST)
    assert source is not None
    assert Checkpoint.load(source).counters.finished == "steps"
