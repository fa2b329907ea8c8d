"""The time of a step follows from the work in the manifest and the speed of the machine."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.device import speed as speed_module
from pocketune.device.engine import session
from pocketune.device.speed import (
    Speed,
    estimate_step,
    measure_speed,
)
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import GraphSpec, Manifest, Work, WorkKind

SPEED = Speed(1e-6, {"matrix": 1e-9, "elementwise": 2e-9}, 1e-10)


@pytest.fixture(scope="module")
def blocks() -> Manifest:
    return Kit.open("blocks").manifest


@pytest.fixture(scope="module")
def measured() -> Speed:
    return speed_module._measure()


def with_work(manifest: Manifest, **work: dict[str, Work]) -> Manifest:
    graphs = {name: replace(manifest.graphs[name], work=each) for name, each in work.items()}
    return replace(manifest, graphs={**manifest.graphs, **graphs})


def test_calls_operations_and_bytes_are_added_up() -> None:
    work = {"matrix": Work(3, 1000, 50), "elementwise": Work(2, 7, 400), "move": Work(1, 0, 80)}
    assert SPEED.seconds(work) == pytest.approx(6e-6 + 1000e-9 + 800e-9)


def test_a_step_runs_the_frozen_part_for_every_image(blocks: Manifest) -> None:
    frozen = with_work(blocks, features={"matrix": Work(10, 1000, 0)}, step={})
    calls = -(-blocks.batch // blocks.images_at_once)
    found = estimate_step(frozen, SPEED, slots=0)
    update = estimate_step(with_work(blocks, features={}, step={}), SPEED, slots=0)
    assert found - update == pytest.approx(calls * 10e-6 + blocks.batch * 1000e-9)


def test_an_update_takes_time_for_every_parameter_and_its_state(blocks: Manifest) -> None:
    none, two = (estimate_step(blocks, SPEED, slots=slots) for slots in (0, 2))
    size = sum(4 * p.size for p in Kit.open("blocks").state().values())
    assert 0 < two - none <= 2 * size * SPEED.update


@given(accumulate=st.integers(1, 16))
def test_accumulated_batches_take_their_time_each(accumulate: int) -> None:
    manifest = Kit.open("last").manifest
    one, several = (estimate_step(manifest, SPEED, accumulate=n) for n in (1, accumulate))
    update = estimate_step(with_work(manifest, features={}, step={}), SPEED)
    assert several - update == pytest.approx(accumulate * (one - update))


def test_every_micro_batch_takes_its_time(blocks: Manifest) -> None:
    whole = replace(blocks, statistics=(), masks=())
    whole = with_work(whole, features={}, step={"matrix": Work(1, 7, 0)})
    parts = replace(whole, micro_batch=whole.batch // 4)
    update = estimate_step(with_work(whole, step={}), SPEED)
    one, four = (estimate_step(each, SPEED) - update for each in (whole, parts))
    assert four == pytest.approx(4 * one)


def test_more_classes_take_longer_to_update(blocks: Manifest) -> None:
    assert estimate_step(blocks, SPEED, classes=1000) > estimate_step(blocks, SPEED)


def test_every_kind_of_work_is_measured(measured: Speed) -> None:
    assert set(measured.rates) == set(get_args(WorkKind))
    assert all(0 < rate < 1e-6 for rate in measured.rates.values())
    assert 0 < measured.call < 1e-3
    assert 0 < measured.update < 1e-6


def test_a_larger_step_is_estimated_to_take_longer(measured: Speed, blocks: Manifest) -> None:
    assert estimate_step(blocks, measured) > estimate_step(Kit.open("last").manifest, measured) > 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Speed]:
    """Speeds that were measured, with a cache of their own."""
    made: list[Speed] = []

    def measure() -> Speed:
        made.append(SPEED)
        return SPEED

    monkeypatch.setenv("POCKETUNE_CACHE", str(tmp_path))
    monkeypatch.setattr(speed_module, "_measure", measure)
    return made


def test_a_machine_is_measured_once(counted: list[Speed]) -> None:
    assert measure_speed() == measure_speed() == SPEED
    assert len(counted) == 1


@pytest.mark.parametrize("name", ["RUNTIME", "cores"])
def test_another_runtime_or_number_of_cores_is_measured_again(
    name: str, counted: list[Speed], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_speed()
    if name == "RUNTIME":
        monkeypatch.setattr(speed_module, "RUNTIME", "onnxruntime 99")
    else:
        monkeypatch.setattr("pocketune.device.machine.available_cores", lambda: 99)
    measure_speed()
    assert len(counted) == 2


@pytest.mark.parametrize("damage", [b"", b"{", b'{"call": 1}', b"[]"])
def test_a_damaged_measurement_is_repeated(
    damage: bytes, counted: list[Speed], tmp_path: Path
) -> None:
    measure_speed()
    (kept,) = tmp_path.rglob("*.json")
    kept.write_bytes(damage)
    assert measure_speed() == SPEED
    assert len(counted) == 2
    assert json.loads(kept.read_bytes())["call"] == SPEED.call


def test_a_cache_that_cannot_be_written_is_no_error(
    counted: list[Speed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("POCKETUNE_CACHE", str(tmp_path / "file"))
    assert measure_speed() == SPEED
    assert counted


def test_the_graphs_of_a_kit_say_what_work_they_do(blocks: Manifest) -> None:
    for spec in blocks.graphs.values():
        assert isinstance(spec, GraphSpec)
        assert set(spec.work) <= set(get_args(WorkKind))
        assert sum(work.calls for work in spec.work.values()) <= spec.nodes


@pytest.mark.parametrize("saturate", [False, True])
def test_integer_probes_open_on_processors_with_and_without_vnni(
    saturate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "products_saturate", lambda: saturate)
    with zipfile.ZipFile(speed_module._PROBES) as archive:
        probes = json.loads(archive.read("probes.json"))
        integer = [n for n, probe in enumerate(probes) if probe["kind"].startswith("integer")]
        assert integer
        for number in integer:
            speed_module._runner(archive.read(f"{number}.onnx"), probes[number])()
