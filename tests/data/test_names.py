"""Packed names and examples are those that were put in, and take little memory."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.data.examples import Example, Examples, Repeated
from pocketune.data.names import Names

ANY = st.lists(st.text(st.characters(codec=None), max_size=12))


@given(ANY)
def test_names_come_back_as_they_were(names: list[str]) -> None:
    packed = Names(iter(names))
    assert list(packed) == names == [packed[i] for i in range(len(names))]
    assert packed == names
    assert packed == tuple(names)


@given(ANY, st.data())
def test_taken_names_are_those_of_a_list(names: list[str], data: st.DataObject) -> None:
    some = st.lists(st.integers(0, max(0, len(names) - 1)), max_size=5 if names else 0)
    first, packed = np.array(data.draw(some), np.int64), Names(names)
    taken = packed.take(first)
    assert list(taken) == [names[i] for i in first]
    again = np.arange(len(taken))[::-1]
    assert list(taken.take(again)) == list(taken)[::-1]
    assert list(packed[1:4]) == names[1:4]


def test_other_sequences_are_not_equal() -> None:
    assert Names("ab") != ["a"]
    assert Names("ab") != ["a", "c"]
    assert Names("a") != "a"


def test_names_longer_than_what_one_byte_counts() -> None:
    names = [f"{'deep/' * 80}{i}.jpg" for i in range(40)]
    assert list(Names(names)) == names


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(IndexError):
        Names("ab")[2]
    assert Names("ab")[-1] == "b"


@given(ANY, st.text(max_size=2))
def test_a_name_is_found_among_sorted_ones(names: list[str], other: str) -> None:
    ordered = sorted(set(names))
    packed = Names(ordered)
    assert packed.is_ascending
    assert [packed.find(name) for name in ordered] == list(range(len(ordered)))
    assert other in ordered or packed.find(other) is None


def test_names_that_do_not_ascend() -> None:
    assert not Names("aab").is_ascending
    assert not Names("ba").is_ascending


def test_names_of_100_000_photos_take_one_megabyte() -> None:
    packed = Names(f"class_{i // 10_000:02d}/IMG_{i:06d}.jpg" for i in range(100_000))
    assert sys.getsizeof(packed._packed) + packed._blocks.nbytes < 1_000_000


def test_folders_are_numbered_as_they_come() -> None:
    folders, numbers = Names(["b/1", "a/x/2", "3", "b/4"]).folders()
    assert folders == ["b", "a/x", ""]
    assert numbers.tolist() == [0, 1, 2, 0]


@given(
    st.lists(
        st.builds(
            Example, st.text("ab/"), st.sampled_from("xyz"), st.sampled_from(["train", "val"])
        )
    )
)
def test_examples_come_back_and_are_sorted_as_tuples_are(examples: list[Example]) -> None:
    packed = Examples(examples)
    assert packed == examples == [packed[i] for i in range(len(examples))]
    assert packed.sorted() == sorted(examples)
    assert packed.of_parts(["val"]) == [example for example in examples if example.part == "val"]


def test_a_value_that_was_taken_away_is_not_distinct() -> None:
    values = Repeated.of("aabca")
    assert values.distinct() == ["a", "b", "c"]
    assert values.take(np.array([0, 3])).distinct() == ["a", "c"]
    assert list(values[1:3]) == ["a", "b"]
