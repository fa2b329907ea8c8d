"""Folders, tables and archives give the same data sets, whatever their layout."""

import zipfile

import numpy as np
import pytest
from PIL import Image

from pocketune.data import Loader, load_splits, open_images, unlabeled_splits
from pocketune.errors import PocketuneError


def pairs(dataset) -> dict[str, str]:
    return {
        name: dataset.classes[label]
        for name, label in zip(dataset.names, dataset.labels, strict=True)
    }


class TestFolder:
    def test_class_folders(self, photos):
        splits = load_splits(photos(cats=10, dogs=5), val_fraction=0.2)
        assert splits.classes == splits.val.classes == ("cats", "dogs")
        assert (len(splits.train), len(splits.val)) == (12, 3)
        both = {**pairs(splits.train), **pairs(splits.val)}
        assert len(both) == 15
        assert all(name.startswith(label + "/") for name, label in both.items())
        assert splits.skipped == ()
        assert splits.train.labels.dtype == np.int64

    def test_same_seed_same_split(self, photos):
        folder = photos(cats=10, dogs=10)
        names = [load_splits(folder, seed=seed).val.names for seed in (1, 1, 2)]
        assert names[0] == names[1] != names[2]

    @pytest.mark.parametrize("val", ["val", "valid", "Validation"])
    def test_divided_by_the_user(self, tree, val):
        splits = load_splits(
            tree({"train/a/1.png": 1, "train/b/1.png": 2, f"{val}/a/2.png": 3, f"{val}/b/2.png": 4})
        )
        assert pairs(splits.train) == {"train/a/1.png": "a", "train/b/1.png": "b"}
        assert pairs(splits.val) == {f"{val}/a/2.png": "a", f"{val}/b/2.png": "b"}

    def test_test_is_not_used_next_to_val(self, tree):
        parts = ("train/a", "train/b", "val/a", "test/a", "test/b")
        splits = load_splits(tree({f"{part}/{i}.png": i for i, part in enumerate(parts)}))
        assert splits.val.names == ("val/a/2.png",)
        assert len(splits.train) == 2

    def test_train_alone_is_divided(self, tree):
        splits = load_splits(tree({f"train/{c}/{i}.png": i for c in "ab" for i in range(5)}))
        assert (len(splits.train), len(splits.val)) == (8, 2)

    def test_valid_may_be_a_class(self, photos):
        assert load_splits(photos(valid=2, invalid=2)).classes == ("invalid", "valid")

    def test_train_may_be_a_class(self, photos):
        assert load_splits(photos(car=2, plane=2, train=2)).classes == ("car", "plane", "train")

    def test_nested_folders_belong_to_their_class(self, tree):
        splits = load_splits(
            tree({"a/2023/may/1.png": 1, "a/2.png": 2, "b/1.png": 3, "b/x/2.png": 4})
        )
        assert splits.classes == ("a", "b")

    def test_numbers_are_ordered_as_numbers(self, tree):
        folder = tree({f"{c}/{i}.png": i for c in (10, 9, 100) for i in range(2)})
        assert load_splits(folder).classes == ("9", "10", "100")

    def test_hidden_files_do_not_count(self, photos, tree):
        photos(cats=2, dogs=2)
        systems = ("Thumbs.db", "dogs/desktop.ini", "@eaDir/cats/00.png", "__MACOSX/cats/00.png")
        folder = tree(dict.fromkeys((".DS_Store", "cats/._00.png", *systems), "x"))
        splits = load_splits(folder)
        assert splits.classes == ("cats", "dogs")
        assert splits.skipped == ()

    def test_images_outside_the_parts_are_listed(self, tree):
        parts = ("train/a", "train/b", "val/a", "val/b", "test/a")
        loose = ("train/9.png", "Tests/a/9.png", "9.png")
        names = [*(f"{part}/{i}.png" for part in parts for i in range(2)), *loose]
        splits = load_splits(tree({name: seed for seed, name in enumerate(names)}))
        reason = "it is outside the class folders of train and val"
        assert splits.skipped == tuple((name, reason) for name in sorted(loose))

    def test_runs_next_to_the_classes_do_not_count(self, photos, tree, pack):
        photos(cats=2, dogs=2)
        folder = tree({f"runs/1/{name}": "" for name in ("manifest.json", "step.onnx", "best.x")})
        for path in (folder, pack(folder)):
            assert load_splits(path).classes == ("cats", "dogs")
        assert len(open_images([folder])) == 4

    def test_images_outside_the_classes_are_listed(self, photos, tree):
        photos(cats=2, dogs=2)
        splits = load_splits(tree({"stray.png": 1, "README.txt": "hello"}))
        assert splits.skipped == (("stray.png", "it is outside the class folders"),)

    def test_links_are_followed_but_not_in_circles(self, photos, tree, tmp_path):
        folder = photos(cats=2, dogs=2)
        (folder / "cats" / "loop").symlink_to(folder)
        (folder / "birds").symlink_to(tree({"1.png": 5, "2.png": 6}, "elsewhere"))
        (folder / "cats" / "gone.png").symlink_to(tmp_path / "nowhere.png")
        splits = load_splits(folder, val_fraction=0)
        assert splits.classes == ("birds", "cats", "dogs")
        assert splits.skipped == (("cats/gone.png", "no such file"),)

    def test_a_link_into_a_hidden_folder_is_followed(self, photos, tree):
        folder = photos(cats=2)
        tree({".store/dogs/1.png": 5, ".store/dogs/2.png": 6})
        (folder / "dogs").symlink_to(folder / ".store" / "dogs")
        assert load_splits(folder).classes == ("cats", "dogs")

    def test_each_photo_counts_once_whatever_links_to_it(self, photos):
        folder = photos(cats=4, dogs=4)
        (folder / "cats" / "others").symlink_to(folder / "dogs")
        (folder / "dogs" / "others").symlink_to(folder / "cats")
        (folder / "animals").symlink_to(folder / "cats")
        (folder / "cats" / "out").symlink_to(folder.parent)
        splits = load_splits(folder)
        names = {**pairs(splits.train), **pairs(splits.val)}
        assert names == {f"{c}/{i:02}.png": c for c in ("cats", "dogs") for i in range(4)}

    @pytest.mark.parametrize("fraction", [0, 1])
    def test_one_side_only(self, photos, fraction):
        splits = load_splits(photos(cats=1, dogs=2), val_fraction=fraction)
        assert (len(splits.train), len(splits.val)) == (3 * (1 - fraction), 3 * fraction)

    def test_given_classes_set_the_order(self, photos):
        splits = load_splits(photos(cats=2), classes=("dogs", "cats"), val_fraction=1)
        assert splits.classes == ("dogs", "cats")
        assert splits.val.labels.tolist() == [1, 1]

    def test_names_in_many_scripts(self, tree):
        labels = ("猫", "Kätzchen", "emoji 🐈")
        splits = load_splits(
            tree({f"{label}/Füße {i}.png": i for label in labels for i in range(2)})
        )
        assert set(splits.classes) == set(labels)
        assert sum(len(batch.names) for batch in eval_batches(splits.val)) == 3

    def test_decomposed_accents_are_the_same_class(self, tree):
        folder = tree(
            {f"{label}/{i}.png": i for label in ("Ka\u0308tzchen", "b") for i in range(2)}
        )
        assert load_splits(folder, classes=("K\u00e4tzchen", "b")).classes == ("K\u00e4tzchen", "b")

    def test_very_long_names(self, tree):
        long = "x" * 240
        splits = load_splits(
            tree({f"{long}/{long}{i}.png": i for i in range(2)} | {"b/1.png": 8, "b/2.png": 9})
        )
        assert long in splits.classes


