"""User errors on the command line: one sentence, exit code 1."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from PIL import Image

from pocketune.device.train.checkpoint import Checkpoint
from pocketune.kit.kit import Kit
from pocketune.kit.names import LAST, MANIFEST, PARAMETERS

from ..device.softmax_engine import CLASSES, write_photos
from ..device.tiny_kit import TinyKit
from .conftest import Run

BATCH = 4
ADDRESS = "https://x.y/z.zip"


def write_kit(folder: Path, **changes: int) -> Path:
    return TinyKit(classes=CLASSES, size=16, **changes).write(folder).path


def refusal(run: Run, *arguments: object) -> str:
    """The one line that the command says; nothing else, and no traceback."""
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert len(result.stderr) < 600
    return result.stderr


PHOTOS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (shutil.rmtree, "does not exist; check the path"),
    "empty": (lambda p: [shutil.rmtree(p / c) for c in CLASSES], "is empty; put a folder"),
    "one class only": (
        lambda p: [shutil.rmtree(p / c) for c in CLASSES[1:]],
        "has training images of one class only, 'blue'; add at least one other class",
    ),
    "a class without an image": (
        lambda p: [file.write_text("no") for file in (p / "red").iterdir()],
        "the class 'red' in",
    ),
    "no readable image": (
        lambda p: [file.write_text("no") for file in p.rglob("*.png")],
        "has no readable image among its 30 files; the first, blue/0.png: not an image",
    ),
    "no class folders": (
        lambda p: (
            [shutil.move(f, p / f"{f.parent.name}{f.name}") for f in p.rglob("*.png")]
            and [(p / c).rmdir() for c in CLASSES]
        ),
        "has no class folders; put each class's images into a folder of its name",
    ),
}


@pytest.mark.parametrize("case", PHOTOS)
def test_photos(case: str, run: Run, tmp_path: Path) -> None:
    spoil, said = PHOTOS[case]
    photos, kit = write_photos(tmp_path / "photos"), write_kit(tmp_path / "kit")
    spoil(photos)
    assert said in refusal(run, "train", photos, "--kit", kit, "--val-fraction", 0.2)
    assert not (tmp_path / "runs").exists()


def test_too_few_photos_to_hold_any_back_give_a_classifier(run: Run, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", each=2)
    result = run("train", photos, "--kit", write_kit(tmp_path / "kit"))
    assert result.exit_code == 0, result.output
    assert "\nno steps, cross-validated accuracy " in result.stdout
    again = run("train", photos, "--kit", "runs/photos")
    assert "\nno steps, on the training photos accuracy " in again.stdout


def test_a_single_image_of_a_class_is_for_training(run: Run, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos")
    for i in range(1, 10):
        (photos / "red" / f"{i}.png").unlink()
    kit = write_kit(tmp_path / "kit")
    result = run("train", photos, "--kit", kit, "--val-fraction", 0.2, "--epochs", 1)
    assert result.exit_code == 0, result.output
    assert "classes  1 of 3 has no photo to validate" in result.stdout


def test_photos_that_may_not_be_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, kit = write_photos(tmp_path / "photos"), write_kit(tmp_path / "kit")
    scan = os.scandir

    def refuse(path: str) -> object:
        if os.fspath(path).endswith("red"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)  # root may read everything
    assert "Permission denied" in refusal(run, "train", photos, "--kit", kit)


PATHS = {
    "kit": lambda path: ("kit", "show", path),
    "run": lambda path: ("predict", path, "photos"),
    "kit to train": lambda path: ("train", "photos", "--kit", path),
    "resumed run": lambda path: ("train", "--resume", path),
    "delta": lambda path: ("delta", "show", path),
    "used delta": lambda path: ("predict", "--kit", "last", "--delta", path, "photos"),
    "comparison": lambda path: ("report", path),
    "grid": lambda path: ("compare", path),
}
SUFFIXES = {"delta": ".safetensors", "used delta": ".safetensors", "grid": ".toml"}


@pytest.mark.timeout(60)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
@pytest.mark.parametrize("kind", sorted(PATHS.keys() - {"resumed run"}))
def test_a_pipe_is_not_read(kind: str, run: Run, tmp_path: Path) -> None:
    write_photos(Path("photos"))
    pipe = tmp_path / f"pipe{SUFFIXES.get(kind, '.zip')}"
    os.mkfifo(pipe)
    assert "not a regular file" in refusal(run, *PATHS[kind](pipe))


@pytest.mark.parametrize("kind", PATHS)
def test_a_name_that_is_too_long(kind: str, run: Run) -> None:
    write_photos(Path("photos"))
    assert "File name too long" in refusal(run, *PATHS[kind]("x" * 300))


OUTPUTS = {
    "run": lambda kit, path: ("train", "photos", "--kit", kit, "--out", path),
    "run of photos of no name": lambda kit, path: ("train", path, "--kit", kit),
    "plan": lambda kit, path: ("plan", "photos", "--out", path, "--time", "1m"),
    "export": lambda kit, path: ("export", kit, "--out", path),
    "confusion": lambda kit, path: ("evaluate", kit, "photos", "--confusion", path),
    "delta": lambda kit, path: ("delta", "save", kit, "--out", path),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_name_of_an_output_that_is_too_long(kind: str, run: Run, tmp_path: Path) -> None:
    write_photos(Path("photos"))
    kit = write_kit(tmp_path / "kit")
    assert "File name too long" in refusal(run, *OUTPUTS[kind](kit, "x" * 300))


@pytest.mark.skipif(sys.platform != "linux", reason="names are UTF-8 on other systems")
def test_a_name_that_is_not_utf_8(run: Run, tmp_path: Path) -> None:
    write_photos(Path("photos"))
    kit, name = write_kit(tmp_path / "kit"), os.fsdecode(b"r\xe9")
    shutil.copytree(kit, tmp_path / name)
    for arguments in (
        ("train", "photos", "--kit", kit, "--out", tmp_path / name / "run"),
        ("predict", tmp_path / name, "photos"),
        ("export", kit, "--out", f"{name}.onnx"),
        ("delta", "save", kit, "--format", "onnx-adapter", "--out", f"{name}.onnx_adapter"),
    ):
        text = refusal(run, *arguments)
        assert "is not valid UTF-8, which the runtime needs: choose another name" in text


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may search every folder")
@pytest.mark.parametrize("kind", PATHS)
def test_a_folder_that_may_not_be_searched(kind: str, run: Run, tmp_path: Path) -> None:
    write_photos(Path("photos"))
    locked = tmp_path / "locked"
    locked.mkdir(mode=0)
    assert "Permission denied" in refusal(run, *PATHS[kind](locked / "x"))


def test_a_working_folder_that_was_removed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, kit = write_photos(tmp_path / "photos"), write_kit(tmp_path / "kit")

    def gone() -> str:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(os, "getcwd", gone)
    assert "the working folder has been removed" in refusal(
        run, "train", photos, "--kit", kit, "--epochs", 1
    )


@pytest.mark.timeout(60)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
@pytest.mark.parametrize("name", [MANIFEST, "predict.onnx", PARAMETERS])
def test_a_pipe_in_a_kit_is_not_read(name: str, run: Run, tmp_path: Path) -> None:
    write_photos(Path("photos"))
    kit = write_kit(tmp_path / "kit")
    (kit / name).unlink()
    os.mkfifo(kit / name)
    text = refusal(run, "predict", kit, "photos")
    assert name in text
    assert "not a regular file" in text


def write_huge(path: Path) -> None:
    """A PNG that says it has 20,000 x 20,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    path.write_bytes(start + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b""))


