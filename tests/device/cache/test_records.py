"""What comes back is what was written for the same place and stamp, or nothing."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.device.cache.records import OVERHEAD, FileStore, MemoryStore, Records, Store
from pocketune.errors import PocketuneError

ONE, OTHER = bytes(32), bytes([1]) * 32
CONTENT, STAMP = b"features of a photo", b"photo.jpg 100 1"
SIZE = len(CONTENT)


def never(reason: str) -> None:
    raise AssertionError(reason)


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else FileStore(tmp_path / "cache", ONE)


class Damaged(MemoryStore):
    """What is read went through a function."""

    def __init__(self, damage: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self._damage = damage

    def read(self, place: int, size: int) -> bytes:
        return self._damage(super().read(place, size))


class Full(MemoryStore):
    """A disk that has no room left after some records."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def write(self, place: int, record: bytes) -> None:
        if len(self._records) == self._room:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(place, record)


def test_kept_by_place_and_stamp(store: Store) -> None:
    records, record = Records(store, never), OVERHEAD + SIZE
    for number in (7, 0, 3):
        records.put(number * record, bytes([number]) * SIZE, STAMP)
    found = [records.get(number * record, SIZE, STAMP) for number in range(9)]
    assert found == [bytes([n]) * SIZE if n in (7, 0, 3) else None for n in range(9)]
    assert records.get(7 * record, SIZE, b"photo.jpg 100 2") is None
    assert records.get(7 * record, SIZE + 1, STAMP) is None
    records.put(7 * record, CONTENT, b"photo.jpg 100 2")
    assert records.get(7 * record, SIZE, b"photo.jpg 100 2") == CONTENT
    assert records.get(7 * record, SIZE, STAMP) is None


@given(st.integers(0, OVERHEAD + SIZE - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed(position: int, change: int) -> None:
    def damage(record: bytes) -> bytes:
        changed = bytearray(record)
        changed[position] ^= change
        return bytes(changed)

    records = Records(Damaged(damage), never)
    records.put(0, CONTENT, STAMP)
    assert records.get(0, SIZE, STAMP) is None


@given(st.integers(0, OVERHEAD + SIZE - 1), st.booleans())
def test_a_record_that_was_written_in_part_is_noticed(length: int, filled: bool) -> None:
    rest = bytes(OVERHEAD + SIZE - length) if filled else b""
    records = Records(Damaged(lambda record: record[:length] + rest), never)
    records.put(0, CONTENT, STAMP)
    assert records.get(0, SIZE, STAMP) is None


def test_a_record_at_another_place_is_noticed() -> None:
    store = MemoryStore()
    records = Records(store, never)
    records.put(0, CONTENT, STAMP)
    store.write(100, store.read(0, OVERHEAD + SIZE))
    assert records.get(100, SIZE, STAMP) is None


def test_a_full_disk_is_told_once_and_gives_everything_back() -> None:
    told: list[str] = []
    store = Full(room=2)
    records = Records(store, told.append)
    for number in range(5):
        records.put(number, CONTENT, STAMP)
    assert told == ["No space left on device"]
    assert not store._records
    assert [records.get(number, SIZE, STAMP) for number in range(5)] == [None] * 5
    records.discard()
    records.close()


def test_a_disk_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    told: list[str] = []

    class Broken(FileStore):
        def read(self, place: int, size: int) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    records = Records(Broken(tmp_path / "cache", ONE), told.append)
    assert records.get(0, SIZE, STAMP) is None
    assert told == ["Input/output error"]
    assert not (tmp_path / "cache").exists()


class TestFile:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """A file that holds a record and was closed."""
        records = Records(FileStore(tmp_path / "cache", ONE), never)
        records.put(50, CONTENT, STAMP)
        records.close()
        return tmp_path / "cache"

    def found(self, path: Path, identity: bytes = ONE) -> bytes | None:
        return Records(FileStore(path, identity), never).get(50, SIZE, STAMP)

    def test_opened_again(self, path: Path) -> None:
        assert self.found(path) == CONTENT

    def test_of_another_kit(self, path: Path) -> None:
        assert self.found(path, OTHER) is None
        assert self.found(path) is None  # it was begun again

    @pytest.mark.parametrize("length", [0, 1, 20, 52, 53, 60, -1])
    def test_truncated(self, path: Path, length: int) -> None:
        path.write_bytes(path.read_bytes()[:length])
        assert self.found(path) is None
        records = Records(FileStore(path, ONE), never)
        records.put(50, CONTENT, STAMP)
        assert records.get(50, SIZE, STAMP) == CONTENT

    def test_removed(self, path: Path) -> None:
        Records(FileStore(path, ONE), never).discard()
        assert not path.exists()

    def test_a_disk_without_room_for_the_header(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("pocketune.device.cache.records.write_all", refuse)
        with pytest.raises(PocketuneError, match="cache cannot be written: No space left on"):
            FileStore(tmp_path / "cache", ONE)
        assert not (tmp_path / "cache").exists()

    def test_a_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "cache").mkdir()
        with pytest.raises(PocketuneError, match="cache cannot be written: Is a directory"):
            FileStore(tmp_path / "cache", ONE)