def eval_batches(dataset):
    return list(Loader(dataset, size=8, batch=4, train=False).epoch(0))


class TestTable:
    rows = (("img/1.png", "cat"), ("img/2.png", "cat"), ("img/3.png", "dog"), ("img/4.png", "dog"))

    @pytest.fixture
    def images(self, tree):
        return tree({name: seed for seed, (name, _) in enumerate(self.rows)})

    @pytest.mark.parametrize("separator", [",", ";", "\t"])
    @pytest.mark.parametrize("header", [None, ("file", "label"), ("Filename", "CLASS")])
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
    def test_dialects(self, images, separator, header, encoding):
        lines = [*([header] if header else []), *self.rows]
        text = "\r\n".join(separator.join(line) for line in lines) + "\r\n\r\n"
        (images / "labels.csv").write_bytes(text.encode(encoding))
        splits = load_splits(images / "labels.csv", val_fraction=0.5)
        assert {**pairs(splits.train), **pairs(splits.val)} == dict(self.rows)
        assert eval_batches(splits.val)

    def test_found_in_the_folder(self, images):
        (images / "labels.csv").write_text("\n".join(map(",".join, self.rows)))
        assert load_splits(images).classes == ("cat", "dog")

    def test_other_columns_and_order(self, images):
        lines = ["width,label,file", *(f"9,{label},{name}" for name, label in self.rows)]
        (images / "labels.csv").write_text("\n".join(lines))
        assert load_splits(images).classes == ("cat", "dog")

    def test_split_column(self, images):
        parts = ("train", "VAL", "train", "test")
        lines = ["file,label,split"]
        lines += [
            f"{name},{label},{part}" for (name, label), part in zip(self.rows, parts, strict=True)
        ]
        (images / "labels.csv").write_text("\n".join(lines))
        splits = load_splits(images)
        assert splits.train.names == ("img/1.png", "img/3.png")
        assert splits.val.names == ("img/2.png",)

    def test_other_ways_to_name_a_file(self, images):
        names = [str(images / "img/1.png"), "img\\2.png", "./img/3.png", "img/../img/4.png"]
        lines = [f"{name},{label}" for name, (_, label) in zip(names, self.rows, strict=True)]
        (images / "labels.csv").write_text("\n".join(lines))
        splits = load_splits(images, val_fraction=1)
        assert len(splits.val) == 4
        assert sum(len(batch.names) for batch in eval_batches(splits.val)) == 4

    def test_missing_files_are_listed(self, images):
        rows = [*self.rows, ("img/gone.png", "dog")]
        (images / "labels.csv").write_text("\n".join(map(",".join, rows)))
        assert load_splits(images).skipped == (("img/gone.png", "no such file"),)

    def test_repeated_lines_count_once(self, images):
        (images / "labels.csv").write_text("\n".join(map(",".join, [*self.rows, self.rows[0]])))
        assert len(load_splits(images, val_fraction=1).val) == 4


