"""Tensor files: replaced whole or not at all, readable by everyone, and refused when damaged."""

import contextlib
import errno
import hashlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pocketune.errors import PocketuneError
from pocketune.files import partial
from pocketune.kit.tensors import copy_tensors, read_tensors, write_tensors

TENSORS = {
    "weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "strided": np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2],
    "scalar": np.array(7, np.float32),
    "empty": np.zeros((0, 3), np.float32),
    "Übung/ë": np.ones(2, np.float32),
}


def write(path: Path, value: float = 1.0) -> None:
    write_tensors(path, {"w": np.full(1000, value, np.float32)}, kind="checkpoint", metadata={})


def value(path: Path) -> float:
    return float(read_tensors(path, kind="checkpoint")[0]["w"][0])


def test_round_trip(tmp_path: Path) -> None:
    metadata = {"loss": 0.1 + 0.2, "names": ["a", "ö", "\udc80"], "none": None}
    write_tensors(tmp_path / "f", TENSORS, kind="checkpoint", metadata=metadata)
    tensors, read = read_tensors(tmp_path / "f", kind="checkpoint")
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        np.testing.assert_array_equal(tensors[name], tensor)
        assert tensors[name].shape == tensor.shape
        assert tensors[name].dtype == np.float32
        assert tensors[name].flags.writeable
    assert {key: read[key] for key in metadata} == metadata


