"""Which files are examples, by their names or by a table's text alone."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.data.layouts import (
    Example,
    in_class_folders,
    in_use,
    is_table,
    read_table,
    wrapper,
)
from pocketune.errors import PocketuneError
from pocketune.tasks import Attributes, Classification

BOTH = (Classification, Attributes)


class TestFolders:
    @pytest.mark.parametrize(
        ("names", "examples"),
        [
            (["a/1", "b/2"], [("a/1", "a", None), ("b/2", "b", None)]),
            (["a/x/y/1", "b/2"], [("a/x/y/1", "a", None), ("b/2", "b", None)]),
            (["root/a/1", "root/b/2"], [("root/a/1", "a", None), ("root/b/2", "b", None)]),
            (["TRAIN/a/1", "Val/a/2"], [("TRAIN/a/1", "a", "train"), ("Val/a/2", "a", "val")]),
            (["Training/a/1", "Testing/a/2"], [("Training/a/1", "a", "train"),
                                               ("Testing/a/2", "a", "test")]),
            (["training/a/1", "valid/a/2"], [("training/a/1", "a", "train"),
                                             ("valid/a/2", "a", "val")]),
            (["val/1", "test/2"], [("val/1", "val", None), ("test/2", "test", None)]),
            (["train/1", "cat/2"], [("train/1", "train", None), ("cat/2", "cat", None)]),
            (["r/train/a/1", "r/test/a/2"], [("r/train/a/1", "a", "train"),
                                             ("r/test/a/2", "a", "test")]),
        ],
    )  # fmt: skip
    def test_the_class_is_the_first_folder_below_the_part(self, names, examples) -> None:
        assert in_class_folders(names) == ([Example(*each) for each in examples], [])

    def test_what_lies_in_no_class_or_no_part_is_outside(self) -> None:
        examples, outside = in_class_folders(
            ["train/a/1", "val/a/2", "train/loose", "other/b/3", "4"]
        )
        assert [example.name for example in examples] == ["train/a/1", "val/a/2"]
        assert outside == ["train/loose", "other/b/3", "4"]

    def test_nothing(self) -> None:
        assert in_class_folders([]) == ([], [])

    @given(
        st.lists(
            st.text(st.sampled_from("ab/é"), min_size=1, max_size=6).filter(
                lambda name: "//" not in name and name.strip("/") == name
            ),
            unique=True,
        )
    )
    def test_every_file_is_an_example_or_outside(self, names: list[str]) -> None:
        examples, outside = in_class_folders(names)
        assert sorted([*(example.name for example in examples), *outside]) == sorted(names)
        assert all(example.label for example in examples)


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (["r/a/1", "r/b/2"], "r/"),
        (["r/s/a/1", "r/s/b/2"], "r/s/"),
        (["a/1", "b/2"], ""),
        (["cats/1", "cats/2"], ""),  # the only class
        (["r/a/1", "r/2"], "r/"),
        (["r/cats/1", "r/cats/2"], "r/"),
        ([], ""),
    ],
)
def test_the_folder_around_everything(names: list[str], prefix: str) -> None:
    assert wrapper(names) == prefix


def test_the_parts_that_are_in_use() -> None:
    train, val, test = (Example(part, "a", part) for part in ("train", "val", "test"))
    undivided = [Example("1", "a")]
    for examples, hold_out, validate in (
        ([train, val, test], "train val", "train val"),
        ([train, test], "train", "train test"),
        ([train, val], "train val", "train val"),
        ([test], "", "test"),
    ):
        assert [each.part for each in in_use(iter(examples))] == hold_out.split()
        assert [each.part for each in in_use(examples, "validate")] == validate.split()
        only = [each for each in examples if each.part == "test"]
        assert in_use(examples, "only") == only
    assert in_use(undivided) == in_use(undivided, "validate") == undivided
    assert in_use(undivided, "only") == []


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("labels.csv", True),
        ("LABELS.CSV", True),
        ("labels.tsv", True),
        ("a/list_attr_celeba.txt", True),
        ("my_list_attr_celeba.txt", False),
        ("labels.txt", False),
        ("csv", False),
    ],
)
def test_a_table_is_known_by_its_name(name: str, table: bool) -> None:
    assert is_table(name) == table


def read(text: str, *tasks, name: str = "t.csv"):
    return read_table(text.encode(), name, tasks or BOTH)


class TestTable:
    def test_classes_and_attributes(self) -> None:
        assert read("file,label\na.png,cat").task is Classification
        table = read("file,young,bald\na.png,1,0")
        assert (table.task, table.titles) == (Attributes, ("young", "bald"))
        assert table.examples == [Example("a.png", b"\1\0")]

    def test_the_first_task_that_knows_the_columns_reads_them(self) -> None:
        text = "file,label,young\na.png,cat,1"
        assert read(text).examples == [Example("a.png", "cat")]
        with pytest.raises(PocketuneError, match="needs the columns file and a column for each"):
            read(text, Attributes)

    @pytest.mark.parametrize(
        ("titles", "remedy"),
        [
            ("photo,species", "rename its columns"),
            ("file,species", "rename its columns"),
            ("file,young,bald", "use a kit for these labels"),
            ("image,mask", "use a kit for masks"),
        ],
    )
    def test_other_columns_are_renamed_or_need_another_kit(self, titles: str, remedy: str) -> None:
        with pytest.raises(PocketuneError) as refused:
            read(f"{titles}\na.png,cat,1", Classification)
        wanted = "t.csv needs the columns file and label, but its first line has "
        wanted += f"{titles.replace(',', ', ')}; {remedy}"
        assert str(refused.value) == wanted

    def test_classes_need_a_kit_for_classes(self) -> None:
        for titles in ("file,label", "file,class,split"):
            with pytest.raises(PocketuneError, match="; use a kit for classes"):
                read(f"{titles}\na.png,cat,train", Attributes)

    @pytest.mark.parametrize(
        "title", ["file", "filename", "File_Name", "File Name", "PATH", "image", "image_id"]
    )
    def test_titles_of_the_files(self, title: str) -> None:
        assert read(f"label,{title}\ncat,a.png").examples == [Example("a.png", "cat")]

    def test_without_titles_the_columns_are_file_and_label(self) -> None:
        assert read("a.png,cat\nb.png,dog").examples == [
            Example("a.png", "cat"),
            Example("b.png", "dog"),
        ]

    def test_lines_without_titles_need_a_file_name(self) -> None:
        with pytest.raises(PocketuneError, match="its first line has a, cat"):
            read("a,cat\nb.png,dog")

    def test_paths_are_written_in_one_way(self) -> None:
        names = ["./a.png", "x\\b.png", "x/../c.png"]
        table = read("file,label\n" + "".join(f"{name},cat\n" for name in names))
        assert [example.name for example in table.examples] == ["a.png", "x/b.png", "c.png"]

    def test_parts(self) -> None:
        table = read("file,label,split\na.png,cat,Train\nb.png,cat,TEST\nc.png,cat,val")
        assert [(e.name, e.part) for e in table.examples] == [("a.png", "train"), ("c.png", "val")]

    def test_an_error_names_the_line_of_the_file_and_not_of_the_table(self) -> None:
        with pytest.raises(PocketuneError, match="no label in line 5"):
            read('file,label\n\na.png,"two\nlines"\nb.png,')

    def test_separators_inside_of_quotes(self) -> None:
        table = read('file;label\n"a;1.png";"big; cat"')
        assert table.examples == [Example("a;1.png", "big; cat")]

    @given(
        st.lists(
            st.tuples(
                st.text(st.sampled_from('a1é "'), min_size=1).map(str.strip).filter(bool),
                st.text(st.sampled_from('b,;\t"é '), min_size=1).map(str.strip).filter(bool),
            ),
            min_size=1,
            unique_by=lambda row: row[0],
        ),
        st.sampled_from(",;\t"),
    )
    def test_what_a_writer_of_csv_writes_is_read(self, rows, separator: str) -> None:
        text = io.StringIO()
        csv.writer(text, delimiter=separator).writerows([["file", "label"], *rows])
        assert [(e.name, e.label) for e in read(text.getvalue()).examples] == rows

    def test_a_line_twice_counts_once_and_a_contradiction_is_refused(self) -> None:
        assert len(read("file,label\na.png,cat\n./a.png,cat").examples) == 1
        with pytest.raises(PocketuneError, match=r"lists a\.png twice"):
            read("file,label\na.png,cat\na.png,dog")

    def test_titles_alone(self) -> None:
        assert read("file,label\n").examples == []

    @pytest.mark.parametrize("text", ["", "\n\n", " , \n"])
    def test_an_empty_table_is_refused(self, text: str) -> None:
        with pytest.raises(PocketuneError, match=r"t\.csv is empty"):
            read(text)

    def test_celebas_list(self) -> None:
        text = "2\nYoung Bald\n1.jpg  1 -1\n2.jpg -1 -1\n"
        table = read(text, name="x/list_attr_celeba.txt")
        assert table.titles == ("Young", "Bald")
        assert table.examples == [Example("1.jpg", b"\1\0"), Example("2.jpg", b"\0\0")]
