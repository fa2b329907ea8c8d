"""Writing kits: whole or not at all, and never over something else."""

import errno
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from pocketune.kit.kit import Kit
from pocketune.kit.manifest import SCHEMA, KitError
from pocketune.kit.writer import write_kit

from ..device.tiny_kit import TinyKit


@pytest.mark.parametrize("name", ["kit", "kit.zip", "deep/er/kit", "ключ 鍵.zip"])
def test_write(tmp_path: Path, name: str) -> None:
    kit = TinyKit().write(tmp_path / name)
    assert kit.path == tmp_path / name
    assert Kit.open(tmp_path / name).identity == kit.identity
    assert [f.name for f in kit.path.parent.iterdir()] == [kit.path.name]


def test_the_same_kit_gives_the_same_bytes(tmp_path: Path) -> None:
    a, b = TinyKit().write(tmp_path / "a.zip"), TinyKit().write(tmp_path / "b.zip")
    assert a.path.read_bytes() == b.path.read_bytes()


def test_files_may_come_from_the_disk(tmp_path: Path) -> None:
    files: dict[str, bytes | Path] = {**TinyKit().files()}
    source = tmp_path / "step"
    source.write_bytes(TinyKit().files()["step.onnx"])
    kit = write_kit(tmp_path / "kit", TinyKit().manifest(), {**files, "step.onnx": source})
    assert kit.identity == TinyKit().write(tmp_path / "other").identity


@pytest.mark.parametrize("name", ["kit", "kit.zip"])
def test_a_kit_is_replaced(tmp_path: Path, name: str) -> None:
    TinyKit().write(tmp_path / name)
    TinyKit(frozen_part=False).write(tmp_path / name)
    kit = Kit.open(tmp_path / name)
    assert kit.manifest.features is None
    assert "features.onnx" not in kit.manifest.files
    assert [f.name for f in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("error", [PermissionError(13, "denied"), KeyboardInterrupt()])
def test_a_kit_that_cannot_be_replaced_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    old, rename = TinyKit().write(tmp_path / "old"), Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.name == "kit":  # the new one
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises((KitError, KeyboardInterrupt)):
        TinyKit(frozen_part=False).write(old.path)
    assert Kit.open(old.path).identity == old.identity
    assert [f.name for f in tmp_path.iterdir()] == ["old"]


@pytest.mark.skipif(os.name == "nt", reason="needs symbolic links")
def test_what_a_link_leads_to_is_replaced(tmp_path: Path) -> None:
    TinyKit().write(tmp_path / "kit")
    (tmp_path / "link").symlink_to("kit")
    kit = TinyKit().write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert kit.path == tmp_path / "link"


def test_an_ending_in_capitals_is_one_of_a_zip(tmp_path: Path) -> None:
    assert zipfile.is_zipfile(TinyKit().write(tmp_path / "KIT.ZIP").path)


def test_the_current_folder_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KitError, match="would replace the current folder"):
        TinyKit().write(Path())


def test_a_zip_of_an_older_schema_is_replaced(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "kit.zip", "w") as archive:
        archive.writestr("manifest.json", '{"schema": 1}')
    assert TinyKit().write(tmp_path / "kit.zip").manifest.schema == SCHEMA


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    kit = TinyKit().write(tmp_path / "kit")
    assert Kit.open(tmp_path / "kit").manifest == kit.manifest


def test_refuses_a_folder_that_is_not_a_kit(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"precious")
    with pytest.raises(KitError, match="exists and is not a kit"):
        TinyKit().write(tmp_path)
    assert (tmp_path / "photo.jpg").read_bytes() == b"precious"


def test_refuses_the_folder_of_a_run(tmp_path: Path) -> None:
    path = TinyKit().write(tmp_path / "run").path
    (path / "last.safetensors").write_bytes(b"hours of work")
    with pytest.raises(KitError, match="exists and is not a kit"):
        TinyKit().write(path)
    assert (path / "last.safetensors").exists()


@pytest.mark.parametrize("name", ["thesis.txt", "thesis.zip"])
def test_refuses_a_file_that_is_not_a_kit(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("chapter 1")
    with pytest.raises(KitError, match="is not a kit"):
        TinyKit().write(tmp_path / name)
    assert (tmp_path / name).read_text() == "chapter 1"


def test_refuses_an_archive_of_something_else(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("cat/1.jpg", b"precious")
        archive.writestr("manifest.json", '{"name": "an app"}')
    with pytest.raises(KitError, match="is not a kit"):
        TinyKit().write(tmp_path / "photos.zip")


def test_refuses_files_that_the_manifest_does_not_call_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs the files"):
        write_kit(tmp_path / "kit", TinyKit(frozen_part=False).manifest(), TinyKit().files())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["kit", "kit.zip"])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = TinyKit().write(tmp_path / name).identity

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KitError, match="cannot be written: No space left"):
        TinyKit(frozen_part=False).write(tmp_path / name)
    assert Kit.open(tmp_path / name).identity == before
    assert [f.name for f in tmp_path.iterdir()] == [name]


def test_parent_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KitError, match="cannot be written"):
        TinyKit().write(tmp_path / "file" / "kit")


def test_written_folder_can_be_packed_by_any_tool(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", kit.path)
    assert Kit.open(packed).identity == kit.identity