@settings(max_examples=30)
@given(
    tensors=st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda s: s != "__metadata__"),
        hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)),
        max_size=5,
    )
)
def test_any_safetensors_reader_reads_it(
    tensors: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / "f"
    write_tensors(path, tensors, kind="x", metadata={})
    read = safetensors.numpy.load_file(path)
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(read[name], tensor)


def test_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_tensors(tmp_path / name, TENSORS, kind="x", metadata={"k": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_codes_are_read_where_they_are_expected(tmp_path: Path) -> None:
    codes = {"a": np.arange(-3, 3, dtype=np.int8), "b": np.arange(7, dtype=np.uint8)}
    write_tensors(tmp_path / "f", codes, kind="x", metadata={})
    found, _ = read_tensors(tmp_path / "f", kind="x", codes=True)
    for name, values in codes.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)
    with pytest.raises(PocketuneError, match=r"its tensor a is I8 where F32 is expected"):
        read_tensors(tmp_path / "f", kind="x")


def test_only_float32(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="tensor w is float64, not float32"):
        write_tensors(tmp_path / "f", {"w": np.zeros(1)}, kind="x", metadata={})  # type: ignore[dict-item]
    assert not list(tmp_path.iterdir())


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_full_disk_leaves_the_file_before_intact(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.safetensors"
    write(path, 1.0)
    monkeypatch.setattr(*((os, name) if name == "fsync" else (Path, name)), full_disk)
    with pytest.raises(
        PocketuneError, match=r"cannot be written: No space left on device; make room; the f"
    ):
        write(path, 2.0)
    monkeypatch.undo()
    assert value(path) == 1.0
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_full_disk_without_a_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(PocketuneError, match=r"No space left on device; make room$"):
        write(tmp_path / "f")
    assert not list(tmp_path.iterdir())


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from pocketune.kit.tensors import write_tensors
from pocketune.errors import PocketuneError
path = Path(sys.argv[1])
write_tensors(path, {"w": np.ones(1000, np.float32)}, kind="checkpoint", metadata={})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_tensors(path, {"w": np.zeros(1_000_000, np.float32)}, kind="checkpoint", metadata={})
except PocketuneError as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="limits files on Unix only")
def test_a_file_that_cannot_grow_leaves_the_one_before_intact(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True
    )
    assert "cannot be written: File too large; the file that was there is unch" in done.stdout
    assert value(path) == 1.0
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match=r"cannot be written: No such file or directory"):
        write(tmp_path / "missing" / "f")


def test_left_over_temporary_file_is_replaced(tmp_path: Path) -> None:
    left = partial(tmp_path / "f")
    left.write_bytes(b"half")
    write(tmp_path / "f", 3.0)
    assert value(tmp_path / "f") == 3.0
    assert not left.exists()


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "last byte": lambda data: data[:-1],
    "half": lambda data: data[: len(data) // 2],
    "in the header": lambda data: data[:20],
    "in the length": lambda data: data[:5],
    "empty": lambda data: b"",
    "more": lambda data: data + b"\0",
    "long header": lambda data: b"\xff" * 8 + data[8:],
    "no json": lambda data: data[:8] + b"x" + data[9:],
    "text": lambda data: b"This is no tensor file, but a letter to a friend.",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "f"
    write(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(PocketuneError, match=r"f is damaged: "):
        read_tensors(path, kind="checkpoint")


@settings(max_examples=60)
@given(position=st.integers(0, 200), byte=st.integers(0, 255))
def test_a_changed_byte_never_ends_in_anything_but_our_error(
    position: int, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "f"
    write(path)
    data = bytearray(path.read_bytes())
    data[position] = byte
    path.write_bytes(data)
    with contextlib.suppress(PocketuneError):
        read_tensors(path, kind="checkpoint")


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="cannot be read: No such file"):
        read_tensors(tmp_path / "f", kind="checkpoint")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match=r"is damaged|cannot be read"):
        read_tensors(tmp_path, kind="checkpoint")


def test_foreign_safetensors(tmp_path: Path) -> None:
    safetensors.numpy.save_file({"w": np.zeros(3, np.float32)}, tmp_path / "f")
    with pytest.raises(PocketuneError, match="but not a Pocketune checkpoint"):
        read_tensors(tmp_path / "f", kind="checkpoint")


def test_another_kind(tmp_path: Path) -> None:
    write_tensors(tmp_path / "f", {}, kind="trained network", metadata={})
    with pytest.raises(PocketuneError, match="but not a Pocketune checkpoint"):
        read_tensors(tmp_path / "f", kind="checkpoint")


def test_newer_schema(tmp_path: Path) -> None:
    write_tensors(tmp_path / "f", {}, kind="checkpoint", metadata={"schema": 3})
    with pytest.raises(PocketuneError, match="has schema 3 and this version of Pocketune reads 2"):
        read_tensors(tmp_path / "f", kind="checkpoint")


def _meaning(content: bytearray) -> object:
    """Header and data of a file; its bytes if the header is damaged."""
    end = 8 + int.from_bytes(content[:8], "little")
    try:
        return json.loads(content[8:end]), bytes(content[end:])
    except ValueError:
        return bytes(content)


@settings(max_examples=200)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_every_flipped_bit_is_seen(
    place: int, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("flip") / "f"
    write_tensors(path, TENSORS, kind="checkpoint", metadata={"loss": 0.5})
    content = bytearray(path.read_bytes())
    written = _meaning(content)
    content[place % len(content)] ^= 1 << bit
    assume(_meaning(content) != written)  # a name's \\u00dc and \\u00Dc are one letter
    path.write_bytes(content)
    arrays = {name: np.zeros_like(tensor) for name, tensor in TENSORS.items()}
    with pytest.raises(PocketuneError):
        read_tensors(path, kind="checkpoint")
    with pytest.raises(PocketuneError):
        copy_tensors(path, arrays, kind="checkpoint")
    assert not any(array.any() for array in arrays.values())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(value: float, tmp_path: Path) -> None:
    weights = np.ones(9, np.float32)
    weights[4] = value
    write_tensors(tmp_path / "f", {"w": weights}, kind="checkpoint", metadata={})
    with pytest.raises(PocketuneError, match="its tensor w has a value that is not finite"):
        read_tensors(tmp_path / "f", kind="checkpoint")


def test_writing_copies_nothing(tmp_path: Path) -> None:
    import tracemalloc

    tensors = {str(i): np.ones(500_000, np.float32) for i in range(4)}
    tracemalloc.start()
    try:
        write_tensors(tmp_path / "f", tensors, kind="x", metadata={})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def test_tensors_are_copied_into_arrays_one_after_the_other(tmp_path: Path) -> None:
    import tracemalloc

    tensors = {str(i): np.full(500_000, i, np.float32) for i in range(8)}
    write_tensors(tmp_path / "f", tensors, kind="x", metadata={})
    arrays = {name: np.zeros_like(tensor) for name, tensor in tensors.items() if name != "3"}
    tracemalloc.start()
    try:
        copy_tensors(tmp_path / "f", arrays, kind="x")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * tensors["0"].nbytes
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, tensors[name])


@pytest.mark.parametrize(
    ("name", "shape", "kind", "expected"),
    [
        ("v", (1000,), "checkpoint", "v"),
        ("w", (1, 1000), "checkpoint", r"its tensor w is of shape \(1000,\), not \(1, 1000\)"),
        ("w", (1000,), "delta", "not a Pocketune delta"),
    ],
)
def test_tensors_that_do_not_fit_the_arrays(
    name: str, shape: tuple[int, ...], kind: str, expected: str, tmp_path: Path
) -> None:
    write(tmp_path / "f")
    arrays = {name: np.zeros(shape, np.float32)}
    with pytest.raises(PocketuneError, match=expected):
        copy_tensors(tmp_path / "f", arrays, kind=kind)
    assert not arrays[name].any()


@pytest.mark.parametrize(("kind", "size"), [("BF16", 2), ("F16", 2), ("F8_E4M3", 1), ("I64", 8)])
def test_other_kinds_of_numbers_are_refused(tmp_path: Path, kind: str, size: int) -> None:
    entry = {"dtype": kind, "shape": [3], "data_offsets": [0, 3 * size]}
    metadata = {"pocketune": json.dumps({"kind": "checkpoint", "schema": 2})}
    header = {"__metadata__": metadata, "w": entry}
    digest = hashlib.sha256(json.dumps(header).encode() + bytes(3 * size))
    metadata["sha256"] = digest.hexdigest()
    text = json.dumps(header).encode()
    file = tmp_path / "f"
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(3 * size))
    with pytest.raises(PocketuneError, match=f"f is damaged: its tensor w is {kind} where F32 is"):
        read_tensors(file, kind="checkpoint")
