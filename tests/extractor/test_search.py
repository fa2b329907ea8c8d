"""What a search refuses, and how it keeps a limit of time."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from pocketune.errors import PocketuneError
from pocketune.extractor import Record, adaptation, adapting
from pocketune.extractor import clock as clock_module
from pocketune.extractor import search as search_module
from pocketune.extractor.clock import KIT
from pocketune.extractor.costs import Forecaster
from pocketune.extractor.record import ADAPTED, RECORD, Finalist, Forecast
from pocketune.extractor.search import FEWEST_PAIRS
from pocketune.supernet import SubnetConfig, Supernet, save_supernet

from ..device.softmax_engine import write_photos
from .searches import Kill, Search, forecast, run
from .small import space

pytestmark = pytest.mark.usefixtures("quick")


class Hand:
    """A clock that the tests move; each look at it takes a millisecond."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 1e-3
        return self.seconds


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    """A clock on which a forecast takes five seconds, and all else no time."""
    hand = Hand()

    def slow(self: Forecaster, config: SubnetConfig, *, cached: bool = True) -> Forecast:
        hand.seconds += 5
        return forecast(self, config, cached=cached)

    monkeypatch.setattr(Forecaster, "__call__", slow)
    for module in (adapting, clock_module, search_module):
        monkeypatch.setattr(module, "time", hand)
    return hand


def test_forecasts_end_in_time_for_the_kit(inputs: Path, tmp_path: Path, hand: Hand) -> None:
    def build(_: object, found: tuple[Finalist, ...], *__: object, **___: object) -> object:
        largest = max(each.macs for each in record().forecasts)
        hand.seconds += 5 * (1 + KIT * found[0].forecast.macs / largest)
        return found, "none"

    def record() -> Record:
        return Record.read(tmp_path / "kit.search" / RECORD)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "build_chosen", build)
        patch.setattr(search_module, "FORECASTS", 24)
        run(inputs, tmp_path / "kit", time="130s")
        assert hand.seconds <= 130
        assert 2 < len(record().forecasts) < 24


@pytest.mark.usefixtures("hand")
def test_too_little_time_for_the_kit_is_refused_at_once(search: Search, tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match=r"too short for this supernet .*; set time=\dm$"):
        search(time="30s")
    assert not (tmp_path / "kit.search" / ADAPTED).exists()


def test_a_time_limit_makes_it_shorter(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=count().__next__)
    for module in (adapting, adaptation, clock_module, search_module):
        monkeypatch.setattr(module, "time", clock)
    record = search(time="60s", epochs=50, pairs=100)
    assert (record.steps or 0) < 100
    assert FEWEST_PAIRS <= (record.planned or 0) < 100


def test_limits_below_the_smallest_name_it(search: Search) -> None:
    with pytest.raises(PocketuneError, match=r"of 51 MB: the smallest one needs 5\d MB"):
        search(budget="51MB")
    with pytest.raises(PocketuneError, match=r"0.01 million mul.*: the smallest one needs 0"):
        search(macs=0.01)
    with pytest.raises(PocketuneError, match="budget of 40 MB is smaller than the 50 MB"):
        search(budget="40MB")


def test_two_photos_a_class(search: Search, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "few", each=2)
    with pytest.raises(PocketuneError, match=r"has 2 training photos, .* takes 5 of each class"):
        search(photos=photos)
    assert not (tmp_path / "kit.search").exists()


def test_files_that_are_no_supernet_of_this_version(
    search: Search, inputs: Path, tmp_path: Path
) -> None:
    with pytest.raises(PocketuneError, match=r"there is no supernet .*none.safetensors"):
        search(supernet=tmp_path / "none.safetensors")
    other = tmp_path / "other.safetensors"
    content = (inputs / "supernet.safetensors").read_bytes()
    other.write_bytes(content.replace(rb"\"version\": 1", rb"\"version\": 7", 1))
    with pytest.raises(PocketuneError, match="version 7"):
        search(supernet=other)


def test_another_supernet_or_other_photos_need_a_folder_of_their_own(
    search: Search, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(progress=Kill("adapting"))
    save_supernet(Supernet(space(width=0.15)), tmp_path / "wider.safetensors")
    with pytest.raises(PocketuneError, match="made with another supernet; name another folder"):
        search(supernet=tmp_path / "wider.safetensors")
    with pytest.raises(PocketuneError, match="made with epochs 1; name another folder"):
        search(epochs=2)


def test_places_that_cannot_be_written_are_refused_before_the_search(
    search: Search, inputs: Path, tmp_path: Path
) -> None:
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "notes.txt").write_text("mine")
    with pytest.raises(PocketuneError, match="kit exists and is not a kit: choose another name"):
        search("kit")
    with pytest.raises(PocketuneError, match="is not empty: choose a new folder for the run"):
        search("other", run=tmp_path / "kit")
    assert [path.name for path in tmp_path.iterdir()] == ["kit"]


def test_a_supernet_without_a_choice(search: Search, tmp_path: Path) -> None:
    alone = Supernet(space(depths=(1,), kernels=(3,), expansions=(3,)))
    save_supernet(alone, tmp_path / "alone.safetensors")
    with pytest.raises(PocketuneError, match=r"alone\.safetensors has a single sub-network"):
        search(supernet=tmp_path / "alone.safetensors")


def test_a_size_that_the_supernet_does_not_have(search: Search) -> None:
    with pytest.raises(PocketuneError, match="no images of 64 px: choose a size of 32"):
        search(size=64)
