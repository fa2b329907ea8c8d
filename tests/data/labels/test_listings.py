"""Which of several tables list the photos of a folder."""

from functools import partial

import pytest

from pocketune.data import has_test, load_splits
from pocketune.data.load import unlabeled_splits

from .. import refusals
from ..test_load import pairs

refusal = partial(refusals.refusal, val_fraction=0)


def lines(names, kind="jsonl"):
    """A table of these photos, of two classes."""
    rows = [(name, "ab"[number % 2]) for number, name in enumerate(names)]
    if kind == "csv":
        return "\n".join(["file_name,label", *map(",".join, rows)])
    return "\n".join(f'{{"file_name": "{name}", "label": "{label}"}}' for name, label in rows)


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
class TestOfHuggingFace:
    def test_beside_the_photos(self, tree, pack, kind):
        names = [f"{i}.png" for i in range(4)]
        path = tree({**{n: i for i, n in enumerate(names)}, f"metadata.{kind}": lines(names, kind)})
        for each in (path, path / f"metadata.{kind}", pack(path)):
            assert pairs(load_splits(each, val_fraction=0).train)["2.png"] == "a"

    def test_within_parts(self, tree, pack, kind):
        files: dict[str, int | str] = {}
        for part in ("train", "validation", "test"):
            names = [f"{i}.png" for i in range(4)]
            files |= {f"{part}/{name}": i for i, name in enumerate(names)}
            files[f"{part}/metadata.{kind}"] = lines(names, kind)
        path = tree(files)
        for each in (path, "", "set/"):
            place = pack(path, each) if isinstance(each, str) else each
            splits = load_splits(place)
            assert len(splits.train) == len(splits.val) == 4
            assert all("train/" in name for name in splits.train.names)
            assert all("validation/" in name for name in splits.val.names)
            assert has_test(place)
            assert all("test/" in n for n in load_splits(place, test="only").val.names)

    @pytest.mark.parametrize("part", ["train", "test"])
    def test_a_single_part_is_not_one(self, tree, kind, part):
        names = [f"{i}.png" for i in range(4)]
        files = {f"{part}/{n}": i for i, n in enumerate(names)}
        path = tree({**files, f"{part}/metadata.{kind}": lines(names, kind)})
        assert len(load_splits(path, val_fraction=0.5).val) == 2


class TestOfKaggle:
    def files(self, *tables):
        photos = {f"{part}/{part}{i}.png": i for part in ("train", "val") for i in range(4)}
        return {**photos, **dict(tables)}

    def test_labels_beside_a_submission(self, tree):
        for name in ("labels.csv", "train.csv", "train_labels.csv"):
            rows = "id,breed\n" + "\n".join(f"train{i},{'ab'[i % 2]}" for i in range(4))
            other = "id,a,b\nval0,0.5,0.5"
            path = tree(self.files((name, rows), ("sample_submission.csv", other)), name)
            assert len(load_splits(path, val_fraction=0).train) == 4

    def test_tables_of_parts_that_have_labels(self, tree):
        tables = [
            (f"{part}.csv", "id,x\n" + "\n".join(f"{part}{i},{'ab'[i % 2]}" for i in range(4)))
            for part in ("train", "val")
        ]
        splits = load_splits(tree(self.files(*tables, ("test.csv", "id\nval0"))))
        assert [len(splits.train), len(splits.val)] == [4, 4]

    def test_tables_of_other_names(self, tree):
        path = tree(self.files(("a.csv", "file,label"), ("b.csv", "file,label")))
        assert "has a.csv and b.csv, and either may list its photos" in refusal(path)

    def test_different_attributes(self, tree):
        photos = {f"{part}/{i}.png": i for part in ("train", "val") for i in range(2)}
        tables = {
            f"{p}/_classes.csv": f"filename,a,{p}\n0.png,1,0\n1.png,0,1" for p in ("train", "val")
        }
        message = refusal(tree({**photos, **tables}))
        assert "train/_classes.csv and val/_classes.csv have different columns" in message


class TestBesideResults:
    """The tables of an evaluation may lie beside the photos."""

    RESULTS = "class,images,correct\na,2,1\nb,2,2\n"

    def test_the_table_of_files_is_used(self, tree):
        names = [f"img/{i}.png" for i in range(4)]
        files = {**{name: i for i, name in enumerate(names)}, "per_class.csv": self.RESULTS}
        path = tree({**files, "animals.csv": lines(names, "csv")})
        assert pairs(load_splits(path, val_fraction=0).train)["img/2.png"] == "a"

    def test_two_tables_of_files_are_uncertain(self, tree):
        names = [f"img/{i}.png" for i in range(4)]
        files = {name: i for i, name in enumerate(names)}
        path = tree({**files, "one.csv": lines(names, "csv"), "two.csv": lines(names, "csv")})
        assert "one.csv and two.csv, and either may list its photos" in refusal(path)
        assert len(load_splits(path / "two.csv", val_fraction=0).train) == 4
        evaluated = load_splits(path, test="validate", classes=("img", "other"), val_fraction=1)
        assert len(evaluated.val) == 4  # of one class, beside results of any kind
        assert sum(map(len, unlabeled_splits(path))) == 4


@pytest.mark.parametrize("other", ["val", "test"])
def test_a_photo_in_the_tables_of_two_parts_is_refused(tree, other):
    path = tree(
        {"1.png": 1, "2.png": 2}
        | {f"{part}.csv": lines(["1.png", "2.png"], "csv") for part in ("train", other)}
    )
    first, second = sorted((f"{other}.csv", "train.csv"))
    assert f"{first} and {second} list 1.png twice, with different labels" in refusal(path)