def write_truncated(path: Path) -> None:
    Image.effect_noise((64, 64), 50).save(path)
    path.write_bytes(path.read_bytes()[:2000])


@pytest.mark.parametrize(
    ("name", "write", "reason"),
    [
        ("notes.txt", lambda path: path.write_text("hello"), "not an image in a known format"),
        ("empty.jpg", lambda path: path.touch(), "the file is empty"),
        ("huge.png", write_huge, "make it smaller"),
        ("cut.png", write_truncated, "cut off"),
    ],
)
def test_a_bad_file_among_good_ones_is_listed(
    name: str, write: Callable[[Path], object], reason: str, run: Run, tmp_path: Path
) -> None:
    photos, kit = write_photos(tmp_path / "photos"), write_kit(tmp_path / "kit")
    write(photos / "red" / name)
    result = run("train", photos, "--kit", kit, "--epochs", 2)
    assert result.exit_code == 0, result.output
    assert "1 file skipped:" in result.stdout
    assert f"  red/{name}: " in result.stdout
    assert reason in result.stdout


def test_names_of_all_kinds(run: Run, tmp_path: Path) -> None:
    photos, kit = write_photos(tmp_path / "fotos ñ 花"), write_kit(tmp_path / "kit")
    (photos / "red").rename(photos / "ばら 🌹")
    (photos / "blue" / "0.png").rename(photos / "blue" / ("long " * 49 + "name.png"))
    (photos / "blue" / "1.png").rename(photos / "blue" / os.fsdecode(b"\xff\xfe.png"))
    (photos / "blue" / os.fsdecode(b"\xff.txt")).touch()
    result = run("train", photos, "--kit", kit, "--epochs", 1, "--out", "run ñ")
    assert result.exit_code == 0, result.output
    assert "predict 'run ñ' PHOTO" in result.stderr
    result = run("predict", "run ñ", photos / "ばら 🌹", "--json")
    assert len(result.stdout.splitlines()) == 10
    assert {c["class"] for c in json.loads(result.stdout.splitlines()[0])["classes"]} == {
        "blue",
        "green",
        "ばら 🌹",
    }


def rewrite_manifest(kit: Path, **changes: object) -> None:
    values = json.loads((kit / "manifest.json").read_text())
    (kit / "manifest.json").write_text(json.dumps({**values, **changes}))