class TestZip:
    @pytest.mark.parametrize("prefix", ["", "photos/", "a/b/"])
    @pytest.mark.parametrize("method", [0, 8])
    def test_same_as_the_folder(self, photos, pack, prefix, method):
        folder = photos(cats=6, dogs=5)
        from_folder, from_zip = load_splits(folder), load_splits(pack(folder, prefix, method))
        assert from_zip.classes == from_folder.classes
        for one, other in ((from_zip.train, from_folder.train), (from_zip.val, from_folder.val)):
            assert one.names == tuple(prefix + name for name in other.names)
            np.testing.assert_array_equal(one.labels, other.labels)
            assert [one.read(i) for i in range(len(one))] == [
                other.read(i) for i in range(len(other))
            ]

    def test_packed_with_backslashes(self, photos, tmp_path):
        folder = photos(cats=2, dogs=2)
        with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
            archive.writestr("cats\\", "")
            for name in load_splits(folder, val_fraction=1).val.names:
                archive.writestr(name.replace("/", "\\"), (folder / name).read_bytes())
        splits = load_splits(tmp_path / "photos.zip", val_fraction=1)
        assert splits.classes == ("cats", "dogs")
        assert sum(len(batch.names) for batch in eval_batches(splits.val)) == 4

    @pytest.mark.parametrize("prefix", ["", "photos/"])
    def test_with_a_table(self, tree, pack, prefix):
        folder = tree({f"img/{i}.png": i for i in range(4)})
        (folder / "labels.csv").write_text("".join(f"img/{i}.png,{i % 2}\n" for i in range(4)))
        splits = load_splits(pack(folder, prefix), val_fraction=0.5)
        assert splits.classes == ("0", "1")
        assert eval_batches(splits.val)

    def test_class_folders_come_before_a_table(self, photos, pack):
        folder = photos(cats=2, dogs=2)
        (folder / "labels.csv").write_text("file,label\ncats/00.png,0\n")
        assert load_splits(pack(folder)).classes == ("cats", "dogs")


