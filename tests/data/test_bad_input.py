"""Unusable data: one sentence that names the problem, or a list of skipped files."""

import os
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest
from PIL import Image

from pocketune.data import Loader, load_splits
from pocketune.data.images.opening import UnreadableImage
from pocketune.errors import PocketuneError

from .images.loading import load_image
from .refusals import refusal


class TestNothingToLearnFrom:
    def test_missing(self, tmp_path):
        assert "nowhere does not exist" in refusal(tmp_path / "nowhere")

    def test_impossible_path(self, tmp_path):
        assert "cannot be read" in refusal(tmp_path / ("x" * 5000))

    def test_empty(self, tmp_path):
        assert "is empty" in refusal(tmp_path)

    def test_neither_folder_nor_archive(self, tree):
        folder = tree({"notes.txt": "hello"})
        assert "neither a folder" in refusal(folder / "notes.txt")

    def test_no_class_folders(self, tree):
        assert "no class folders" in refusal(tree({"1.png": 1, "2.png": 2}))

    def test_one_class(self, photos):
        message = refusal(photos(cats=5))
        assert "one class only, 'cats'" in message

    def test_one_class_of_a_known_kit(self, photos):
        assert "one class only" in refusal(photos(cats=5), classes=("cats", "dogs"))

    def test_single_image_needs_no_second_where_the_user_divided(self, tree):
        parts = ("train/a/1.png", "train/a/2.png", "train/b/1.png", "val/a/3.png")
        assert len(load_splits(tree({name: i for i, name in enumerate(parts)})).train) == 3

    def test_no_readable_image(self, tree):
        message = refusal(tree({"a/1.txt": "one", "b/2.jpg": "two"}))
        assert "no readable image among its 2 files" in message
        assert "a/1.txt" in message

    def test_a_table_of_titles_alone(self, tree):
        folder = tree({"table.csv": "file,label\n"})
        assert "table.csv lists no files; add a line for each" in refusal(folder / "table.csv")

    def test_class_without_a_readable_image(self, photos, tree):
        photos(cats=3, dogs=3)
        assert "'birds'" in refusal(tree({"birds/1.jpg": "no image"}))

    def test_validation_class_that_does_not_train(self, tree):
        names = ("train/a/1.png", "train/b/1.png", "val/c/1.png")
        message = refusal(tree({name: i for i, name in enumerate(names)}))
        assert "'c'" in message
        assert "no training images" in message

    def test_class_that_the_kit_does_not_know(self, photos):
        message = refusal(photos(cats=2, dogs=2, yaks=2), classes=("cats", "dogs"))
        assert "'yaks'" in message
        assert "cats, dogs" in message

    def test_one_of_the_class_folders(self, photos, monkeypatch):
        folder = photos(cats=2, dogs=2)
        monkeypatch.chdir(folder.parent)
        message = refusal(Path(folder.name) / "cats")
        assert message.endswith(f"look like classes too: did you mean {folder.name}?")
        monkeypatch.chdir(folder)
        assert refusal(Path("cats")).endswith(f"did you mean {folder}?")
        (folder / "cats" / "2025").mkdir()
        for inside, path in (("cats", "."), ("cats/2025", "..")):
            monkeypatch.chdir(folder / inside)
            assert refusal(Path(path)).endswith(f"did you mean {folder}?")
        (folder / "dogs").rename(folder / "cats" / "dogs")
        (folder / "notes").mkdir()
        (folder / "notes" / "notes.txt").touch()
        (folder / "cats" / "dogs").rename(folder.parent / "dogs")
        assert "put each class's images" in refusal(folder / "cats")


