"""What a table's text lists: a CSV, JSON lines, and CelebA's list."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.data.examples import Example
from pocketune.data.labels.rows import is_table
from pocketune.data.labels.tables import read_table
from pocketune.errors import PocketuneError
from pocketune.tasks import Attributes, Classification

BOTH = (Classification, Attributes)


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("labels.csv", True),
        ("LABELS.CSV", True),
        ("labels.tsv", True),
        ("metadata.jsonl", True),
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

    @pytest.mark.parametrize("tasks", [BOTH, (Classification,)])
    def test_a_single_other_column_is_the_label(self, tasks) -> None:
        table = read("image_id,Species,split\na.png,cat,train\nb.png,1,val", *tasks)
        assert table.task is Classification
        assert [(e.name, e.label) for e in table.examples] == [("a.png", "cat"), ("b.png", "1")]

    def test_a_single_column_of_zeros_and_ones_is_an_attribute(self) -> None:
        text = "id,file,split\n1,a.png,train\n0,b.png,train"
        assert read(text).titles == ("id",)
        assert read(f"{text}\n2,c.png,train").task is Classification
        assert read(text, Classification).examples[1].label == "0"

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
        found = [(e.name, e.part) for e in table.examples]
        assert found == [("a.png", "train"), ("b.png", "test"), ("c.png", "val")]

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

    def test_a_space_before_quotes_is_none_of_the_cell(self) -> None:
        table = read('file, label\na.png, "big, gray"\n')
        assert table.examples == [Example("a.png", "big, gray")]

    def test_a_photo_to_train_on_is_not_one_to_test(self) -> None:
        with pytest.raises(PocketuneError, match=r"lists a\.png twice, with different labels or"):
            read("file,label,split\na.png,cat,train\na.png,cat,test")

    def test_excel_may_name_the_separator(self) -> None:
        table = read("sep=;\nfile;label\na.png;cat, gray\n")
        assert table.examples == [Example("a.png", "cat, gray")]
        with pytest.raises(PocketuneError, match="no label in line 3"):
            read("sep=;\nfile;label\na.png;\n")

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


class TestJsonLines:
    def test_members_are_columns(self) -> None:
        text = (
            '{"file_name": "a.png", "label": 3, "box": [1]}\n\n{"label": "x", "file_name": "b.png"}'
        )
        table = read(text, name="metadata.jsonl")
        assert table.examples == [Example("a.png", "3"), Example("b.png", "x")]

    def test_true_and_false_are_attributes(self) -> None:
        text = '{"file_name": "a.png", "hat": true, "old": false}'
        assert read(text, name="t.JSONL").examples == [Example("a.png", b"\1\0")]

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("[1]", r"t\.jsonl does not have a JSON object on each line \(line 1 is not an object"),
            ('{"file_name": "a.png", "label": "x"}\n{', r"Expecting property name"),
            ("[" * 99_999, "does not have a JSON object on each line"),
            ('{"file_name": "a.png", "label": {"a": 1}}', "no text or number as label in line 1"),
            ('{"file_name": "a.png", "label": null}', "no text or number as label in line 1"),
            (
                '{"file_name": "a.png", "tags": ["a", "b"]}',
                "no text or number as value for 'tags' in line 1; .* a member for each label",
            ),
            ("{}", r"t\.jsonl is empty"),
        ],
    )
    def test_damage(self, text: str, reason: str) -> None:
        with pytest.raises(PocketuneError, match=reason):
            read(text, name="t.jsonl")

    def test_other_bytes(self) -> None:
        with pytest.raises(PocketuneError, match="does not have a JSON object on each line"):
            read_table(b"\xff\xfe", "t.jsonl", BOTH)
