"""An archive's members are those of the standard library, with less memory for each."""

import io
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pocketune.data.directory import Bare, Directory
from pocketune.data.sources import ZipSource
from pocketune.errors import PocketuneError

PARTS = st.sampled_from(["a", "b", "é", "x.jpg", "long" * 20, ".hidden", "__MACOSX", "z z"])
NAMES = st.lists(st.lists(PARTS, min_size=1, max_size=3).map("/".join), max_size=8)
METHODS = st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])


def nothing(_member: zipfile.ZipInfo) -> None:
    pass


def packed(names: list[str], method: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.comment = comment
        for number, name in enumerate(names):
            archive.writestr(name, f"{number} {name}" * 50)
    return file.getvalue()


def check(path: Path) -> Directory:
    """That all members are found and read as by the standard library."""
    directory, bare = Directory(path, nothing), zipfile.ZipFile(Bare(path))
    with zipfile.ZipFile(path) as archive:
        expected = {each.filename: each for each in archive.infolist() if not each.is_dir()}
        assert directory.names == sorted(expected)
        for name in directory.names:
            found = directory.member(name)
            assert (found.file_size, found.CRC) == (expected[name].file_size, expected[name].CRC)
            content = archive.read(expected[name])
            assert bare.read(found) == content
            usual = found.compress_type != zipfile.ZIP_BZIP2
            assert directory.beginning(name, 30) == (content[:30] if usual else b"")
    return directory


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(NAMES, METHODS, st.binary(max_size=30))
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_are_those_of_the_standard_library(tmp_path, names, method, comment) -> None:
    path = tmp_path / "photos.zip"
    path.write_bytes(packed(names, method, comment))
    check(path)


def test_members_in_any_order_and_more_than_are_read_at_once(tmp_path) -> None:
    names = [f"{number % 7}/{number:05d}.jpg" for number in range(2500)]
    path = tmp_path / "photos.zip"
    path.write_bytes(packed(names))
    directory = check(path)
    for index in np.random.default_rng(0).permutation(2500)[:50]:
        assert directory.member(directory.names[index]).filename == directory.names[index]
    with pytest.raises(FileNotFoundError):
        directory.member("0/nowhere.jpg")


def test_sizes_of_64_bits(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    data = packed([f"a/{number}.jpg" for number in range(9)])
    assert b"PK\6\6" in data
    (tmp_path / "photos.zip").write_bytes(data)
    check(tmp_path / "photos.zip")


def test_an_archive_behind_a_program_that_unpacks_it(tmp_path) -> None:
    path = tmp_path / "photos.zip"
    path.write_bytes(b"#!/bin/sh\nexit\n" * 9 + packed(["a/1.jpg", "b/2.jpg"]))
    check(path)


@pytest.mark.parametrize("cut", [1, 10, 22, 60, 100])
def test_a_damaged_archive(tmp_path, cut) -> None:
    data = packed(["a/1.jpg", "b/2.jpg"])
    path = tmp_path / "photos.zip"
    path.write_bytes(data[:-cut])
    with pytest.raises(PocketuneError, match="is damaged: "):
        ZipSource(path)


@pytest.mark.parametrize("place", range(0, 120, 7))
def test_flipped_bytes_of_the_directory_end_in_one_sentence(tmp_path, place) -> None:
    data = bytearray(packed(["a/1.jpg", "b/2.jpg"]))
    data[-1 - place] ^= 0xFF
    path = tmp_path / "photos.zip"
    path.write_bytes(data)
    try:
        source = ZipSource(path)
        for name in source.names():
            with source.open(name) as file:
                file.read()
    except (PocketuneError, OSError, zipfile.BadZipFile, NotImplementedError):
        pass


def test_many_threads_read_at_once(tmp_path) -> None:
    names = [f"a/{number}.jpg" for number in range(40)]
    path = tmp_path / "photos.zip"
    path.write_bytes(packed(names, zipfile.ZIP_DEFLATED))
    source, wrong = ZipSource(path), []

    def read(start: int) -> None:
        for number in [*range(start, 40), *range(start)] * 5:
            with source.open(names[number]) as file:
                if file.read() != f"{number} {names[number]}".encode() * 50:
                    wrong.append(number)

    threads = [threading.Thread(target=read, args=(start,)) for start in range(0, 40, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        ("b\u00e4r/1.jpg".encode("utf-8"), "b\u00e4r/1.jpg"),
        ("b\u00e4r/1.jpg".encode("cp437"), "b\u00e4r/1.jpg"),
    ],
)
def test_names_whose_flag_does_not_say_that_they_are_in_utf_8(tmp_path, stored, name) -> None:
    plain, path = "x" * len(stored), tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(plain, "pixels")
    path.write_bytes(path.read_bytes().replace(plain.encode(), stored))
    source = ZipSource(path)
    assert list(source.names()) == [name]
    with source.open(name) as file:
        assert file.read() == b"pixels"