class TestSkipped:
    def test_not_an_image(self, photos, tree):
        photos(cats=3, dogs=3)
        splits = load_splits(tree({"cats/notes.txt": "hello", "dogs/empty.jpg": b""}))
        assert splits.skipped == (
            ("cats/notes.txt", "not an image in a known format"),
            ("dogs/empty.jpg", "the file is empty"),
        )
        assert len(splits.train) + len(splits.val) == 6

    def test_huge(self, photos, tree):
        photos(cats=3, dogs=3)
        header = b"IHDR" + struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
        huge = b"\x89PNG\r\n\x1a\n\0\0\0\r" + header + struct.pack(">I", zlib.crc32(header))
        idat = b"IDAT" + zlib.compress(b"")
        huge += struct.pack(">I", len(idat) - 4) + idat + struct.pack(">I", zlib.crc32(idat))
        ((name, reason),) = load_splits(tree({"cats/huge.png": huge})).skipped
        assert name == "cats/huge.png"
        assert "make it smaller" in reason

    def test_file_that_may_not_be_read(self, photos, monkeypatch):
        folder = photos(cats=3, dogs=3)
        secret = folder / "cats" / "01.png"
        for module, name in ((type(secret), "open"), (os, "open")):
            opened = getattr(module, name)

            def refuse(path, *args, opened=opened, **kwargs):
                if os.fspath(path) == str(secret):
                    raise PermissionError(13, "Permission denied", str(path))
                return opened(path, *args, **kwargs)

            monkeypatch.setattr(module, name, refuse)
        assert load_splits(folder).skipped == (("cats/01.png", "no permission to read it"),)

    def test_folder_that_may_not_be_read(self, photos, monkeypatch):
        folder = photos(cats=3, dogs=3)
        scan = os.scandir

        def refuse(path):
            if os.fspath(path).endswith("cats"):
                raise PermissionError(13, "Permission denied", os.fspath(path))
            return scan(path)

        monkeypatch.setattr(os, "scandir", refuse)
        message = refusal(folder)
        assert "cats cannot be read: Permission denied" in message

    @pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes among files")
    def test_pipe_does_not_block(self, photos):
        folder = photos(cats=3, dogs=3)
        os.mkfifo(folder / "cats" / "pipe.png")
        assert load_splits(folder).skipped == (("cats/pipe.png", "not a regular file"),)

    @pytest.mark.skipif(os.name == "nt", reason="Windows file names are Unicode")
    def test_name_that_is_not_unicode(self, photos, encoded, noise):
        folder = photos(cats=3, dogs=3)
        path = folder / "cats" / os.fsdecode(b"f\xfc\xdfe.png")
        try:
            path.write_bytes(encoded(noise(0)))
        except OSError:
            pytest.skip("this file system takes Unicode names only")
        ((name, reason),) = load_splits(folder).skipped
        assert name == "cats/f??e.png"
        assert "UTF-8" in reason


class TestTable:
    def write(self, tree, text: str | bytes):
        return tree({"1.png": 1, "2.png": 2, "labels.csv": text}) / "labels.csv"

    def test_empty(self, tree):
        assert "labels.csv is empty" in refusal(self.write(tree, "\n\n"))

    def test_missing(self, tmp_path):
        assert "does not exist" in refusal(tmp_path / "labels.csv")

    @pytest.mark.parametrize("header", ["file", "label,width", "a,b,c", "1.png,cat,3"])
    def test_missing_column(self, tree, header):
        message = refusal(self.write(tree, f"{header}\n1.png,cat\n"))
        assert "columns file and label" in message
        assert header.split(",")[0] in message

    @pytest.mark.parametrize(
        ("line", "column"), [("1.png,", "label"), (",cat", "file"), ("1.png", "label")]
    )
    def test_missing_value(self, tree, line, column):
        assert f"no {column} in line 3" in refusal(
            self.write(tree, f"file,label\n2.png,a\n{line}\n")
        )

    def test_all_files_missing(self, tree):
        message = refusal(self.write(tree, "file,label\nx/1.png,a\nx/2.png,b\n"))
        assert "x/1.png: no such file" in message

    def test_contradiction(self, tree):
        message = refusal(self.write(tree, "file,label\n1.png,a\n./1.png,b\n"))
        assert "1.png twice" in message

    def test_unknown_split(self, tree):
        message = refusal(self.write(tree, "file,label,split\n1.png,a,holdout\n"))
        assert "'holdout' in line 2" in message

    @pytest.mark.parametrize(
        "data", [b"\xff\xfe\0\x01\x02", b"\x80\x81", "file,label\n".encode("utf-16")]
    )
    def test_not_text(self, tree, data):
        assert "UTF-8" in refusal(self.write(tree, data))

    def test_endless_cell(self, tree):
        assert "not a CSV" in refusal(self.write(tree, 'file,label\n"' + "x" * 200_000))