def truncate_graph(kit: Path) -> None:
    """The manifest has the hash of the shorter file, so only the runtime finds the damage."""
    content = (kit / "step.onnx").read_bytes()
    (kit / "step.onnx").write_bytes(content[: len(content) // 2])
    files = json.loads((kit / "manifest.json").read_text())["files"]
    files["step.onnx"] = hashlib.sha256(content[: len(content) // 2]).hexdigest()
    rewrite_manifest(kit, files=files)


KITS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (shutil.rmtree, "there is no kit or run at"),
    "a missing file": (lambda k: (k / "step.onnx").unlink(), "step.onnx of the kit"),
    "a wrong hash": (
        lambda k: (k / "predict.onnx").write_bytes(b"changed"),
        "(wrong SHA-256): it is damaged or was changed; copy the kit again",
    ),
    "a newer schema": (
        lambda k: rewrite_manifest(k, schema=99),
        "needs a newer pocketune (its schema is 99",
    ),
    "a truncated graph": (truncate_graph, "step.onnx of the kit"),
    "no manifest": (lambda k: (k / "manifest.json").unlink(), "is neither a kit nor a run"),
}


@pytest.mark.parametrize("case", KITS)
def test_kit(case: str, run: Run, tmp_path: Path, photos: Path) -> None:
    spoil, said = KITS[case]
    kit = write_kit(tmp_path / "kit")
    spoil(kit)
    assert said in refusal(run, "train", photos, "--kit", kit)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--budget", "1MB"], "the budget of 1.0 MB is smaller than the "),
        (["--budget", "much"], "'much' is not a size: write for example 96MB"),
        (["--lr", "0"], "lr must be above 0"),
        (["--epochs", "1", "--steps", "1"], "--epochs and --steps must not be given together"),
        (["--val-fraction", "20"], "error: --val-fraction must be"),
        (
            ["--lr", "1e30", "--optimizer", "sgd", "--epochs", "5"],
            "start again with a learning rate",
        ),
    ],
)
def test_settings(options: list[str], said: str, run: Run, photos: Path, kit: Path) -> None:
    assert said in refusal(run, "train", photos, "--kit", kit, *options)


def test_a_loss_that_is_not_finite_keeps_the_last_good_state(
    run: Run, photos: Path, kit: Path
) -> None:
    text = refusal(
        *(run, "train", photos, "--kit", kit, "--out", "run"),
        *("--lr", "1e30", "--optimizer", "sgd", "--epochs", "5"),
    )
    assert "is not finite at step" in text
    assert "the last good state is kept in run" in text
    assert run("predict", "run", photos / "red").exit_code == 0


def test_a_budget_that_the_kit_does_not_fit(run: Run, tmp_path: Path, photos: Path) -> None:
    # Another process's memory is not known here; a prediction is made to be over any budget.
    kit = write_kit(tmp_path / "kit")
    graphs = Kit.open(kit).manifest.graphs
    huge = {name: asdict(replace(spec, memory=10**12)) for name, spec in graphs.items()}
    rewrite_manifest(kit, graphs=huge)
    text = refusal(run, "train", photos, "--kit", kit, "--budget", "50GB")
    assert "short: training needs about" in text
    assert not (tmp_path / "runs").exists()


def test_a_run_is_not_written_over(run: Run, photos: Path, kit: Path) -> None:
    arguments = ("train", photos, "--kit", kit, "--out", "run", "--epochs", 1)
    assert run(*arguments).exit_code == 0
    assert refusal(run, *arguments) == (
        "error: run already contains a finished run; choose another folder with --out, or train it "
        "further with --kit run --out NEW\n"
    )
    complete = refusal(run, "train", "--resume", "run")
    assert complete.endswith("; train it further with --kit run\n")


@pytest.mark.parametrize(
    "arguments",
    [("train", ""), ("train", "x", "--out", ""), ("predict", "run", ""), ("predict", "", "a.jpg")],
)
def test_an_empty_path_is_not_the_current_folder(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "it is empty" in result.stderr


@pytest.mark.parametrize("arguments", [("train", ADDRESS), ("predict", "blocks", ADDRESS)])
def test_nothing_is_downloaded(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert f"{ADDRESS} is an address" in result.stderr


def test_nothing_to_resume(run: Run, tmp_path: Path) -> None:
    assert "there is no run to resume in" in refusal(run, "train", "--resume", tmp_path)


def test_a_checkpoint_of_another_kit(run: Run, tmp_path: Path, photos: Path, kit: Path) -> None:
    other = write_kit(tmp_path / "other", batch=BATCH + 1)
    for name, its in (("one", kit), ("two", other)):
        assert run("train", photos, "--kit", its, "--out", name, "--epochs", 1).exit_code == 0
    shutil.copy(Path("two") / LAST, Path("one") / LAST)
    assert "is a checkpoint of another kit, not of one" in refusal(run, "train", "--resume", "one")


def test_a_full_disk_leaves_the_checkpoint_before_it(
    run: Run, photos: Path, kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync
    arguments = ("train", photos, "--kit", kit, "--out", "run", "--checkpoint-every", 2)
    arguments += ("--epochs", 9)

    def fsync(descriptor: int) -> None:
        if (Path("run") / LAST).exists() and Checkpoint.load(Path("run") / LAST).counters.step == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        assert "No space left on device" in refusal(run, *arguments)
    assert Checkpoint.load(Path("run") / LAST).counters.step == 4
