"""Tables as they are found on the web: with other titles, and names without folder or suffix."""

import tracemalloc
import unicodedata
from functools import partial

import pytest

from pocketune.data import load_splits
from pocketune.data.labels.places import Places
from pocketune.data.sources import FolderSource

from .. import refusals
from ..test_load import eval_batches, pairs

refusal = partial(refusals.refusal, val_fraction=0)
LABELS = {"a1": "pug", "b2": "pug", "c3": "beagle", "d4": "beagle"}


def written(titles="id,breed", labels=LABELS):
    return "\n".join([titles, *(f"{name},{label}" for name, label in labels.items())])


@pytest.fixture
def beside(tree):
    """`beside("train", ".jpg")`: photos in a folder with a suffix, and `labels.csv` beside it."""

    def write(folder="", suffix=".png", *, name="labels.csv", text=None, **more):
        files = {f"{folder}{each}{suffix}": number for number, each in enumerate(LABELS)}
        return tree({**files, name: written() if text is None else text, **more})

    return write


class TestFound:
    @pytest.mark.parametrize("folder", ["", "images/", "train/", "train_images/", "a/b/"])
    @pytest.mark.parametrize("titles", ["id,breed", "image_id,label", "Image,Category", "name,x"])
    @pytest.mark.parametrize("named", [False, True])
    def test_by_name_alone(self, beside, pack, folder, titles, named):
        labels = {f"{name}.png" if named else name: label for name, label in LABELS.items()}
        path = beside(folder, text=written(titles, labels))
        expected = {f"{folder}{name}.png": label for name, label in LABELS.items()}
        for each in (path, path / "labels.csv", "", "set/"):
            place = pack(path, each) if isinstance(each, str) else each
            splits = load_splits(place, val_fraction=0.5)
            found = {**pairs(splits.train), **pairs(splits.val)}
            assert {name.removeprefix("set/"): label for name, label in found.items()} == expected
            assert eval_batches(splits.val)

    def test_a_photo_that_is_listed_twice(self, beside):
        twice = "file,label\na1,pug\na1,pug\nb2,pug\nc3,beagle\nd4,"
        names = load_splits(beside("x/", text=f"{twice}beagle"), val_fraction=0).train.names
        assert set(names) == {f"x/{name}.png" for name in LABELS}
        contrary = twice.replace("a1,pug", "a1,beagle", 1)
        message = refusal(beside("x/", text=f"{contrary}beagle"))
        assert "lists x/a1.png twice, with different labels" in message

    def test_with_a_part_of_the_path(self, beside):
        labels = {f"x\\{name}": label for name, label in LABELS.items()}
        path = beside("deep/x/", text=written(labels=labels))
        assert set(load_splits(path, val_fraction=0).train.names) == {
            f"deep/x/{name}.png" for name in LABELS
        }

    def test_in_several_folders_and_formats(self, tree, encoded, noise):
        jpeg = encoded(noise(4).convert("RGB"), "JPEG")
        path = tree({"p1/a1.png": 1, "p2/b2.png": 2, "p1/c3.jpeg": jpeg, "p2/d4.png": 3})
        (path / "HAM_metadata.csv").write_text(written("image_id,dx"))
        assert load_splits(path, val_fraction=0).train.names == (
            "p1/a1.png",
            "p1/c3.jpeg",
            "p2/b2.png",
            "p2/d4.png",
        )

    def test_folders_named_after_photos_are_no_classes(self, beside):
        path = beside("train_images/", name="train.csv", **{"test_images/e5.png": 9})
        assert load_splits(path, val_fraction=0).classes == ("beagle", "pug")

    def test_without_a_table_they_are(self, tree):
        path = tree({f"{name}/{i}.png": i for name in ("images", "photos") for i in range(2)})
        assert load_splits(path, val_fraction=0).classes == ("images", "photos")

    def test_photos_to_test_are_not_meant(self, beside):
        others = {f"test/{name}.png": 9 for name in LABELS}
        names = load_splits(beside("train/", **others), val_fraction=0).train.names
        assert set(names) == {f"train/{name}.png" for name in LABELS}

    def test_photos_in_the_folder_of_the_name_of_the_table(self, beside):
        others = {f"old/{name}.png": 9 for name in LABELS}
        path = beside("dogs/", name="dogs.csv", **others) / "dogs.csv"
        names = load_splits(path, val_fraction=0).train.names
        assert set(names) == {f"dogs/{name}.png" for name in LABELS}

    def test_other_files_of_the_same_name_are_no_photos(self, beside):
        others = {f"notes/{name}.txt": "a dog" for name in LABELS}
        path = beside("dogs/", **others) / "labels.csv"
        assert len(load_splits(path, val_fraction=0).train) == 4

    def test_without_titles(self, beside):
        labels = {f"{name}.png": label for name, label in LABELS.items()}
        for names in (LABELS, labels):
            text = written(labels=names).partition("\n")[2]
            assert len(load_splits(beside("dogs/", text=text), val_fraction=0).train) == 4

    def test_without_titles_the_label_may_come_first(self, beside):
        text = "\n".join(f"{label},{name}.png" for name, label in LABELS.items())
        assert load_splits(beside("dogs/", text=text), val_fraction=0).classes == ("beagle", "pug")

    def test_missing_photos_are_skipped(self, beside):
        splits = load_splits(beside("dogs/", text=f"{written()}\nno,pug"), val_fraction=0)
        assert len(splits.train) == 4
        assert splits.skipped == (("dogs/no.png", "no such file"),)

    def test_titles_that_are_known_come_first(self, beside):
        text = "id,file,label\n" + "\n".join(f"{n},{n}.png,{x}" for n, x in LABELS.items())
        assert len(load_splits(beside(text=text), val_fraction=0).train) == 4

    def test_attributes(self, beside):
        text = "id,young,old\n" + "\n".join(f"{name},1,{i % 2}" for i, name in enumerate(LABELS))
        assert load_splits(beside("x/", text=text), val_fraction=0).classes == ("young", "old")

    def test_a_sample_of_a_long_table(self, tree):
        files = {f"{'ab'[i >= 90]}/{i:03}.png": 1 for i in range(100)}
        path = tree({**files, "t.csv": written(labels={f"{i:03}": i % 2 for i in range(100)})})
        assert set(load_splits(path, val_fraction=0).train.names) == set(files)

    @pytest.mark.parametrize("folder", ["", "dogs/"])
    def test_a_photo_that_lies_elsewhere_than_the_sample(self, tree, encoded, noise, folder):
        files = {f"{folder}{i:03}.jpg": i for i in range(99)}
        labels = {f"{i:03}": i % 2 for i in range(100)}
        path = tree({**files, "more/099.png": 1, "t.csv": written(labels=labels)})
        assert len(load_splits(path / "t.csv", val_fraction=0).train) == 100

    @pytest.mark.parametrize("folder", ["val/", "images/val_photos/"])
    def test_a_missing_photo_is_none_of_another_part(self, tree, folder):
        names = [f"{i}.png" for i in range(4)]
        other = folder.replace("val", "train")
        files = {f"{each}{name}": 1 for each in (folder, other) for name in names}
        del files[f"{folder}3.png"]
        tables = {
            f"{part}.csv": written("file,label", dict(zip(names, "abab", strict=True)))
            for part in ("train", "val")
        }
        splits = load_splits(tree(files | tables))
        assert (len(splits.train), len(splits.val)) == (4, 3)
        assert splits.skipped == ((f"{folder}3.png", "no such file"),)

    def test_photos_to_test_that_are_not_there_are_none_of_the_others(self, tree):
        files = {f"train/{name}.png": 1 for name in LABELS}
        path = tree(files | {"train.csv": written(), "test.csv": written()})
        assert len(load_splits(path, val_fraction=0).train) == 4

    def test_parts_may_share_a_folder_that_is_called_after_one(self, tree):
        names = list(LABELS)
        tables = {
            f"{part}.csv": written(labels=dict.fromkeys(two, "pug") | {two[0]: "beagle"})
            for part, two in (("train", names[:2]), ("val", names[2:]))
        }
        splits = load_splits(tree({f"train/{name}.png": 1 for name in names} | tables))
        assert (len(splits.train), len(splits.val)) == (2, 2)

    @pytest.mark.parametrize("missing", ["", "0.png,b\n"])
    def test_some_cells_are_names_as_they_are(self, tree, missing):
        table = f"file,label\n1.png,a\n{missing}2,b\n3,a\n"
        path = tree({"1.png": 1, "x/2.png": 2, "x/3.png": 3, "old/1.png": 4, "t.csv": table})
        names = load_splits(path / "t.csv", val_fraction=0).train.names
        assert set(names) == {"1.png", "x/2.png", "x/3.png"}


