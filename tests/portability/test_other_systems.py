"""What Windows and macOS do otherwise, simulated: what they refuse, and how they count memory."""

import ctypes
import errno
import fcntl
import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pocketune import files
from pocketune.device import machine
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.machine import Machine, available_cores
from pocketune.device.memory import process
from pocketune.device.train.interrupt import Interrupted
from pocketune.device.train.progress import Silent
from pocketune.device.train.run import resume, train
from pocketune.kit.kit import Kit

from ..device.failing import failing, interrupt
from ..device.runs import write_photos
from ..device.tiny_kit import CLASSES, TinyKit

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open files can neither be renamed nor removed, and only writable ones flushed."""

    def opened(path: Any) -> bool:
        return Path(path).resolve() in {each.resolve() for each in Path("/proc/self/fd").iterdir()}

    def refusing(call: Any, count: int) -> Any:
        def wrapped(*paths: Any, **options: Any) -> Any:
            for path in paths[:count]:
                if any(map(opened, [path, *Path(path).rglob("*")])):
                    raise PermissionError(errno.EACCES, "it is open", str(path))
            return call(*paths, **options)

        return wrapped

    def fsync(descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "it is open for reading only")

    for name, count in {"replace": 2, "rename": 2, "unlink": 1, "remove": 1}.items():
        monkeypatch.setattr(os, name, refusing(getattr(os, name), count))
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(files, "sys", SimpleNamespace(platform="win32"))


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("name", ["kit", "kit.zip"])
def test_kits_are_written_over_each_other(name: str, tmp_path: Path) -> None:
    for classes in (CLASSES, CLASSES[:2]):
        TinyKit(classes=classes).write(tmp_path / name)
    assert Kit.open(tmp_path / name).manifest.classes == CLASSES[:2]
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("name", ["kit", "kit.zip"])
def test_a_run_is_stopped_resumed_and_replaced(name: str, tmp_path: Path) -> None:
    kit = TinyKit(classes=CLASSES).write(tmp_path / name)
    photos, out = write_photos(tmp_path / "photos", CLASSES, 8), tmp_path / "run"
    stopping = failing("gradients", 5, interrupt, OnnxEngine)
    with pytest.raises(Interrupted):
        train(kit, photos, out, epochs=2, engine=stopping, progress=Silent())
    assert resume(out, progress=Silent()).run == out
    assert not [file for file in out.iterdir() if file.name.startswith(".")]


def test_the_simulation_refuses_what_windows_does(windows: None, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with path.open("rb") as file:
        with pytest.raises(PermissionError):
            path.rename(tmp_path / "other")
        with pytest.raises(PermissionError):
            path.unlink()
        with pytest.raises(OSError, match="reading only"):
            os.fsync(file.fileno())
    path.rename(tmp_path / "other")


def test_macos_flushes_the_drive_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = []
    system = SimpleNamespace(F_FULLFSYNC=51, fcntl=lambda _, command: calls.append(command))
    monkeypatch.setattr(files, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(files, "fcntl", system, raising=False)
    with files.replacing(tmp_path / "file") as file:
        file.write_bytes(b"")
    assert calls == [51, 51]  # the file, then its folder


def test_macos_counts_memory_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """There, getrusage counts bytes and not kilobytes; task_info has bytes for both figures."""

    class Port(ctypes.c_uint32):
        @classmethod
        def in_dll(cls, library: Any, name: str) -> Any:
            assert name == "mach_task_self_"
            return cls(7)

    def task_info(task: Any, flavor: int, info: Any, count: Any) -> int:
        assert (task.value, flavor) == (7, 20)
        assert count._obj.value == 12  # MACH_TASK_BASIC_INFO_COUNT
        sizes = (ctypes.c_uint64 * 3).from_buffer(info._obj)
        sizes[:] = [900_000_000, 60_000_000, 70_000_000]  # virtual, resident, its maximum
        return 0

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(task_info=task_info))
    monkeypatch.setattr(ctypes, "c_uint32", Port)
    measured = runpy.run_path(process.__file__)["process_memory"]()
    assert (measured.current, measured.peak) == (60_000_000, 70_000_000)


def test_without_proc_memory_is_that_of_getrusage(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> Any:
        raise FileNotFoundError("/proc/self/status")

    monkeypatch.setattr(process, "open", missing, raising=False)
    measured = process.process_memory()
    assert measured.peak == measured.current > 10_000_000


def test_without_affinity_and_proc_a_machine_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(machine, "_CPUINFO", Path("/proc/missing"))
    assert available_cores() == (os.cpu_count() or 1)
    assert Machine.current().processor
