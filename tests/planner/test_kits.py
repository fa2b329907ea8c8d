"""Kits as candidates, tried in real processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pocketune.data import load_splits, sample, unlabeled
from pocketune.data.images.cost import Decoding
from pocketune.data.images.headers import Header
from pocketune.device.train import RunRecord, TrainSettings
from pocketune.errors import PocketuneError
from pocketune.kit import Kit
from pocketune.kit.bundled import list_kits
from pocketune.planner.candidate import Cost
from pocketune.planner.context import PlanContext
from pocketune.planner.features import Features, alike, embedding, first_embeddings
from pocketune.planner.kits import KITS, KitSource, kit_paths
from pocketune.planner.process import process_bytes
from pocketune.processes.command import run_command
from pocketune.tasks import Attributes, Classification, numbered

from ..device.softmax_engine import write_photos
from ..device.tiny_kit import TinyKit
from .fakes import MB


def source(
    tmp_path: Path,
    decoding: Decoding | None = None,
    settings: TrainSettings | None = None,
    classes: int = 3,
) -> KitSource:
    kits = tmp_path / "kits"
    photos = replace(unlabeled([]), task=Classification(numbered(classes)))
    chosen = settings or TrainSettings()
    context = PlanContext(
        tmp_path / "photos", photos, chosen, 40 * MB, tmp_path, lambda _: decoding
    )
    folder = kits if kits.is_dir() else None
    return KitSource(context, kits=folder)


def test_the_bundled_kits_are_candidates(tmp_path: Path) -> None:
    found, left_out = source(tmp_path).find()
    assert tuple(each.name for each in found) == list_kits("classification")
    assert left_out == []
    blocks = Kit.open("blocks").manifest
    assert (found[0].size, found[0].batch, found[0].method) == (
        blocks.size,
        blocks.batch,
        blocks.method,
    )


def test_a_folder_of_kits_where_some_are_broken(tmp_path: Path) -> None:
    TinyKit().write(tmp_path / "kits" / "good.zip")
    TinyKit().write(tmp_path / "kits" / "folder")
    TinyKit(task=Attributes).write(tmp_path / "kits" / "other.zip")
    (tmp_path / "kits" / "broken.zip").write_bytes(b"PK nothing")
    (tmp_path / "kits" / "notes.txt").write_text("hello")
    found, left_out = source(tmp_path).find()
    assert [each.name for each in found] == [*list_kits("classification"), "folder", "good.zip"]
    reasons = {each.name: each.reason for each in left_out}
    assert list(reasons) == ["broken.zip", "other.zip"]
    assert reasons["other.zip"] == "it is for attributes, and the photos are for classification"


def test_a_kit_that_is_named_as_a_bundled_one(tmp_path: Path) -> None:
    TinyKit().write(tmp_path / "last")
    bundled, own = kit_paths(tmp_path, ["last"])
    assert (bundled[0], own) == ("last", (str(tmp_path / "last"), tmp_path / "last"))


def test_the_folder_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TinyKit().write(tmp_path / "mine" / "tiny.zip")
    monkeypatch.setenv(KITS, str(tmp_path / "mine"))
    assert [name for name, _ in kit_paths(None, ["last"])] == ["last", "tiny.zip"]
    with pytest.raises(PocketuneError, match=r"folder of kits .* cannot be read: .*; give"):
        list(kit_paths(tmp_path / "none"))


def test_the_cost_is_that_of_the_photos_classes(tmp_path: Path) -> None:
    few, many = source(tmp_path, classes=3), source(tmp_path, classes=1000)
    blocks = few.find()[0][0]
    many.find()
    assert 40 * MB < few.cost(blocks).memory < many.cost(blocks).memory
    assert few.cost(blocks).parameters < many.cost(blocks).parameters


def test_the_cost_has_the_dearest_photo(tmp_path: Path) -> None:
    header = Header("WEBP", "RGB", 4000, 3000)
    plain, dear = source(tmp_path), source(tmp_path, Decoding("a.webp", header, 190 * MB, 0))
    blocks = plain.find()[0][0]
    dear.find()
    assert dear.cost(blocks).memory > plain.cost(blocks).memory + 180 * MB


def test_the_time_of_a_prediction_counts(tmp_path: Path) -> None:
    kits = source(tmp_path)
    assert kits.cost(kits.find()[0][0]).seconds > 0


def test_adam_takes_8_bits_where_only_that_fits(tmp_path: Path) -> None:
    plain = source(tmp_path)
    blocks = plain.find()[0][0]
    whole = replace(plain.cost(blocks), seconds=0.0)
    assert whole.optimizer == "adam"

    def cost(budget: int, optimizer: str = "adam") -> Cost:
        settings = TrainSettings(budget=f"{budget}", optimizer=optimizer)
        limited = source(tmp_path, settings=settings)
        limited.find()
        return replace(limited.cost(blocks), seconds=0.0)

    assert cost(whole.memory) == whole
    smaller = cost(whole.memory - 1)
    assert smaller.optimizer == "adam8"
    saved = whole.memory - smaller.memory
    assert saved == pytest.approx((8 - 2 - 8 / 256) * whole.parameters, rel=0.05)
    assert cost(smaller.memory - 1) == smaller  # too large, by the least that it can take
    assert cost(whole.memory - 1, "adamw").optimizer == "adamw"  # the user's own choice stays


def test_features_of_colors_tell_them_apart(tmp_path: Path) -> None:
    photos = load_splits(write_photos(tmp_path / "photos")).train
    embed, seen = embedding(Kit.open("blocks")), []
    features = Features(photos, Kit.open("blocks").manifest.size)
    few, more = (
        features.score(lambda images: (seen.append(len(images)), embed(images))[1], count)
        for count in (len(photos) // 2, len(photos))
    )
    assert 0.8 < few[0].value <= 1
    assert few[1] < more[1] == len(photos) == sum(seen)  # each photo once


def test_photos_whose_classes_are_in_turn_are_looked_at_in_all_classes(tmp_path: Path) -> None:
    photos = load_splits(write_photos(tmp_path / "photos")).train
    count = len(photos.classes)
    photos = photos.subset(
        np.argsort(np.arange(len(photos)) % (len(photos) // count), kind="stable")
    )
    assert len({*photos.labels[:count]}) == count
    (batch,) = sample(photos, size=8, count=len(photos) // count, batch=len(photos))
    assert {*batch.labels} == {*range(count)}
    colors = Features(photos, 8).score(
        lambda x: x.mean((1, 2)) / np.float32(255), len(batch.labels)
    )
    assert colors[0].value > 0.8
    assert colors[1] == len(batch.labels)


def test_photos_that_cannot_be_decoded_have_no_score(tmp_path: Path) -> None:
    photos = load_splits(write_photos(tmp_path / "photos")).train
    for path in tmp_path.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(PocketuneError, match="none of the photos can be decoded"):
        Features(photos, 96).score(embedding(Kit.open("blocks")), 12)


def test_kits_of_one_network_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Kit] = []
    open_kit = embedding
    monkeypatch.setattr(
        "pocketune.planner.kits.embedding", lambda kit: (looks.append(kit), open_kit(kit))[1]
    )
    photos = load_splits(write_photos(tmp_path / "photos")).train
    context = PlanContext(tmp_path, photos, TrainSettings(), 40 * MB, tmp_path, lambda _: None)
    kits = KitSource(context)
    candidates = kits.find()[0]
    assert {each.method["name"] for each in candidates} == {"blocks", "last"}
    heads = [kits.head(each, 12) for each in candidates]
    assert len({(head.score, head.photos) for head in heads}) == 1
    assert len({kit.identity for kit in looks}) == 1
    first = first_embeddings(Kit.open("blocks"), photos)
    assert alike(first, first + 0.01 * first[::-1])
    assert not alike(first, first[::-1])
    assert not alike(first, first[:, 1:])


def test_a_process_that_trains_takes_tens_of_megabytes(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos")
    assert 15 * MB < process_bytes(photos, TrainSettings()) < 150 * MB
    with pytest.raises(PocketuneError, match=r"process cannot be measured: [^:]* not exist"):
        process_bytes(tmp_path / "none", TrainSettings())


def test_the_libraries_of_heic_photos_are_counted_as_in_a_run(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif", reason="HEIC photos need the extra heif")
    photos = write_photos(tmp_path / "photos", each=2)
    for file in list(photos.rglob("*.png")):
        heif.from_pillow(Image.open(file)).save(file.with_suffix(".heic"))
        file.unlink()
    code, errors = run_command(
        "train", photos, "--kit", "last", "--out", tmp_path / "run", keep_errors=True
    )
    assert code == 0, errors
    parts = RunRecord.read(tmp_path / "run").memory_parts
    assert parts is not None
    measured = process_bytes(photos, TrainSettings())
    assert measured > parts["process"] - MB
