"""Files that are replaced atomically."""

import errno
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pocketune.errors import PocketuneError
from pocketune.files import (
    is_partial,
    partial,
    replacing,
    sync,
)

pytestmark = pytest.mark.usefixtures("flushed")


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write_text(text)


@pytest.mark.skipif(os.name == "nt", reason="needs symbolic links and permissions of Unix")
def test_links_and_permissions_are_kept(tmp_path):
    file, link = tmp_path / "deep" / "file", tmp_path / "link"
    file.parent.mkdir()
    link.symlink_to(file)
    write(link, "new")  # which the link led to nowhere before
    file.chmod(0o640)
    write(link, "newer")
    assert link.is_symlink()
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("newer", 0o640)


@pytest.mark.skipif(os.name == "nt", reason="read-only files are not replaced there")
def test_a_read_only_file_is_replaced_and_stays_one(tmp_path, monkeypatch):
    path, modes = tmp_path / "file", []
    write(path, "old")
    path.chmod(0o444)

    def noted(file: Path) -> None:  # root, as which tests may run, opens any file for writing
        modes.append(file.stat().st_mode & 0o200)
        sync(file)

    monkeypatch.setattr("pocketune.files.sync", noted)
    write(path, "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o444)
    assert all(modes)


def test_threads_that_write_one_file_do_not_collide(tmp_path):
    path, both = tmp_path / "file", threading.Barrier(2)

    def replace(text: str) -> None:
        with replacing(path) as file:
            file.write_text(text)
            both.wait(timeout=60)  # now both have written, and neither has renamed
            assert file.read_text() == text

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(replace, ("one", "two")))
    assert path.read_text() in ("one", "two")
    assert names(tmp_path) == ["file"]


def names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


