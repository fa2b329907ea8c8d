"""Grids: short to write, strict to read."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.comparison import Grid
from pocketune.comparison.grid import KitChoice, MethodChoice, Network, PhotoSet
from pocketune.errors import PocketuneError

TOML = """
photos = ["flowers", "elsewhere.zip"]
seeds = 3
rates = [1e-3, 3e-3]
kits = ["last"]

[settings]
epochs = 5

[[networks]]
network = "mobilenet_v2"
weights = "weights.safetensors"
width = 0.35

[[methods]]
method = "blocks+signed"
options = {blocks = 2}
settings = {warmup = 5}
"""


def test_names_of_masks_are_found_beside_the_file(tmp_path: Path) -> None:
    for name in ("all.txt", "some.txt"):
        (tmp_path / name).write_text("road")
    (tmp_path / "compare.toml").write_text(
        """
        photos = [{photos = "masks", settings = {class_names = "some.txt"}}]
        kits = ["blocks_masks"]
        settings = {class_names = "all.txt"}
        """
    )
    grid = Grid.read(tmp_path / "compare.toml")
    assert grid.settings == {"class_names": str(tmp_path / "all.txt")}
    assert grid.photos[0].settings == {"class_names": str(tmp_path / "some.txt")}


def test_a_toml_file_is_a_grid(tmp_path: Path) -> None:
    (tmp_path / "compare.toml").write_text(TOML)
    (tmp_path / "flowers").mkdir()
    (tmp_path / "weights.safetensors").write_bytes(b"")
    grid = Grid.read(tmp_path / "compare.toml")
    assert [each.photos for each in grid.photos] == [str(tmp_path / "flowers"), "elsewhere.zip"]
    assert (grid.seeds, grid.rates, grid.settings) == ((0, 1, 2), (1e-3, 3e-3), {"epochs": 5})
    (network,) = grid.networks
    assert (network.weights, network.size) == (str(tmp_path / "weights.safetensors"), 224)
    assert grid.methods[0].options == {"blocks": 2}
    assert grid.kits == (KitChoice(kit="last"),)


def test_one_set_needs_no_list() -> None:
    grid = Grid.from_dict({"photos": "flowers/", "kits": "last"})
    assert (grid.photos, grid.kits) == ((PhotoSet(photos="flowers/"),), (KitChoice(kit="last"),))


def test_names_in_the_tables() -> None:
    assert PhotoSet(photos="a/flowers.zip").label == "flowers"
    assert Network(network="mobilenet_v2", width=0.35).label == "mobilenet_v2 0.35"
    assert MethodChoice(method="blocks", options={"blocks": 5}).label == "blocks (blocks 5)"
    assert KitChoice(kit="kits/mine.zip").label == "mine"
    assert Network(network="resnet18", name="R").label == "R"


def test_folders_keep_their_whole_names_in_the_tables(tmp_path: Path) -> None:
    for name in ("flowers-1.0", "flowers-1.1"):
        (tmp_path / name).mkdir()
        assert PhotoSet(photos=f"{tmp_path / name}/").label == name
        assert KitChoice(kit=str(tmp_path / name)).label == name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"photos": []}, "lacks photos"),
        ({"kits": []}, "lacks a network or a kit"),
        ({"networks": ["resnet18"]}, "lacks a method for its networks"),
        ({"methods": ["last"]}, "lacks a network for its methods"),
        ({"seeds": []}, "lacks a seed"),
        ({"seeds": [1, 2, 1]}, r"seeds=\[1, 2, 1\] has a seed twice; give"),
        ({"kits": ["last", "a/last.zip"]}, "'last': list them in a .toml file, each with a name"),
        ({"settings": {"epoch": 3}}, "no setting 'epoch': choose from .*'epochs'"),
        ({"settings": {"epochs": -3}}, "epochs must be at least 0"),
        ({"settings": {"seed": 3}}, "seed is chosen by the comparison"),
        ({"kits": [{"kit": "last", "settings": {"lr": 0}}]}, "lr must be above 0"),
        ({"rates": [0.0]}, "rates must be above 0"),
        (
            {"rates": [0.1], "settings": {"lr": 0.2}},
            "lr is given, and rates to choose it from: leave one out",
        ),
        ({"seeds": ["one"]}, r"'seeds\[0\]' must be a whole number"),
        ({"colour": 1}, "unknown field 'colour'"),
        ({"kits": [3]}, r"'kits\[0\]' must be a JSON object"),
        ({"networks": [{"network": "a", "widht": 1}]}, r"'networks\[0\]' has the unknown field"),
    ],
)
def test_what_is_not_a_grid(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        Grid.from_dict({"photos": ["photos"], "kits": ["last"], **changes})


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("photos = [")
    with pytest.raises(PocketuneError, match=r"a\.toml is damaged"):
        Grid.read(tmp_path / "a.toml")
    with pytest.raises(PocketuneError, match=r"b\.toml cannot be read"):
        Grid.read(tmp_path / "b.toml")


@given(
    kits=st.lists(st.text("ab", min_size=1, max_size=3), unique=True, min_size=1, max_size=3),
    seeds=st.lists(st.integers(0, 9), min_size=1, unique=True),
    rates=st.lists(st.floats(1e-9, 1)),
    epochs=st.integers(1, 9),
)
def test_json_gives_the_same_grid(
    kits: list[str], seeds: list[int], rates: list[float], epochs: int
) -> None:
    grid = Grid.from_dict(
        {
            "photos": [{"photos": "photos", "name": "p", "settings": {"epochs": epochs}}],
            "kits": kits,
            "seeds": seeds,
            "rates": rates,
            "networks": [{"network": "resnet18", "name": "R"}],
            "methods": ["last"],
        }
    )
    assert Grid.from_dict(json.loads(json.dumps(grid.to_dict()))) == grid
