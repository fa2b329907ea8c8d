"""Opening, reading and copying kits, and every way in which one can be broken."""

import contextlib
import hashlib
import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit, kit_files
from pocketune.kit.manifest import SCHEMA, KitError
from pocketune.kit.names import BLOCKED_STEP, FEATURES, PARAMETERS, PREDICT, STEP
from pocketune.kit.writer import write_kit

from ..device.tiny_kit import TinyKit

FILES = (FEATURES, STEP, PREDICT, PARAMETERS)


@pytest.fixture(params=["kit", "kit.zip"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return TinyKit().write(tmp_path / request.param).path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return TinyKit().write(tmp_path / "kit").path


def rewrite_manifest(folder: Path, **changes: object) -> None:
    file = folder / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def rehash(folder: Path) -> None:
    """Make the manifest agree with the files, as somebody who tampers with both would."""
    found = [*folder.glob("*.onnx"), folder / "parameters.safetensors"]
    files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in found}
    rewrite_manifest(folder, files=files)


def message(path: Path, verify: bool = True) -> str:
    with pytest.raises(KitError) as caught:
        Kit.open(path, verify=verify)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def test_open(path: Path) -> None:
    kit = Kit.open(str(path))
    assert kit.path == path
    assert kit.manifest.classes == ("cat", "dog", "owl")
    assert kit.manifest.files.keys() == set(FILES)
    assert hashlib.sha256(kit.read("step.onnx")).hexdigest() == kit.manifest.files["step.onnx"]


def test_folder_and_zip_of_it_are_the_same_kit(tmp_path: Path) -> None:
    a, b = TinyKit().write(tmp_path / "kit"), TinyKit().write(tmp_path / "kit.zip")
    other = TinyKit(classes=("a", "b")).write(tmp_path / "other")
    assert a.identity == b.identity == Kit.open(a.path).identity
    assert a.identity != other.identity


def test_state(path: Path) -> None:
    state = Kit.open(path).state()
    for name, expected in TinyKit().state().items():
        np.testing.assert_array_equal(state[name], expected, strict=True)
        assert state[name].flags.c_contiguous
        assert state[name].flags.writeable
    assert state["scale"].shape == ()


def test_zip_of_a_folder_as_file_managers_pack_it(folder: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"my kit/{file.name}")
            archive.writestr(f"__MACOSX/my kit/._{file.name}", b"")
    assert Kit.open(packed).identity == Kit.open(folder).identity


@pytest.mark.parametrize("frozen_part", [True, False])
def test_copy(path: Path, tmp_path: Path, frozen_part: bool) -> None:
    source = TinyKit(frozen_part=frozen_part).write(tmp_path / f"source{path.suffix}")
    target = tmp_path / "runs" / "ünï"
    copy = source.copy_to(target)
    assert copy.path == target
    assert Kit.open(target).identity == copy.identity == source.identity
    assert {f.name for f in target.iterdir()} == {*source.manifest.files, "manifest.json"}


def test_a_step_in_blocks_belongs_to_the_kit(tmp_path: Path) -> None:
    files = TinyKit().files()
    files[BLOCKED_STEP] = files["step.onnx"]
    kit = write_kit(tmp_path / "kit.zip", TinyKit().manifest(), files)
    assert kit_files(kit.manifest) == (*FILES, BLOCKED_STEP)
    copy = kit.copy_to(tmp_path / "run")
    assert copy.read(BLOCKED_STEP) == files["step.onnx"]
    (copy.path / BLOCKED_STEP).write_bytes(b"others")
    assert f"{BLOCKED_STEP} of the kit" in message(copy.path)


def test_copy_leaves_other_files_alone(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "run"
    target.mkdir()
    (target / "metrics.jsonl").write_text("{}")
    Kit.open(path).copy_to(target)
    assert (target / "metrics.jsonl").read_text() == "{}"


def test_copy_onto_itself(folder: Path) -> None:
    kit = Kit.open(folder)
    assert kit.copy_to(folder) is kit
    Kit.open(folder)


def test_cut_off_copy_is_not_a_kit(folder: Path, tmp_path: Path) -> None:
    kit = Kit.open(folder)
    target = kit.copy_to(tmp_path / "run").path
    (folder / "step.onnx").unlink()
    with pytest.raises(KitError, match=r"step.onnx of the kit .* is missing"):
        kit.copy_to(target)
    assert "holds no manifest" in message(target)
    assert not list(target.glob(".*"))


def test_copy_into_a_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(PocketuneError, match="run cannot be written"):
        Kit.open(folder).copy_to(tmp_path / "run")


def test_missing_path(tmp_path: Path) -> None:
    assert "there is no kit" in message(tmp_path / "nowhere")


def test_empty_folder(tmp_path: Path) -> None:
    assert "holds no manifest.json" in message(tmp_path)


def test_neither_folder_nor_zip(tmp_path: Path) -> None:
    file = tmp_path / "kit.tar"
    file.write_bytes(b"not an archive")
    assert "neither a folder nor a .zip" in message(file)


def test_a_zip_of_several_kits_is_refused(tmp_path: Path) -> None:
    """One inside the folder of another is no other: a folder with the same is a kit, too."""
    kit = TinyKit().write(tmp_path / "kit")

    def packed(*folders: str) -> Path:
        with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
            for folder in folders:
                for file in kit.path.iterdir():
                    archive.write(file, f"{folder}{file.name}")
        return tmp_path / "packed.zip"

    assert message(packed("runs/b/", "runs/a/", "runs/other/")).endswith(
        "holds several kits or runs, such as runs/a and runs/b: pack each in a .zip of its own"
    )
    for inner in ("", "run/"):
        assert Kit.open(packed(inner, f"{inner}other/")).identity == kit.identity


def test_zip_without_a_kit(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("cat/1.jpg", b"")
    assert "holds no manifest.json" in message(tmp_path / "photos.zip")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verify", [True, False])
def test_missing_file(folder: Path, name: str, verify: bool) -> None:
    (folder / name).unlink()
    assert f"{name} of the kit {folder} is missing" in message(folder, verify)


@pytest.mark.parametrize("name", FILES)
def test_wrong_hash(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    assert name in message(folder)
    assert "wrong SHA-256" in message(folder)
    Kit.open(folder, verify=False)


def test_file_that_the_manifest_does_not_list(folder: Path) -> None:
    rewrite_manifest(folder, files={})
    assert "does not list features.onnx" in message(folder)


def test_newer_schema(folder: Path) -> None:
    rewrite_manifest(folder, schema=SCHEMA + 1)
    assert "needs a newer pocketune" in message(folder)


def test_broken_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"schema": 1,')
    assert "not valid JSON" in message(folder)


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.9])
def test_truncated_zip(tmp_path: Path, cut: float) -> None:
    file = TinyKit().write(tmp_path / "kit.zip").path
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * cut)])
    assert "is damaged: it is not a whole .zip; copy it again" in message(file)


