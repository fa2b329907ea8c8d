"""Saved supernets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.supernet.small import MODULES, images, rng, space, supernet

from pocketune.errors import PocketuneError
from pocketune.networks import about
from pocketune.supernet import load_supernet, save_supernet
from pocketune.supernet.files import HEADER, describe


def test_a_supernet_is_read_as_it_was_saved(tmp_path: Path) -> None:
    made, file = supernet(**MODULES), tmp_path / "new" / "supernet.safetensors"
    save_supernet(made, file)
    read = load_supernet(file, made.space).eval()
    assert read.space == made.space
    assert about(read) == about(made)
    assert all(parameter.requires_grad for parameter in read.parameters())
    for each in (made, read):
        each.activate(made.space.sample(rng()))
    stored, saved = read.state_dict(), made.state_dict()
    assert stored.keys() == saved.keys()
    assert all(torch.equal(stored[name], saved[name]) for name in saved)
    # Kernels of other alignment may be summed in another order.
    torch.testing.assert_close(read(images()), made(images()))


def test_another_space_is_refused(tmp_path: Path) -> None:
    made, file = supernet(), tmp_path / "supernet.safetensors"
    save_supernet(made, file)
    with pytest.raises(PocketuneError, match=r"another space, with width=0\.2 in place of 0\.5"):
        load_supernet(file, space(width=0.5))
    with pytest.raises(PocketuneError, match=r"sizes=\(32, 48\) in place of \(64,\)"):
        load_supernet(file, replace(made.space, sizes=(64,)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"version": 2}, "holds a supernet of version 2, and this program reads version 1"),
        ({"space": {"breadth": 1}}, "description of a space is not understood"),
        ({"space": {"width": 0.3}}, "does not hold the values of its space"),
        ({"normalization": None}, "the description in .* is damaged"),
    ],
)
def test_what_is_not_understood_is_refused(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    made, file = supernet(), tmp_path / "supernet.safetensors"
    save_supernet(made, file)
    facts = json.dumps({**describe(made), **changed})
    save_file(load_file(file), file, {HEADER: facts})
    with pytest.raises(PocketuneError, match=message):
        load_supernet(file)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="there is no supernet"):
        load_supernet(tmp_path / "missing.safetensors")
    other, text = tmp_path / "other.safetensors", tmp_path / "text.safetensors"
    save_file({"a": torch.zeros(1)}, other)
    text.write_text("not tensors")
    with pytest.raises(PocketuneError, match="is not a supernet; give a file of save_supernet"):
        load_supernet(other)
    with pytest.raises(PocketuneError, match="is damaged"):
        load_supernet(text)
    with pytest.raises(PocketuneError, match=r"must end in \.safetensors"):
        save_supernet(supernet(), tmp_path / "supernet.pth")
