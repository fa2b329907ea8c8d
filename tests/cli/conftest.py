"""Photos, a kit, and two ways to run a command: in this process, and as users do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pocketune.cli import app
from pocketune.kit import bundled as kits

from ..device.softmax_engine import CLASSES, write_photos
from ..device.tiny_kit import TinyKit

Run = Callable[..., Result]
Process = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 noisy photos in three classes, each of one color."""
    return write_photos(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit for these classes, which a few steps train."""
    return (
        TinyKit(classes=CLASSES, size=16).write(tmp_path_factory.mktemp("kits") / "tiny.zip").path
    )


@pytest.fixture(scope="session")
def small_kits(kit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small kits with the names of those that are bundled."""
    folder = tmp_path_factory.mktemp("bundled")
    for name in kits.list_kits():
        (folder / f"{name}.zip").write_bytes(kit.read_bytes())
    return folder


@pytest.fixture
def bundled(small_kits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundled kits, with small ones in their place; in this process alone."""
    monkeypatch.setattr(kits, "_FOLDER", small_kits)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("predict", ...)` in this process and in its own folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="session")
def finished(photos: Path, kit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, which `trained` copies."""
    folder = tmp_path_factory.mktemp("finished") / "trained"
    options = ["--epochs", "8", "--lr", "0.05", "--out", str(folder)]
    result = CliRunner().invoke(app, ["train", str(photos), "--kit", str(kit), *options])
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def trained(run: Run, finished: Path) -> str:
    """A run in the folder of the test."""
    return shutil.copytree(finished, "trained")


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "pocketune", *map(str, arguments)]


def environment() -> dict[str, str]:
    """One thread, for the tests share their machine; the same bits in every run."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "COLUMNS": "100"}


def run_command(
    folder: Path, *arguments: object, **options: object
) -> subprocess.CompletedProcess[str]:
    """A command in its own process, in this folder."""
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment(),
        **options,
    )


@pytest.fixture
def process(tmp_path: Path) -> Process:
    """`process("predict", ...)` in its own process and folder."""
    return partial(run_command, tmp_path)