class TestZip:
    def test_no_archive(self, tree):
        folder = tree({"photos.zip": "these are words"})
        assert "is damaged: " in refusal(folder / "photos.zip")

    def test_truncated(self, photos, pack):
        path = pack(photos(cats=3, dogs=3))
        path.write_bytes(path.read_bytes()[:-40])
        assert "is damaged: " in refusal(path)

    def test_empty(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "photos.zip", "w"):
            pass
        assert "is empty" in refusal(tmp_path / "photos.zip")

    @pytest.mark.parametrize(
        "name",
        ["../x.png", "a/../../x.png", "/etc/x.png", "C:/x.png", "..\\x.png", "\\\\host\\x.png"],
    )
    def test_path_that_leads_out(self, tmp_path, name):
        with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
            archive.writestr(name, b"")
        assert "leads out of the archive" in refusal(tmp_path / "photos.zip")

    def test_encrypted(self, photos, pack):
        path = pack(photos(cats=3, dogs=3))
        data = bytearray(path.read_bytes())
        position = data.index(b"PK\x01\x02")
        data[position + 8] |= 1
        path.write_bytes(data)
        assert "without a password" in refusal(path)

    def test_of_a_version_to_come(self, photos, pack):
        path = pack(photos(cats=3, dogs=3))
        data = bytearray(path.read_bytes())
        data[data.index(b"PK\x01\x02") + 6] = 99
        path.write_bytes(data)
        assert "is damaged: zip file version 9.9; pack it again" in refusal(path)

    def test_names_that_are_not_what_the_archive_says(self, photos, pack):
        path = pack(photos(cats=3, dogs=3))
        data = bytearray(path.read_bytes())
        position = data.index(b"PK\x01\x02")
        data[position + 9] |= 8  # UTF-8
        data[position + 46] = 0xFF
        path.write_bytes(data)
        assert "codec can't decode byte 0xff" in refusal(path)

    def test_endless_path(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
            archive.writestr("x/" * 20_000 + "a/1.png", b"")
        assert "a path of 40,007 characters" in refusal(tmp_path / "photos.zip")

    def test_damaged_table(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
            archive.writestr("t.csv", "file,label\n1.png,a\n")
        data = (tmp_path / "photos.zip").read_bytes().replace(b"1.png,a", b"2.png,b")
        (tmp_path / "photos.zip").write_bytes(data)
        assert "t.csv is damaged: Bad CRC-32" in refusal(tmp_path / "photos.zip")

    def test_damaged_member_is_skipped(self, photos, pack):
        path = pack(photos(cats=3, dogs=3))
        data = bytearray(path.read_bytes())
        start = data.index(b"cats/01.png") + len("cats/01.png")
        data[start : start + 20] = bytes(20)
        path.write_bytes(data)
        ((name, reason),) = load_splits(path).skipped
        assert name == "cats/01.png"
        assert reason


class TestTableBeyondReason:
    def test_far_too_large(self, tmp_path):
        with (tmp_path / "t.csv").open("wb") as file:
            file.truncate(3 << 30)  # takes no room on the disk
        tracemalloc.start()
        assert "larger than the 128 MB that a list of photos may" in refusal(tmp_path / "t.csv")
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
        tracemalloc.stop()

    def test_numbers_of_thousands_of_digits_are_names(self, tree):
        folder = tree({"1.png": 1, "2.png": 2, "3.png": 3, "4.png": 4})
        rows = [f"{i}.png,{'7' * 5000 if i % 2 else 8}" for i in range(1, 5)]
        (folder / "t.csv").write_text("\n".join(["file,label", *rows]))
        assert load_splits(folder / "t.csv").train.classes == ("7" * 5000, "8")


class TestLoader:
    def test_nothing_to_train_on(self, photos):
        train = load_splits(photos(cats=3, dogs=3)).train.subset([])
        with pytest.raises(PocketuneError, match="there are no training images"):
            Loader(train, size=8, batch=8, train=True)

    @pytest.mark.parametrize("wrong", [{"size": 0}, {"batch": 0}, {"workers": 0}, {"seed": -1}])
    def test_impossible_argument(self, photos, wrong):
        train = load_splits(photos(cats=3, dogs=3)).train
        with pytest.raises(PocketuneError, match=next(iter(wrong))):
            Loader(train, **{"size": 8, "batch": 2, "train": True, **wrong})

    def test_nothing_can_be_decoded(self, tree, encoded, noise):
        half = encoded(noise(0, 64, 64))[:3000]
        splits = load_splits(tree({f"{c}/{i}.png": half for c in "ab" for i in range(3)}))
        loader = Loader(splits.train, size=8, batch=2, train=True)
        with pytest.raises(PocketuneError, match=r"none of the 4 training images .* a/\d\.png"):
            next(loader.epoch(0))


def test_a_jpeg_of_hundreds_of_scans_is_refused(tmp_path):
    file = tmp_path / "scans.jpg"
    Image.effect_noise((64, 64), 50).convert("RGB").save(file, progressive=True)
    assert load_image(file).size == (64, 64)
    content = file.read_bytes()
    last = content.rindex(b"\xff\xda")
    file.write_bytes(content[:last] + content[last:-2] * 300 + content[-2:])
    with pytest.raises(UnreadableImage, match=r"it has 3\d\d scans; save it as an ordinary JPEG"):
        load_image(file)
