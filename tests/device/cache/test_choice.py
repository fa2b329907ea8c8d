"""A cache is chosen where it pays and fits, and refused where it is impossible."""

from __future__ import annotations

import tracemalloc
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pocketune.device.cache import choice
from pocketune.device.cache.choice import EXACT, Parts, cache_bytes, choose, parts_of
from pocketune.device.cache.records import HELD, MemoryStore
from pocketune.device.memory.budget import BudgetExceeded
from pocketune.device.train.photos import Photos
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit

from ..pixel_kit import write_pixel_kit, write_scenes
from ..softmax_engine import FEATURES, write_photos, write_softmax_kit

Disk = namedtuple("Disk", "total used free")


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    return write_softmax_kit(tmp_path_factory.mktemp("kit") / "kit", frozen=True)


@pytest.fixture(scope="module")
def photos(kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> Photos:
    folder = write_photos(tmp_path_factory.mktemp("photos") / "photos")
    return Photos.open(folder, TrainSettings(), kit)


def chosen(
    photos: Photos, kit: Kit, *, prepares: bool = True, room: int | None = None, **options: Any
) -> tuple[TrainSettings, str]:
    settings = TrainSettings(**{"epochs": 20} | options)
    return choose(settings, photos, kit.manifest, Path("run"), prepares=prepares, room=room)


def test_sizes(photos: Photos, kit: Kit) -> None:
    parts = Parts.of(photos, kit.manifest, 3)
    assert parts.validation is not None
    record = 20 + 8 + 2 * 128 + 8  # key and checksum, range, a block of 16-bit codes, label
    exact = 20 + 4 * FEATURES + 8
    assert (parts.training.record, parts.validation.record) == (record, exact)
    assert parts.training.end == 3 * 24 * record == parts.validation.start
    assert parts.size == 3 * 24 * record + 6 * exact
    places = [parts.training.place(draw, index) for draw in range(3) for index in range(24)]
    assert places == list(range(0, parts.training.end, record))
    memory = chosen(photos, kit, cache="memory", draws=3)[0]
    disk = chosen(photos, kit, cache="disk", draws=3)[0]
    found = [cache_bytes(each, photos, kit.manifest) for each in (memory, disk)]
    assert parts.records == 3 * 24 + 6
    assert found == [parts.size + 78 * HELD + 2 * 4 * record, 2 * 4 * record]
    short = replace(memory, epochs=None, steps=2)
    assert found[0] - cache_bytes(short, photos, kit.manifest) == (3 * 24 - 2 * 4) * record
    whole = parts_of(disk, photos, kit.manifest)
    assert parts_of(memory, photos, kit.manifest) == replace(whole, sample=None) == parts
    assert whole.sample is not None and whole.sample.code.bits == EXACT
    assert whole.sample.start == parts.size
    assert (whole.records, whole.size) == (parts.records + 24, parts.size + 24 * exact)


def test_many_values_take_8_bits(photos: Photos, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Parts.of(photos, kit.manifest, 1).training.code.bits == 16
    monkeypatch.setattr(choice, "FEW", FEATURES - 1)
    assert Parts.of(photos, kit.manifest, 1).training.code.bits == 8


def test_without_epochs_there_is_nothing_to_say(photos: Photos, kit: Kit) -> None:
    settings, words = chosen(photos, kit, epochs=0)
    assert (settings.cache, words) == ("off", "")


def test_off_keeps_the_draws(photos: Photos, kit: Kit) -> None:
    settings, words = chosen(photos, kit, cache="off", draws=3)
    assert (settings.cache, settings.draws, words) == ("off", 3, "")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"epochs": 7}, "keeping 4 crops of each photo pays from 8 epochs on"),
        ({"steps": 47}, "keeping 4 crops of each photo pays from 8 epochs on"),
        ({"draws": 15}, "keeping 15 crops of each photo pays from 30 epochs on"),
        ({"prepares": False}, "the engine computes the network as a whole"),
        ({"room": 100}, "the budget leaves no room for it"),
    ],
)
def test_auto_says_why_not(options: dict[str, Any], reason: str, photos: Photos, kit: Kit) -> None:
    options = {**options, "epochs": options.get("epochs", None if "steps" in options else 20)}
    settings, words = chosen(photos, kit, **options)
    assert (settings.cache, words) == ("off", f"cache  off: {reason}")