def test_a_damaged_byte_of_a_zip_is_harmless_or_a_clear_error(tmp_path: Path) -> None:
    file = TinyKit().write(tmp_path / "kit.zip").path
    content = file.read_bytes()
    for position in range(0, len(content), max(1, len(content) // 150)):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        file.write_bytes(damaged)
        with contextlib.suppress(KitError):  # any other error would be a failure
            Kit.open(file).state()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_unreadable_permissions(path: Path) -> None:
    path.chmod(0)
    try:
        assert "cannot be read" in message(path)
    finally:
        path.chmod(0o755)


def test_unreadable_files_whoever_runs_this(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert "cannot be read: Permission denied" in message(folder)


def test_a_graph_far_larger_than_the_manifest_says(folder: Path) -> None:
    with (folder / "features.onnx").open("r+b") as file:
        file.truncate(3 << 30)  # takes no room on the disk
    assert "has 3,221,225,472 bytes, more than its manifest says" in message(folder)


def test_encrypted(tmp_path: Path) -> None:
    path = TinyKit().write(tmp_path / "kit.zip").path
    content = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        place = content.find(signature)
        while place >= 0:
            content[place + flags] |= 1
            place = content.find(signature, place + 4)
    path.write_bytes(content)
    assert "is encrypted, password required" in message(path)


@pytest.mark.parametrize("name", ["features.onnx", "step.onnx", "predict.onnx"])
@pytest.mark.parametrize("cut", [0.0, 0.3, 0.95])
def test_truncated_graph(folder: Path, name: str, cut: float) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(len(content) * cut)])
    rehash(folder)
    assert f"{name} of the kit {folder} is not a graph that a kit may hold" in message(folder)


def test_graphs_of_another_kit(folder: Path) -> None:
    shutil.copy(folder / "predict.onnx", folder / "step.onnx")
    rehash(folder)
    assert "step.onnx" in message(folder)
    assert "not in the manifest" in message(folder)


def test_truncated_parameters(folder: Path) -> None:
    file = folder / "parameters.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    rehash(folder)
    with pytest.raises(KitError, match=r"parameters.safetensors of the kit .* is damaged"):
        Kit.open(folder).state()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("scale", None, "lacks the tensor scale"),
        ("scale", np.zeros(1, np.float32), r"holds scale as float32 of shape \(1,\)"),
        ("fc.bias", np.zeros(3, np.float64), "holds fc.bias as float64"),
    ],
)
def test_parameters_that_are_not_the_manifests(
    folder: Path, name: str, value: np.ndarray | None, expected: str
) -> None:
    state = TinyKit().state()
    del state[name]
    if value is not None:
        state[name] = value
    safetensors.numpy.save_file(state, folder / "parameters.safetensors")
    rehash(folder)
    with pytest.raises(KitError, match=expected):
        Kit.open(folder).state()


def test_a_kit_is_printed_in_a_line(folder: Path) -> None:
    kit = Kit.open(folder)
    made = kit.manifest
    name, method = made.network["name"], made.method["name"]
    words = f"{name}, {method}, {made.size} px, batch {made.batch}, {len(made.classes)} classes"
    assert repr(kit) == str(kit) == f"<Kit {folder}: {words}>"
