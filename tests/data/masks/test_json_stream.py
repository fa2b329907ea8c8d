"""JSON objects read element by element, against the whole."""

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketune.data.masks import json_stream
from pocketune.data.masks.json_stream import members

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@pytest.fixture
def few_at_once(monkeypatch):
    monkeypatch.setattr(json_stream, "_AT_ONCE", 1)


@pytest.mark.usefixtures("few_at_once")
def test_any_object():
    @settings(max_examples=40)
    @given(st.dictionaries(st.text(max_size=3), values, max_size=3), st.sampled_from([None, 1]))
    def check(whole, indent):
        found = list(members(io.StringIO(json.dumps(whole, indent=indent))))
        expected = []
        for name, value in whole.items():
            each = value if isinstance(value, list) else [value]
            expected += [(name, element) for element in each]
        assert found == expected

    check()


@pytest.mark.usefixtures("few_at_once")
@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a"', '{"a":', '{"a":[1', '{"a":[1,', '{"a":1}}', '{"a":1 "b":2}']
)
def test_what_is_no_object(text):
    with pytest.raises(ValueError, match=r"there is no|Expecting|Unterminated"):
        list(members(io.StringIO(text)))


@pytest.mark.parametrize("count", [1, 7, 1 << 16])
@pytest.mark.parametrize("left_out", ['"', "\\", 'x"\\"', 3, [4], None])
def test_a_member_that_is_left_out(monkeypatch, count, left_out):
    monkeypatch.setattr(json_stream, "_AT_ONCE", count)
    text = io.StringIO(json.dumps({"a": [1], "long": left_out, "b": 2}))
    assert list(members(text, without="long")) == [("a", 1), ("b", 2)]


@pytest.mark.usefixtures("few_at_once")
@pytest.mark.parametrize("text", ['{"a": "x', '{"a": "x\\', '{"a": "x\\"'])
def test_a_text_without_an_end_that_is_left_out(text):
    with pytest.raises(ValueError, match="Unterminated"):
        list(members(io.StringIO(text), without="a"))
