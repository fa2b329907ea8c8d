"""Candidates of a network: found, predicted, ranked and built."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import pocketune
from pocketune.data import load_splits
from pocketune.device.train import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.kit import Kit
from pocketune.planner.context import PlanContext
from pocketune.planner.trial import Trial
from pocketune.proposals.choice import drafts_in
from pocketune.proposals.features import last_maps
from pocketune.proposals.pixels import score_pixels
from pocketune.proposals.source import METHODS, SIZES, DraftSource
from pocketune.weights import create_network, save_network

from ..device.pixel_kit import write_scenes
from ..device.softmax_engine import write_photos


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    torch.manual_seed(0)
    save_network(create_network("mobilenet_v2", width=0.2), folder / "mine.safetensors")
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="module")
def source(weights: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> DraftSource:
    make = drafts_in(weights, None, None)
    train = load_splits(photos).train
    folder = tmp_path_factory.mktemp("plan")
    return make(PlanContext(photos, train, TrainSettings(), 40_000_000, folder, lambda _: None))


def test_every_method_at_every_size_is_a_candidate(source: DraftSource) -> None:
    found, left_out = source.find()
    assert left_out == []
    assert len(found) == len({each.name for each in found}) == len(METHODS) * len(SIZES)
    assert found[0].name == "mobilenet_v2 0.2, 160 px, last"
    assert {each.group for each in found[: len(METHODS)]} == {"mobilenet_v2 0.2, 160 px"}


def test_two_files_of_one_network_are_told_apart(photos: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_network(create_network("mobilenet_v2", width=0.2), tmp_path / f"{name}.safetensors")
    make = drafts_in(tmp_path, None, ["last"])
    train = load_splits(photos).train
    found, _ = make(PlanContext(photos, train, TrainSettings(), 1, tmp_path, lambda _: None)).find()
    assert [each.name for each in found[:2]] == [
        "mobilenet_v2 0.2 of one.safetensors, 160 px, last",
        "mobilenet_v2 0.2 of two.safetensors, 160 px, last",
    ]


def test_other_weights_in_the_same_file_are_other_candidates(photos: Path, tmp_path: Path) -> None:
    context = PlanContext(
        photos, load_splits(photos).train, TrainSettings(), 1, tmp_path, lambda _: None
    )
    found = []
    for _ in range(2):
        save_network(create_network("mobilenet_v2", width=0.2), tmp_path / "mine.safetensors")
        found.append(drafts_in(tmp_path, None, ["last"])(context).find()[0][0])
    one, other = found
    assert one != other
    assert one == replace(other, weights_sha256=one.weights_sha256)


def test_a_kit_takes_what_its_draft_takes(source: DraftSource) -> None:
    last = next(each for each in source.find()[0] if each.size == 128)
    cost = source.cost(last)
    kit = source.kit(last, cost.optimizer)
    manifest = Kit.open(kit).manifest
    assert (manifest.size, manifest.batch, manifest.method) == (128, 8, last.method)
    assert manifest.classes == ("blue", "green", "red")
    assert cost.step_seconds > 0
    assert cost.memory > 40_000_000
    changed = kit.stat().st_mtime_ns
    assert source.kit(last, cost.optimizer).stat().st_mtime_ns == changed  # it is built once
    trial = Trial(candidate=last, cost=cost)
    assert trial.memory == cost.memory


def test_features_of_colors_tell_them_apart(source: DraftSource) -> None:
    head = source.head(source.find()[0][0], 12)
    assert head.score.value > 0.8
    assert 12 <= head.photos <= 24
    assert head.seconds > 0


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> PlanContext:
    folder = tmp_path_factory.mktemp("masks")
    write_scenes(folder / "photos", 16)
    train = load_splits(folder / "photos").train
    return PlanContext(
        folder / "photos", train, TrainSettings(), 40_000_000, folder, lambda _: None
    )


class TestMasks:
    """Networks that classify pixels: decode heads over backbones with weights."""

    def test_every_decode_head_over_every_backbone(
        self, weights: Path, context: PlanContext
    ) -> None:
        found, _ = drafts_in(weights, None, None)(context).find()
        assert len({each.name for each in found}) == len(found) == 27
        assert found[0].name == "deeplabv3 of mobilenet_v2 0.2, 192 px, decode head"
        assert found[3].group == "deeplabv3 of mobilenet_v2 0.2, stride 16, 192 px"
        assert found[8].name == "lraspp of mobilenet_v2 0.2, 192 px, full"

    def test_a_network_with_a_decode_head_is_taken_as_it_is(
        self, photos: Path, context: PlanContext, tmp_path: Path
    ) -> None:
        made = create_network("fcn", backbone="mobilenet_v2", width=0.2, classes=2)
        save_network(made, tmp_path / "fcn.safetensors")
        make = drafts_in(tmp_path, None, ["last"])
        assert {each.network["name"] for each in make(context).find()[0]} == {"fcn"}
        train = load_splits(photos).train
        images = make(PlanContext(photos, train, TrainSettings(), 1, tmp_path, lambda _: None))
        with pytest.raises(PocketuneError, match="and the photos have no masks"):
            images.find()

    def test_maps_of_colors_tell_them_apart(self, context: PlanContext) -> None:
        torch.manual_seed(0)
        network = create_network("fcn", backbone="resnet18", width=0.25, output_stride=8, classes=3)
        score, photos = score_pixels(partial(last_maps, network), context.photos, 64, 12)
        assert score.name == "mIoU"
        assert score.value > 0.4
        assert photos == 6


def test_names_that_do_not_exist(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match=r"no weights of 'resnet18' in the folder; there are"):
        drafts_in(weights, ["resnet18"], None)
    with pytest.raises(PocketuneError, match=r"no weights of a network are in .* \(it has none\)"):
        drafts_in(tmp_path, None, None)


def test_networks_without_weights_are_refused(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "none"))
    monkeypatch.setattr("pocketune.planning.process_bytes", lambda *_: 40_000_000)

    def refused(**names: list[str] | str) -> str:
        with pytest.raises(PocketuneError) as caught:
            pocketune.plan(photos, tmp_path / "plan", say=lambda _: None, **names)
        return str(caught.value)

    for names in ({"methods": ["last"]}, {"networks": ["mobilenet_v2"]}):
        assert refused(**names) == (
            "choosing among networks and methods needs pretrained weights, and none were found: "
            "give a folder of weights as weights_dir, or leave out networks and methods to choose "
            "among the bundled kits"
        )
    assert refused(methods=["magic"]).startswith(
        "there is no method 'magic'; choose from full, last"
    )
    assert refused(methods="last") == "methods='last' must be a list of names; give ['last']"
    assert refused(networks=["magic"]).startswith("there is no network 'magic'; choose from ")


def test_a_plan_of_a_network(
    weights: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pocketune.proposals.source.SIZES", (96, 64))
    said: list[str] = []
    options = {"weights_dir": weights, "methods": ["last"], "budget": "200MB", "steps": 4}
    plan = pocketune.plan(photos, tmp_path / "plan", say=said.append, **options)
    assert plan.chosen.memory <= 200_000_000
    assert Path(str(plan.kit)).parent == tmp_path / "plan" / "kits"
    assert Kit.open(str(plan.kit)).manifest.size == plan.chosen.candidate.size
    assert all(trial.dropped for trial in plan.trials if trial.name != plan.choice)
    assert [line for line in said if "before training" in line]
    again = pocketune.plan(photos, tmp_path / "plan", say=lambda _: None, **options)
    assert again == plan
