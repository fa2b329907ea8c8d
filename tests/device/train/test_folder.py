"""Folders in which a run may begin."""

from pathlib import Path

import pytest

from pocketune.device.train import folder as folder_module
from pocketune.device.train.folder import new_run_folder, open_run_folder
from pocketune.errors import PocketuneError
from pocketune.kit.names import BEST, LAST, METRICS, RESULT
from pocketune.locks import AnotherProcess, locked

from ..runs import lines
from ..softmax_engine import write_softmax_kit
from .examples import PER_EPOCH, Run


def test_a_finished_run_is_not_overwritten(run: Run) -> None:
    run(epochs=1)
    with pytest.raises(PocketuneError, match="a finished run; choose another folder, or give"):
        run(epochs=1)


def test_a_run_that_is_not_finished_can_be_resumed(run: Run, tmp_path: Path) -> None:
    run(epochs=1)
    (tmp_path / "run" / RESULT).unlink()
    with pytest.raises(PocketuneError, match="that is not finished; resume it, or choose another"):
        run(epochs=1)


def test_a_folder_with_other_things_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "diary.txt").write_text("dear")
    with pytest.raises(PocketuneError, match="run is not empty: choose a new folder"):
        run()
    assert [entry.name for entry in (tmp_path / "run").iterdir()] == ["diary.txt"]


def test_a_kit_is_not_turned_into_a_run(run: Run, tmp_path: Path) -> None:
    kit = write_softmax_kit(tmp_path / "kit")
    with pytest.raises(PocketuneError, match="kit is not empty"):
        run(kit=kit, out=tmp_path / "kit")


def test_a_file_is_not_a_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(PocketuneError, match="run is a file: choose a folder"):
        run()


def test_a_folder_that_cannot_be_made(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PocketuneError, match=r"the run folder .* cannot be read: Not a directory"):
        run(out=tmp_path / "file" / "run")


def test_an_empty_folder_and_what_a_killed_start_left_are_taken(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / METRICS).write_text('{"kind": "step"}\n')
    partial = (".step.onnx.9-9.partial", ".last.safetensors.12-3.partial")
    for name in (*partial, "parameters.safetensors"):
        (tmp_path / "run" / name).write_text("half")
    result = run(epochs=1)
    assert lines(result.run, "step")[0]["step"] == 1


def test_what_a_kill_left_half_written_is_removed_when_the_run_goes_on(tmp_path: Path) -> None:
    write_softmax_kit(tmp_path / "run")
    half, other = ".last.safetensors.12ab-3.partial", ".notes.txt.12ab-3.partial"
    for name in (LAST, half, other):
        (tmp_path / "run" / name).write_text("half")
    with open_run_folder(tmp_path / "run"):
        names = {each.name for each in (tmp_path / "run").iterdir()}
    assert half not in names
    assert {LAST, other} < names


def test_a_zipped_kit(run: Run, tmp_path: Path) -> None:
    kit = write_softmax_kit(tmp_path / "kit.zip")
    assert run(kit=kit.path, epochs=1).steps == PER_EPOCH


def test_a_trained_network_without_its_checkpoint_is_not_overwritten(
    run: Run, tmp_path: Path
) -> None:
    run(epochs=1)
    for name in (RESULT, LAST):
        (tmp_path / "run" / name).unlink()
    before = (tmp_path / "run" / BEST).read_bytes()
    with pytest.raises(PocketuneError, match="run is not empty: choose a new folder"):
        run(epochs=1)
    assert (tmp_path / "run" / BEST).read_bytes() == before


def test_a_folder_is_cleaned_before_another_process_may_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    discard = folder_module._discard

    def watched(*arguments) -> None:
        with pytest.raises(AnotherProcess), locked(tmp_path / "runs" / "run" / METRICS, "busy"):
            pass
        discard(*arguments)

    monkeypatch.setattr(folder_module, "_discard", watched)
    with pytest.raises(ZeroDivisionError), new_run_folder(tmp_path / "runs" / "run"):
        raise ZeroDivisionError
    assert not (tmp_path / "runs").exists()