def test_a_file_is_written_and_replaced(tmp_path):
    path = tmp_path / "file"
    for text in ("old", "new"):
        write(path, text)
        assert path.read_text() == text
        assert names(tmp_path) == ["file"]


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "file"
    write(path, "old")
    with replacing(path) as file:
        file.write_text("half of the n")
        assert path.read_text() == "old"


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace")])
def test_a_full_disk_leaves_the_file_before(owner, name, tmp_path, monkeypatch):
    path = tmp_path / "file"
    write(path, "old")
    monkeypatch.setattr(owner, name, full_disk)
    with pytest.raises(PocketuneError, match=r"written: No space left on device; .*unchanged$"):
        write(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_a_folder_that_cannot_be_flushed_leaves_the_new_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write(path, "old")

    def refuse(place: Path) -> None:
        if place.is_dir():
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("pocketune.files.sync", refuse)
    with pytest.raises(PocketuneError) as caught:
        write(path, "new")
    words = "is written, but may not survive a power cut: Input/output error"
    assert str(caught.value) == f"{path} {words}"
    assert path.read_text() == "new"


@pytest.mark.skipif(not hasattr(errno, "EDQUOT"), reason="quotas are named on Unix only")
@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT", "EROFS", "EFBIG", "EIO"])
@pytest.mark.parametrize("when", ["write_text", "fsync", "replace"])
def test_every_way_a_disk_refuses_is_a_sentence(name, when, tmp_path, monkeypatch):
    number, path = getattr(errno, name), tmp_path / "file"
    write(path, "old")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os if when == "fsync" else Path, when, refuse)
    with pytest.raises(PocketuneError) as caught:
        write(path, "new")
    remedy = "; make room" if name in ("ENOSPC", "EDQUOT") else ""
    reason = f"{os.strerror(number)}{remedy}; the file that was there is unchanged"
    assert str(caught.value) == f"{path} cannot be written: {reason}"
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_a_full_disk_leaves_nothing_where_nothing_was(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(
        PocketuneError, match=r"file cannot be written: No space left on device; make room$"
    ):
        write(tmp_path / "file", "new")
    assert not names(tmp_path)


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()], ids=repr)
def test_any_other_failure_passes_and_leaves_nothing(error, tmp_path):
    def fail() -> None:
        with replacing(tmp_path / "file") as file:
            file.write_text("half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert not names(tmp_path)


def test_errors_while_a_file_is_replaced_are_reported_as_those_of_the_disk(tmp_path):
    with (
        pytest.raises(PocketuneError, match="cannot be written: too many"),
        replacing(tmp_path / "file", ValueError),
    ):
        raise ValueError("too many")


def test_a_block_that_writes_nothing_is_refused(tmp_path):
    with pytest.raises(PocketuneError, match="No such file"), replacing(tmp_path / "file"):
        pass


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_a_pipe_is_not_replaced_but_a_link_to_a_file_is(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "alias").symlink_to("pipe")
    for name in ("pipe", "alias"):
        with pytest.raises(PocketuneError, match=r"is not a regular file: choose another"):
            write(tmp_path / name, "text")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    write(tmp_path / "file", "old")
    (tmp_path / "link").symlink_to("file")
    write(tmp_path / "link", "new")
    assert (tmp_path / "link").read_text() == "new"
    assert sorted(names(tmp_path)) == ["alias", "file", "link", "pipe"]


def test_the_file_and_its_folder_are_synced_around_the_rename(tmp_path, monkeypatch):
    calls: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def kind(descriptor: int) -> str:
        return "folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "file"

    def noted_fsync(descriptor: int) -> None:
        calls.append(kind(descriptor))
        fsync(descriptor)

    def noted_replace(self: Path, target: Path) -> Path:
        calls.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write(tmp_path / "file", "new")
    assert calls == ["file", "rename", "folder"]


KILLED = """
import os, signal, sys
from pathlib import Path
from pocketune.files import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write_text("half of the new o")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_leaves_is_removed_once_nobody_can_be_writing_it(tmp_path):
    path, fresh = tmp_path / "file", tmp_path / ".file.0a1b-7.partial"
    path.write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    (left,) = set(names(tmp_path)) - {"file"}
    assert is_partial(left, "file")
    assert left.partition("-")[0] != partial(path).name.partition("-")[0]
    os.utime(tmp_path / left, (0, 0))
    fresh.touch()  # another machine may be writing it
    write(path, "new")
    assert path.read_text() == "new"
    assert sorted(names(tmp_path)) == [fresh.name, "file"]


def test_a_folder_is_listed_once_however_many_files_are_written(tmp_path, monkeypatch):
    listed, listing = [], Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: listed.append(path) or listing(path))
    for name in ("a", "b", "c"):
        write(tmp_path / name, "text")
    assert listed == [tmp_path]


def test_the_incomplete_file_is_a_hidden_one_next_to_the_complete_one(tmp_path):
    found = partial(tmp_path / "last.safetensors")
    assert found.parent == tmp_path
    assert re.fullmatch(r"\.last\.safetensors\.[0-9a-f]{12}-[0-9]+\.partial", found.name)
    assert is_partial(found.name, "last.safetensors")
    assert not is_partial(found.name, "best.safetensors")
    assert not is_partial(".last.safetensors..partial", "last.safetensors")
    assert not is_partial(".last.safetensors.1.partial", "last.safetensors")


REFUSED = [getattr(errno, name) for name in ("EINVAL", "ENOTSUP", "EBADF")]


@pytest.mark.parametrize("number", REFUSED, ids=errno.errorcode.get)
def test_a_file_system_that_flushes_no_folders_can_be_written_to(number, tmp_path, monkeypatch):
    flush = os.fsync

    def of_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", of_files)
    write(tmp_path / "file", "text")
    assert names(tmp_path) == ["file"]


def test_a_drive_that_cannot_be_flushed_on_macos_leaves_it_to_the_system(tmp_path, monkeypatch):
    class Fcntl:
        F_FULLFSYNC = 51

        def fcntl(self, *_: object) -> None:
            raise OSError(errno.ENOTSUP, "Operation not supported")

    flushed: list[int] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("pocketune.files.fcntl", Fcntl(), raising=False)
    monkeypatch.setattr(os, "fsync", flushed.append)
    write(tmp_path / "file", "text")
    assert len(flushed) == 2  # the file and its folder


@pytest.mark.parametrize("name", ["x" * 200, "x" * 255, "é" * 127, "\U0001f33b" * 63 + ".zi"])
def test_a_name_of_any_length_can_be_written(name, tmp_path):
    write(tmp_path / name, "text")
    assert names(tmp_path) == [name]
    assert is_partial(partial(tmp_path / name).name, name)
    assert not is_partial(partial(tmp_path / name).name, name[:-1])


def test_sync_takes_files_and_folders(tmp_path):
    (tmp_path / "file").touch()
    sync(tmp_path / "file")
    sync(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "no")
