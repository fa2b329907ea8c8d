"""The first phase trains what TinyTL trains, and a stopped one ends as if it had not been."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from pocketune.data import ImageDataset, load_splits
from pocketune.errors import PocketuneError
from pocketune.extractor import adaptation
from pocketune.extractor.adaptation import Adaptation
from pocketune.extractor.genome import Genome
from pocketune.extractor.settings import ExtractorSettings
from pocketune.extractor.spaces import genome_of
from pocketune.supernet import Supernet

from ..device.softmax_engine import write_photos
from .small import supernet

OPTIONS = {"sizes": (32, 48), "module_groups": (2,), "module_kernels": (3,)}
SETTINGS = ExtractorSettings(epochs=2)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ImageDataset:
    return load_splits(write_photos(tmp_path_factory.mktemp("data") / "photos")).train


def adapting(photos: ImageDataset, path: Path) -> tuple[Adaptation, Supernet]:
    made = supernet(**OPTIONS)
    genome = genome_of(made.space)
    return Adaptation(made, genome, photos, SETTINGS, path), made


def values(made: Supernet) -> dict[str, Tensor]:
    """All values but the statistics, which every sub-network gets anew."""
    return {name: value.clone() for name, value in made.named_parameters()}


def ignore(*_: object) -> None:
    """Show nothing."""


def test_the_first_classifier_is_computed_in_small_batches(
    photos: ImageDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []
    in_parts = adaptation.in_parts
    monkeypatch.setattr(adaptation, "CALIBRATION", 5)
    monkeypatch.setattr(
        adaptation, "in_parts", lambda part, x: (passed.append(len(x)), in_parts(part, x))[1]
    )
    adapting(photos, tmp_path / "state.safetensors")[0].start()
    assert sum(passed) == len(photos)
    assert max(passed) == 5


def test_a_stopped_one_ends_with_the_same_values(
    photos: ImageDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams: list[bytes] = []
    sample = Genome.sample

    def noted(genome: Genome, rng: np.random.Generator, count: int) -> np.ndarray:
        streams.append(rng.bit_generator.seed_seq.generate_state(4).tobytes())
        return sample(genome, rng, count)

    whole, expected = adapting(photos, tmp_path / "whole.safetensors")
    before = values(expected)
    monkeypatch.setattr(Genome, "sample", noted)
    whole.start()
    started = values(expected)
    whole.run(whole.whole, ignore)
    assert len(set(streams)) == len(streams) == 7, "the classifier's photos and each step"
    assert whole.done == whole.whole == 6

    changed = {n for n, v in values(expected).items() if not torch.equal(v, before[n])}
    assert all(n.endswith("bias") or "branch" in n or "classifier" in n for n in changed)
    assert not any(n.endswith("branch.norm2.bias") for n in changed)
    assert any(".branch.conv1.weight" in n for n in changed)
    assert "network.features.0.1.bias" in changed
    head = "network.classifier.1.weight"
    assert not torch.equal(started[head], before[head]), "computed from the photos"

    monkeypatch.setattr(adaptation, "CHECKPOINT_SECONDS", 0)
    path = tmp_path / "stopped.safetensors"
    stopped, _ = adapting(photos, path)
    stopped.start()

    def stop(done: int, *_: object) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped.run(stopped.whole, stop)
    resumed, again = adapting(photos, path)
    resumed.start()
    assert resumed.done == 3
    resumed.run(resumed.whole, ignore)
    wanted = values(expected)
    assert all(torch.equal(wanted[name], value) for name, value in values(again).items())


def test_steps_that_are_timed_change_nothing(photos: ImageDataset, tmp_path: Path) -> None:
    timed, made = adapting(photos, tmp_path / "timed.safetensors")
    timed.start()
    before = {name: value.clone() for name, value in made.state_dict().items()}
    assert timed.fitting(1e9) == timed.whole
    assert timed.fitting(1e-9) == 1
    assert timed.done == 0
    assert all(torch.equal(before[name], value) for name, value in made.state_dict().items())


def test_fewer_steps_than_are_timed_are_all_made(
    photos: ImageDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptation, "TIMED", 6)
    timed, _ = adapting(photos, tmp_path / "timed.safetensors")
    assert timed.fitting(1e-9) == timed.whole == 6


def test_a_damaged_state_is_named(photos: ImageDataset, tmp_path: Path) -> None:
    path = tmp_path / "adapted.safetensors"
    path.write_bytes(b"nothing")
    with pytest.raises(PocketuneError, match=r"adapted.safetensors is damaged: .*; remove it"):
        adapting(photos, path)[0].start()


@pytest.mark.parametrize("change", ["name", "shape"])
def test_the_state_of_another_search_is_named(
    photos: ImageDataset, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "adapted.safetensors"
    written, _ = adapting(photos, path)
    written.start()
    written.run(1, ignore)
    with safe_open(path, "pt") as file:
        facts = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    head = "value.classifier.1.weight"
    weight = tensors.pop(head)
    tensors |= {"other": weight} if change == "name" else {head: weight[:, 1:].contiguous()}
    save_file(tensors, path, facts)
    with pytest.raises(PocketuneError, match=r"adapted.safetensors is damaged: .*; remove it"):
        adapting(photos, path)[0].start()