@pytest.mark.parametrize("length", [{"epochs": 8}, {"epochs": None, "steps": 48}])
def test_auto_keeps_features_from_two_epochs_a_draw_on(
    length: dict[str, Any], photos: Photos, kit: Kit
) -> None:
    settings, _ = chosen(photos, kit, **length)
    assert (settings.cache, settings.draws) == ("disk", 4)


def test_auto_does_not_repeat_crops_of_masks(tmp_path: Path) -> None:
    pixels = write_pixel_kit(tmp_path / "pixels")
    photos = Photos.open(write_scenes(tmp_path / "scenes", 6), TrainSettings(), pixels)
    manifest = replace(
        pixels.manifest,
        features=(3, 4, 4),
        graphs={**pixels.manifest.graphs, "features": pixels.manifest.graphs["step"]},
    )
    frozen = replace(pixels, manifest=manifest)
    settings, words = chosen(photos, frozen)
    assert (settings.cache, settings.draws) == ("off", None)
    assert words == "cache  off: photos with masks get new crops in every epoch"
    assert chosen(photos, frozen, cache="disk")[0].draws == 4
    parts = Parts.of(photos, manifest, 1)
    assert parts.validation is None
    assert parts.training.content == parts.training.code.size + 16 * 16  # the mask, as bytes


def test_auto_leaves_three_quarters_of_the_disk_free(
    photos: Photos, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = Parts.of(photos, kit.manifest, 4, sample=True).size
    for free, cache in ((4 * size, "disk"), (4 * size - 1, "off")):
        monkeypatch.setattr(choice.shutil, "disk_usage", lambda _, f=free: Disk(9 * f, 8 * f, f))
        assert chosen(photos, kit)[0].cache == cache
    monkeypatch.setattr(choice, "MOST", size - 1)
    monkeypatch.setattr(choice.shutil, "disk_usage", lambda _: Disk(10**12, 0, 10**12))
    settings, words = chosen(photos, kit)
    assert settings.cache == "off"
    assert words.endswith("24 photos in 4 draws take 35 kB, and 1000000 MB of disk are free")


def test_what_the_user_asks_for_is_refused_if_it_is_impossible(
    photos: Photos, kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write_softmax_kit(tmp_path / "kit")
    for each, prepares, reason in (
        (
            whole,
            True,
            "no features are frozen, because the kit's method, full, trains early layers",
        ),
        (kit, False, "the engine computes the network as a whole"),
    ):
        with pytest.raises(PocketuneError) as error:
            chosen(photos, each, prepares=prepares, cache="disk")
        assert str(error.value) == f"cache='disk' has no effect: {reason}; leave it out"
    with pytest.raises(PocketuneError, match="has no effect: no steps are made; leave it out"):
        chosen(photos, kit, cache="memory", epochs=0)
    monkeypatch.setattr(choice.shutil, "disk_usage", lambda _: Disk(10, 9, 1000))
    with pytest.raises(PocketuneError, match="takes 35 kB in run, where 1 kB are free: make room"):
        chosen(photos, kit, cache="disk")
    with pytest.raises(BudgetExceeded, match="memory, of which the budget leaves 20 kB: leave"):
        chosen(photos, kit, cache="memory", room=20_000)
    assert chosen(photos, kit, cache="memory", room=60_000)[0].cache == "memory"


def test_what_a_record_takes_in_memory_is_counted() -> None:
    store, count, record = MemoryStore(), 5_000, 1_000
    tracemalloc.start()
    for number in range(count):
        store.write(number * record, bytes(record))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count * record < taken < count * (record + HELD) < 1.1 * taken
