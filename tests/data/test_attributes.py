"""Tables of attributes: their forms, their division, and their errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.data import Loader, load_splits
from pocketune.data.labels.rows import CELEBA
from pocketune.data.labels.tables import read_table
from pocketune.tasks import Attributes, Classification

from .refusals import refusal

ROWS = [(f"img/{i}.png", i % 2, i // 2 % 2, i // 4 % 2) for i in range(8)]
NAMES = ("Red Hair", "smiles", "Jünger")


@pytest.fixture
def images(tree):
    return tree({name: seed for seed, (name, *_) in enumerate(ROWS)})


def write(folder, rows=ROWS, *, titles=("file", *NAMES), separator=",", absent="0"):
    lines = [titles, *([absent if cell == 0 else str(cell) for cell in row] for row in rows)]
    (folder / "attributes.csv").write_text("\n".join(map(separator.join, lines)), encoding="utf-8")
    return folder / "attributes.csv"


def by_name(splits) -> dict[str, list[int]]:
    return {
        name: labels.tolist()
        for part in (splits.train, splits.val)
        for name, labels in zip(part.names, part.labels, strict=True)
    }


EXPECTED = {name: labels for name, *labels in ROWS}


class TestLayouts:
    @pytest.mark.parametrize("separator", [",", ";", "\t"])
    @pytest.mark.parametrize("absent", ["0", "-1"])
    def test_dialects(self, images, separator, absent):
        splits = load_splits(write(images, separator=separator, absent=absent))
        assert splits.classes == NAMES
        assert isinstance(splits.train.task, Attributes)
        assert splits.train.labels.dtype == np.uint8
        assert by_name(splits) == EXPECTED

    def test_found_in_a_folder_and_a_zip(self, images, pack):
        write(images)
        assert by_name(load_splits(images)) == EXPECTED
        assert by_name(load_splits(pack(images))) == EXPECTED

    def test_celebas_own_list(self, images):
        lines = ["8", " ".join(name.replace(" ", "_") for name in NAMES) + " "]
        for name, *labels in ROWS:
            lines.append(name[4:] + "".join(f" {1 if label else -1:2}" for label in labels))
        (images / "img" / CELEBA).write_text("\n".join(lines) + "\n", encoding="utf-8")
        splits = load_splits(images / "img")
        assert splits.classes == ("Red_Hair", "smiles", "Jünger")
        assert by_name(splits) == {name[4:]: labels for name, labels in EXPECTED.items()}
        assert by_name(load_splits(images / "img" / CELEBA)) == by_name(splits)

    def test_celebas_list_beside_the_folder_of_photos_and_other_lists(self, images):
        lines = ["image_id,smiles", *(f"{name[4:]},{a}" for name, a, *_ in ROWS)]
        (images / "list_attr_celeba.csv").write_text("\n".join(lines))
        (images / "list_eval_partition.csv").write_text("image_id,partition\n0.png,0")
        labels = by_name(load_splits(images))
        assert labels == {name: row[:1] for name, row in EXPECTED.items()}

    def test_divided_by_a_column(self, images):
        rows = [(*row, "val" if i < 3 else "train") for i, row in enumerate(ROWS)]
        splits = load_splits(write(images, rows, titles=("file", *NAMES, "Split")))
        assert (len(splits.train), len(splits.val), splits.classes) == (5, 3, NAMES)

    def test_a_label_column_makes_the_others_unimportant(self, images):
        rows = [(name, f"class {a}", b) for name, a, b, _ in ROWS]
        splits = load_splits(write(images, rows, titles=("file", "label", "width")))
        assert isinstance(splits.train.task, Classification)

    def test_attributes_of_a_trained_network_in_its_order(self, images):
        splits = load_splits(write(images), classes=("Jünger", "Red Hair"))
        assert by_name(splits) == {name: [c, a] for name, (a, _, c) in EXPECTED.items()}

    @given(
        labels=st.integers(1, 5).flatmap(
            lambda width: st.lists(
                st.lists(st.sampled_from([0, 1]), min_size=width, max_size=width),
                min_size=1,
                max_size=9,
            )
        ),
        absent=st.sampled_from(["0", "-1"]),
    )
    def test_what_is_written_is_read(self, labels, absent):
        titles = [f"a{i}" for i in range(len(labels[0]))]
        lines = [",".join(["path", *titles])]
        for number, row in enumerate(labels):
            lines.append(",".join([f"{number}.jpg", *("1" if x else absent for x in row)]))
        table = read_table("\n".join(lines).encode(), "t.csv", [Attributes])
        assert table.titles == tuple(titles)
        assert [list(example.label) for example in table.examples] == labels


class TestDivision:
    def test_seeded(self, images):
        table = write(images)
        first, again, other = (
            load_splits(table, val_fraction=0.25, seed=seed).val.names for seed in (1, 1, 2)
        )
        assert len(first) == 2
        assert first == again != other

    def test_all_or_none_validate(self, images):
        table = write(images)
        assert len(load_splits(table, val_fraction=1).train) == 0
        assert len(load_splits(table, val_fraction=0).val) == 0

    def test_batches_bring_their_attributes(self, images):
        dataset = load_splits(write(images), val_fraction=0).train
        for batch in Loader(dataset, size=8, batch=4, train=True).epoch(0):
            assert batch.labels.shape == (4, 3)
            for name, row in zip(batch.names, batch.labels, strict=True):
                assert row.tolist() == EXPECTED[name]


class TestBadInput:
    @pytest.mark.parametrize("value", ["2", "maybe", "0.5", "1.5", "-2"])
    def test_other_values(self, images, value):
        rows = [*ROWS[:2], (ROWS[2][0], 1, value, 0)]
        message = refusal(write(images, rows))
        assert f"{value!r} for 'smiles' in line 4" in message

    def test_more_values_than_titles(self, images):
        said = refusal(write(images, ["a.png,1,0,1"]))
        assert "more values than titles in line 2" in said

    @pytest.mark.parametrize("row", [("img/1.png", 1), ("img/1.png", 1, "", 0)])
    def test_no_value(self, images, row):
        assert "no value for 'smiles' in line 2" in refusal(write(images, [row]))

    def test_both_ways_to_say_absent(self, images):
        message = refusal(write(images, [ROWS[0], (ROWS[1][0], 1, -1, 1)]))
        assert "both 0 and -1" in message

    @pytest.mark.parametrize("titles", [("file",), ("file", "split")])
    def test_no_attribute(self, images, titles):
        message = refusal(write(images, [("img/1.png", "train")], titles=titles))
        assert "a column for each attribute" in message

    def test_no_file_column(self, images):
        rows = [(f"no {name}", *labels) for name, *labels in ROWS]
        message = refusal(write(images, rows, titles=("photo", *NAMES)))
        assert "needs the columns file" in message

    def test_a_column_of_another_title_that_names_the_files(self, images):
        assert by_name(load_splits(write(images, titles=("photo", *NAMES)))) == EXPECTED

    def test_two_columns_of_one_name(self, images):
        assert "two columns 'a'" in refusal(write(images, titles=("file", "a", "b", "a")))

    def test_a_column_without_a_title(self, images):
        message = refusal(write(images, titles=("file", "a", "", "b")))
        assert "no title over column 3" in message

    def test_a_file_twice(self, images):
        same = load_splits(write(images, [*ROWS, ROWS[0]]))
        assert by_name(same) == EXPECTED
        name, *labels = ROWS[0]
        message = refusal(write(images, [*ROWS, (name, *(1 - label for label in labels))]))
        assert f"lists {name} twice" in message

    def test_images_of_equal_attributes_are_refused(self, images):
        rows = [(name, 1, 0, 1) for name, *_ in ROWS]
        assert "all have the same attributes" in refusal(write(images, rows))

    def test_an_attribute_that_was_trained_is_missing(self, images):
        message = refusal(write(images), classes=("smiles", "bald"))
        assert "no column for the attribute 'bald'" in message
        assert "Red Hair, smiles" in message

    def test_attributes_where_classes_are_needed(self, images):
        message = refusal(write(images), task="classification")
        assert "needs the columns file and label, but its first line has file, " in message

    def test_classes_where_attributes_are_needed(self, photos):
        folder = photos(cats=3, dogs=3)
        message = refusal(folder, task="attributes")
        assert "a class by its folder, but attributes are needed: give a CSV of file and" in message

    def test_a_task_that_does_not_exist(self, images):
        assert "unknown task 'guessing'" in refusal(images, task="guessing")

    @pytest.mark.parametrize("text", ["", "202599\n", "names first\n3\n1.png 1\n", "1 2\na b\n"])
    def test_not_celebas_list(self, tree, text):
        folder = tree({"1.png": 1, CELEBA: text})
        assert "not CelebA's list" in refusal(folder / CELEBA)
