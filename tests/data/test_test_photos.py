"""Photos under `test`: seen by nobody who does not ask for them."""

import zipfile

import pytest

from pocketune.data import has_test, load_splits
from pocketune.errors import PocketuneError

DIVIDED = {
    f"{part}/{label}/{number}.png": 10 * place + number
    for place, part in enumerate(("train", "val", "test"))
    for label in ("cats", "dogs")
    for number in range(5)
}


def parts(names: tuple[str, ...]) -> set[str]:
    return {name.partition("/")[0] for name in names}


def test_held_out_photos_are_in_no_part(tree) -> None:
    folder = tree(DIVIDED)
    splits = load_splits(folder)
    assert (parts(splits.train.names), parts(splits.val.names)) == ({"train"}, {"val"})
    assert splits.skipped == ()
    only = load_splits(folder, classes=("dogs", "cats"), test="only")
    assert (len(only.train), parts(only.val.names), only.classes) == (0, {"test"}, ("dogs", "cats"))


def test_without_others_a_part_of_the_training_photos_validates(tree) -> None:
    folder = tree({name: seed for name, seed in DIVIDED.items() if not name.startswith("val")})
    assert parts(load_splits(folder, test="validate").val.names) == {"test"}
    splits = load_splits(folder, val_fraction=0.4)
    assert parts([*splits.train.names, *splits.val.names]) == {"train"}
    assert (len(splits.train), len(splits.val)) == (6, 4)


def test_a_table_may_have_test_photos(tree) -> None:
    rows = [f"{name},{name.split('/')[1]},{name.split('/')[0]}" for name in DIVIDED]
    folder = tree({**DIVIDED, "all.csv": "\n".join(["file,label,split", *rows])})
    assert has_test(folder / "all.csv")
    assert parts(load_splits(folder / "all.csv", test="only").val.names) == {"test"}
    assert parts(load_splits(folder / "all.csv").val.names) == {"val"}


def test_whether_there_are_any(tree, tmp_path) -> None:
    folder = tree(DIVIDED)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in DIVIDED:
            archive.write(folder / name, f"photos/{name}")
    assert has_test(folder) and has_test(tmp_path / "all.zip")
    plain = tree({"test/1.png": 1, "cats/1.png": 2}, root="plain")  # a class named test
    assert not has_test(plain)
    with pytest.raises(
        PocketuneError, match="or a table has test for them in a column named split"
    ):
        load_splits(plain, test="only")


def test_test_photos_alone_train_nothing(tree) -> None:
    rows = ["file,label,split", "1.png,cats,test", "2.png,dogs,test"]
    folder = tree({"1.png": 1, "2.png": 2, "all.csv": "\n".join(rows)})
    with pytest.raises(PocketuneError, match=r"all.csv has test photos alone; add some"):
        load_splits(folder / "all.csv")