@pytest.mark.parametrize(
    ("archive", "classes", "train", "test"),
    [("oxford_flowers_12cls_224", 12, 719, 240), ("flower_photos_5cls_160", 5, 2000, 500)],
)
def test_real_photos(shared_data, archive, classes, train, test):
    path = shared_data / "classification" / f"{archive}.zip"
    assert len(load_splits(path, test="only").val) == test
    splits = load_splits(path)
    assert len(splits.classes) == classes
    assert len(splits.train) + len(splits.val) == train
    assert len(splits.val) == pytest.approx(train / 5, abs=classes)
    assert splits.skipped == ()
    batch = next(iter(Loader(splits.train, size=64, batch=8, train=True).epoch(0)))
    assert batch.images.shape == (8, 64, 64, 3)
    assert batch.images.std() > 20


@pytest.mark.parametrize("packed", [False, True])
def test_empty_folders_are_named(photos, pack, packed):
    folder = photos(cats=3, dogs=3)
    (folder / "owls").mkdir()
    (folder / "owls" / ".DS_Store").write_text("system")
    (folder / "dogs" / "old").mkdir()
    (folder / ".cache").mkdir()
    path = pack(folder) if packed else folder
    if packed:
        with zipfile.ZipFile(path, "a") as archive:
            for name in ("owls", "dogs", "dogs/old", ".cache"):
                archive.writestr(f"{name}/", "")
    reason = "an empty folder"
    assert load_splits(path).skipped == (("dogs/old", reason), ("owls", reason))
    assert load_splits(path).classes == ("cats", "dogs")


class TestWithoutLabels:
    @pytest.mark.parametrize(
        "folders",
        [["x/", "y/"], ["x/"], [""], ["images/", "masks/"]],
        ids=["classes", "one class", "flat", "binary masks"],
    )
    def test_any_photos_are_divided(self, tree, encoded, folders):
        mask = encoded(Image.fromarray(np.tile(np.uint8([[0, 255]]), (20, 12))))
        files = {f"{folder}{i}.png": i for folder in folders for i in range(10)}
        files = {name: mask if "masks/" in name else seed for name, seed in files.items()}
        train, val = unlabeled_splits(tree(files | {"notes.txt": "words"}))
        found = {name for part in (train, val) for name in part.names}
        assert found == {name for name in files if "masks/" not in name}
        assert len(val) == len(found) // 5
        assert (train.task, val.task) == (None, None)

    def test_the_users_own_division_stays(self, tree):
        train, val = unlabeled_splits(
            tree({"train/a/1.png": 1, "val/a/2.png": 2, "test/a/3.png": 3})
        )
        assert (list(train.names), list(val.names)) == (["train/a/1.png"], ["val/a/2.png"])

    @pytest.mark.parametrize(
        ("images", "masks", "number"),
        [("images", "masks", 3), ("img", "annotations", 4)],
        ids=["one is missing", "other names"],
    )
    def test_masks_that_are_refused_are_no_photos(self, tree, images, masks, number):
        photos = {f"{images}/{i}.png": i for i in range(4)}
        with pytest.raises(PocketuneError, match="same name"):
            unlabeled_splits(tree(photos | {f"{masks}/{i}.png": i for i in range(number)}))

    def test_a_file_that_is_no_list_is_refused(self, tree):
        with pytest.raises(PocketuneError, match="neither a folder nor"):
            unlabeled_splits(tree({"1.png": 1}) / "1.png")