def test_rows_of_absent_photos_take_no_memory(tree):
    path = tree({f"x/{number}.png": 1 for number in range(4)})
    places = Places(FolderSource(path), "labels.csv")
    places.learn(["0", "1"], [])
    tracemalloc.start()
    places.learn(["0", "1"], map(str, range(5_000)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000
    assert places.of("4000") == "x/4000.png"


class TestRefused:
    def test_two_photos_of_one_name_outside_of_the_sample(self, tree):
        numbers = range(100)
        files = {f"{'ab'[i % 4 > 1]}/{i:03}.png": 1 for i in numbers} | {"b/097.png": 2}
        files |= {"a/097.png": 1}
        path = tree({**files, "t.csv": written(labels={f"{i:03}": i % 2 for i in numbers})})
        assert "lists 097, which may be a/097.png or b/097.png" in refusal(path / "t.csv")

    def test_two_photos_of_one_name(self, beside):
        others = {f"old/{name}.png": 9 for name in LABELS}
        message = refusal(beside("new/", **others) / "labels.csv")
        assert "lists a1, which may be new/a1.png or old/a1.png; write the names" in message

    def test_two_columns_of_photos(self, beside):
        text = "left,right,label\na1,b2,x\nc3,d4,y"
        message = refusal(beside(text=text))
        assert "names photos in the columns left and right; rename one of them to file" in message

    def test_several_columns_of_labels(self, beside):
        text = "id,breed,color\na1,pug,x\nb2,pug,y\nc3,beagle,x"
        message = refusal(beside(text=text), task="classification")
        assert "needs the columns file and label, but its first line has id, breed" in message

    def test_no_photos(self, tree):
        message = refusal(tree({"x.png": 1, "labels.csv": written()}))
        assert "its first line has id, breed; rename its columns" in message


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC")])
def test_accents_may_be_written_in_two_ways(tree, pack, forms):
    listed, stored = (
        [unicodedata.normalize(each, f"caf\u00e9{n}.png") for n in (0, 1)] for each in forms
    )
    table = f"file,label\n{listed[0]},cat\n{listed[1]},dog\n"
    path = tree({"labels.csv": table, **{name: number for number, name in enumerate(stored)}})
    for each in (path / "labels.csv", path, pack(path)):
        assert set(load_splits(each, val_fraction=0).train.names) == {*stored}
