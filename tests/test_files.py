"""Files: errors of one sentence, and names in messages."""

import errno
import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.errors import PocketuneError
from pocketune.files import (
    make_folder_of,
    printable,
    reading,
    regular,
    shown,
    write_all,
    writing,
)


class OtherError(PocketuneError):
    pass


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("context", "verb"), [(reading, "read"), (writing, "written")], ids=["reading", "writing"]
)
class TestSentences:
    def test_name_the_file_and_the_reason(self, context, verb, tmp_path):
        path = tmp_path / "no" / "file"
        with pytest.raises(PocketuneError) as caught, context(path):
            path.open("r" if verb == "read" else "w")
        assert str(caught.value) == f"{path} cannot be {verb}: No such file or directory"

    def test_without_a_reason_of_the_system_say_what_the_error_says(self, context, verb):
        with pytest.raises(PocketuneError, match=f"^it cannot be {verb}: odd$"), context("it"):
            raise OSError("odd")
        with pytest.raises(PocketuneError, match=f"be {verb}: OSError$"), context("it"):
            raise OSError

    def test_end_with_the_remedy(self, context, verb):
        with pytest.raises(PocketuneError) as caught, context("it", remedy="look again"):
            full_disk()
        assert str(caught.value) == f"it cannot be {verb}: No space left on device; look again"

    def test_of_a_full_disk_say_to_make_room(self, context, verb):
        with pytest.raises(PocketuneError, match=r"left on device; make room$"), context("it"):
            full_disk()

    def test_are_of_the_class_asked_for(self, context, verb):
        with pytest.raises(OtherError), context("it", raises=OtherError):
            full_disk()

    def test_leave_those_of_others_as_they_are(self, context, verb):
        with pytest.raises(OtherError, match=r"^mine$"), context("it"):
            raise OtherError("mine")


def test_errors_of_a_reader_are_reported_as_damage():
    with pytest.raises(PocketuneError, match=r"^it is damaged: bad header; copy it again$"):
        read_badly(ValueError)
    with pytest.raises(ValueError, match="bad header"):
        read_badly(KeyError)


def read_badly(damage: type[Exception]) -> None:
    with reading("it", damage, remedy="copy it again"):
        raise ValueError("bad header")


def test_errors_of_a_writer_are_reported_as_those_of_the_disk():
    with (
        pytest.raises(PocketuneError, match="it cannot be written: 'odd'"),
        writing("it", KeyError),
    ):
        raise KeyError("odd")


def test_a_folder_is_made_for_a_file_unless_a_file_is_in_the_way(tmp_path):
    make_folder_of(tmp_path / "a" / "b" / "c.txt")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(PocketuneError, match=r"c\.txt cannot be written: Not a directory"):
        make_folder_of(tmp_path / "file" / "c.txt")


def test_a_file_that_takes_a_part_gets_the_rest():
    class Slow(io.RawIOBase):
        taken = b""

        def write(self, content):
            self.taken += bytes(content[:3])
            return min(3, len(content)) or None

    file = Slow()
    write_all(file, b"ten  bytes")
    assert file.taken == b"ten  bytes"


@given(st.text(), st.integers(10, 200))
def test_a_name_in_a_message_is_never_longer_than_its_room(name, limit):
    text = shown(name, limit)
    assert len(text) <= limit
    text.encode()  # it can be printed
    if len(name) <= limit:
        assert text == printable(name)
    else:
        assert text.count("...") >= 1
        assert printable(name).startswith(text.partition("...")[0])


@pytest.mark.parametrize("name", ["größe.png", "名前", "a b", ""])
def test_names_that_can_be_written_are_printed_as_they_are(name):
    assert printable(name) == shown(name) == name


def test_bytes_that_are_not_unicode_are_replaced():
    assert printable(os.fsdecode(b"a\xff.png")) == "a?.png"


def test_both_ends_of_a_long_name_are_shown():
    text = shown("start" + "x" * 500 + "end.png")
    assert text.startswith("start")
    assert text.endswith("end.png")


@pytest.mark.timeout(20)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_a_pipe_is_not_opened_for_reading(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        regular(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "none"):
        assert regular(path) is path
