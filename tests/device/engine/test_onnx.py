"""The ONNX engine on tiny kits, against the same network in numpy and its finite differences."""

import tracemalloc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketune.device.engine import base as interface
from pocketune.device.engine import onnx as onnx_engine
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.errors import PocketuneError
from pocketune.kit import manifest
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import KitError

from ..tiny_kit import MOMENTUM, WIDTH, TinyKit

KITS = [
    pytest.param(TinyKit(frozen_part=f, statistic=s, masks=n), id=f"{f:d}{s:d}{n:d}")
    for f in (True, False)
    for s in (True, False)
    for n in (True, False)
]
KITS += [
    pytest.param(
        TinyKit(frozen_part=f, statistic=False, masks=n, micro_batch=size), id=f"{f:d}0{n:d}-{size}"
    )
    for f in (True, False)
    for n in (True, False)
    for size in (1, 2)
]


def batch(tiny: TinyKit, seed: int = 0, n: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    n = tiny.batch if n is None else n
    images = rng.integers(0, 256, (n, tiny.size, tiny.size, 3), dtype=np.uint8)
    return images, rng.integers(0, len(tiny.classes), n)


def make(tiny: TinyKit, tmp_path: Path) -> OnnxEngine:
    kit = tiny.write(tmp_path / "kit")
    return OnnxEngine(kit, kit.state())


def features(tiny: TinyKit, images: np.ndarray) -> np.ndarray:
    pixels = images.reshape(len(images), 3 * tiny.size**2).astype(np.float64) / 255
    return np.maximum(pixels @ tiny.frozen(), 0)


def logits(
    tiny: TinyKit, state: dict[str, np.ndarray], images: np.ndarray, mask: np.ndarray | float = 1.0
) -> np.ndarray:
    hidden = (features(tiny, images) - state.get("norm.running_mean", 0)) * mask
    result: np.ndarray = state["scale"] * (hidden @ state["fc.weight"].T + state["fc.bias"])
    return result


def loss_of(logits: np.ndarray, labels: np.ndarray) -> float:
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return float(-log_p[np.arange(len(labels)), labels].mean())


def draw_mask(tiny: TinyKit, rng: np.random.Generator) -> np.ndarray | float:
    if not tiny.masks:
        return 1.0
    (spec,) = tiny.manifest().masks
    return np.concatenate([spec.draw(rng) for _ in range(tiny.batch // tiny.at_once)])


def test_is_an_engine(tmp_path: Path) -> None:
    engine: interface.Engine = make(TinyKit(), tmp_path)
    assert set(engine.parameters) == {"fc.weight", "fc.bias", "scale"}
    assert set(engine.statistics) == {"norm.running_mean"}


@pytest.mark.parametrize("tiny", KITS)
def test_gradients_are_those_of_the_loss(tiny: TinyKit, tmp_path: Path) -> None:
    engine = make(tiny, tmp_path)
    images, labels = batch(tiny)
    result = engine.gradients(images, labels, np.random.default_rng(5))
    mask = draw_mask(tiny, np.random.default_rng(5))
    state = {name: value.astype(np.float64) for name, value in tiny.state().items()}

    def loss() -> float:
        return loss_of(logits(tiny, state, images, mask), labels)

    assert result.loss == pytest.approx(loss(), rel=1e-5)
    right = (logits(tiny, state, images, mask).argmax(1) == labels).sum()
    assert result.metrics == {"correct": right}
    assert set(result.values) == set(engine.parameters)
    for name, gradient in result.values.items():
        expected = np.empty_like(state[name])
        for index in np.ndindex(expected.shape):
            value, losses = float(state[name][index]), []
            for side in (1e-5, -1e-5):
                state[name][index] = value + side
                losses.append(loss())
            state[name][index] = value
            expected[index] = (losses[0] - losses[1]) / 2e-5
        assert gradient.shape == state[name].shape
        assert gradient.dtype == np.float32
        np.testing.assert_allclose(gradient, expected, atol=1e-5)


@pytest.mark.parametrize("tiny", KITS)
@pytest.mark.parametrize("n", [0, 1, 4, 11])
def test_predict_takes_any_number_of_images(tiny: TinyKit, tmp_path: Path, n: int) -> None:
    images, _ = batch(tiny, n=n)
    result = make(tiny, tmp_path).predict(images)
    assert result.shape == (n, 3)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, logits(tiny, tiny.state(), images), atol=1e-4)


@pytest.mark.parametrize("tiny", KITS)
@pytest.mark.parametrize("n", [0, 1, 4, 11])
def test_embeddings_are_what_the_output_layer_reads(tiny: TinyKit, tmp_path: Path, n: int) -> None:
    engine = make(tiny, tmp_path)
    images, _ = batch(tiny, n=n)
    result = engine.embed(images)
    assert result.dtype == np.float32
    weight, bias, scale = (engine.parameters[name] for name in ("fc.weight", "fc.bias", "scale"))
    expected = scale * (result @ weight.T + bias)
    np.testing.assert_allclose(engine.predict(images), expected, atol=1e-4)


@pytest.mark.parametrize("tiny", KITS)
@pytest.mark.parametrize("n", [1, 4])
def test_a_prediction_in_two_parts_is_the_whole(tiny: TinyKit, tmp_path: Path, n: int) -> None:
    engine = make(tiny, tmp_path)
    images, _ = batch(tiny, n=n)
    prepared = engine.prepare(images)
    outputs, embeddings = engine.complete_with_embeddings(prepared)
    np.testing.assert_array_equal(outputs, engine.predict(images))
    np.testing.assert_array_equal(embeddings, engine.embed(images))
    np.testing.assert_array_equal(engine.complete(prepared), outputs)


@pytest.mark.parametrize("tiny", KITS)
def test_a_few_predictions_at_once_are_those_of_a_batch(
    tiny: TinyKit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make(tiny, tmp_path)
    images, _ = batch(tiny, n=11)
    expected = engine.predict(images), engine.embed(images)
    predict = engine._kit.manifest.graphs["predict"]
    monkeypatch.setattr(manifest, "_PREDICT_BYTES", 1.5 * predict.memory / tiny.at_once)
    assert engine._kit.manifest.predictions_at_once == 1
    found = engine.predict(images), engine.embed(images)
    prepared = engine.complete_with_embeddings(engine.prepare(images))
    for ours in (found, prepared):
        np.testing.assert_allclose(ours[0], expected[0], atol=1e-5)
        np.testing.assert_allclose(ours[1], expected[1], atol=1e-5)


def test_a_kit_without_embeddings_predicts_and_says_so(tmp_path: Path) -> None:
    tiny = TinyKit(embeddings=False)
    kit = tiny.write(tmp_path / "kit")
    engine, (images, _) = OnnxEngine(kit, kit.state()), batch(tiny)
    assert engine.predict(images).shape == (4, 3)
    with pytest.raises(PocketuneError, match="no embeddings"):
        engine.embed(images)


def test_statistics_are_updated_in_place_by_training_only(tmp_path: Path) -> None:
    tiny = TinyKit()
    engine = make(tiny, tmp_path)
    images, labels = batch(tiny)
    array = engine.statistics["norm.running_mean"]
    before = array.copy()
    engine.predict(images)
    assert np.array_equal(array, before)
    engine.gradients(images, labels, np.random.default_rng(0))
    expected = (1 - MOMENTUM) * before + MOMENTUM * features(tiny, images).mean(0)
    np.testing.assert_allclose(array, expected, atol=1e-6)
    assert engine.statistics["norm.running_mean"] is array


@pytest.mark.parametrize("name", ["fc.weight", "fc.bias", "scale"])
def test_parameters_written_in_place_are_seen_by_the_next_call(tmp_path: Path, name: str) -> None:
    tiny = TinyKit(masks=False, statistic=False)
    engine = make(tiny, tmp_path)
    images, labels = batch(tiny)
    rng = np.random.default_rng(0)
    losses = [engine.gradients(images, labels, rng).loss]
    outputs = [engine.predict(images)]
    engine.parameters[name] *= 1.5
    losses.append(engine.gradients(images, labels, rng).loss)
    outputs.append(engine.predict(images))
    expected = logits(tiny, engine.parameters, images)
    np.testing.assert_allclose(outputs[1], expected, atol=1e-4)
    assert losses[1] == pytest.approx(loss_of(expected, labels), rel=1e-5)
    assert losses[0] != losses[1]


def test_gradients_of_one_step_survive_the_next(tmp_path: Path) -> None:
    tiny = TinyKit()
    engine = make(tiny, tmp_path)
    rng = np.random.default_rng(0)
    first = engine.gradients(*batch(tiny), rng).values
    copies = {name: value.copy() for name, value in first.items()}
    for seed in range(1, 20):
        engine.gradients(*batch(tiny, seed), rng)
    for name, value in first.items():
        assert np.array_equal(value, copies[name])


def test_masks_come_from_the_generator(tmp_path: Path) -> None:
    tiny = TinyKit()
    engine = make(tiny, tmp_path)
    start = engine.state()

    def loss(seed: int) -> float:
        engine.load(start)
        return engine.gradients(*batch(tiny), np.random.default_rng(seed)).loss

    assert loss(1) == loss(1)
    assert loss(1) != loss(2)


def test_state_and_load(tmp_path: Path) -> None:
    tiny = TinyKit()
    engine = make(tiny, tmp_path)
    images, labels = batch(tiny)
    saved, before = engine.state(), engine.predict(images)
    arrays = dict(engine.parameters)
    engine.gradients(images, labels, np.random.default_rng(0))
    for array in engine.parameters.values():
        array += 1
    assert not np.array_equal(engine.predict(images), before)
    engine.load(saved)
    assert np.array_equal(engine.predict(images), before)
    assert all(engine.parameters[name] is array for name, array in arrays.items())


def test_loading_copies_nothing(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    head = {"fc.weight": (200_000, WIDTH), "fc.bias": (200_000,)}
    state = kit.state() | {name: np.ones(shape, np.float32) for name, shape in head.items()}
    engine = OnnxEngine(kit, state)
    tracemalloc.start()
    try:
        engine.load(state)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"scale": None}, "lacks the tensor scale"),
        ({"fc.bias": np.zeros(4, np.float32)}, "holds fc.bias as float32 of shape"),
        ({"norm.running_mean": np.zeros(WIDTH + 1, np.float32)}, "holds norm.running_mean"),
    ],
)
def test_load_refuses_another_networks_state_and_writes_nothing(
    tmp_path: Path, change: dict[str, np.ndarray | None], expected: str
) -> None:
    engine = make(TinyKit(), tmp_path)
    before = engine.state()
    state = {name: value + 1 for name, value in before.items()} | change
    with pytest.raises(KitError, match=expected):
        engine.load({name: value for name, value in state.items() if value is not None})
    assert all(np.array_equal(value, before[name]) for name, value in engine.state().items())


@pytest.mark.parametrize("classes", [1, 2, 9])
def test_one_kit_serves_any_number_of_classes(tmp_path: Path, classes: int) -> None:
    tiny = TinyKit(masks=False)
    kit = tiny.write(tmp_path / "kit")
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(classes, WIDTH)).astype(np.float32)
    state = {**kit.state(), "fc.weight": weight, "fc.bias": np.zeros(classes, np.float32)}
    engine = OnnxEngine(kit, state)
    images, labels = batch(tiny)
    np.testing.assert_allclose(engine.predict(images), logits(tiny, state, images), atol=1e-4)
    result = engine.gradients(images, labels % classes, rng)
    expected = loss_of(logits(tiny, state, images), labels % classes)
    assert result.loss == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert result.values["fc.weight"].shape == (classes, WIDTH)


def test_the_state_given_is_copied(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    state = kit.state()
    engine = OnnxEngine(kit, state)
    before = engine.state()
    state["fc.weight"] += 1
    assert np.array_equal(engine.parameters["fc.weight"], before["fc.weight"])


def test_zipped_kit_computes_the_same(tmp_path: Path) -> None:
    tiny = TinyKit()
    results = []
    for name in ("kit", "kit.zip"):
        kit = tiny.write(tmp_path / name)
        engine = OnnxEngine(kit, kit.state())
        results.append(engine.gradients(*batch(tiny), np.random.default_rng(0)))
    assert results[0].loss == results[1].loss
    for name, value in results[0].values.items():
        assert np.array_equal(value, results[1].values[name])


@pytest.mark.parametrize(
    ("images", "labels"), [((3, 8, 8, 3), 3), ((4, 8, 9, 3), 4), ((4, 8, 8, 3), 5)]
)
def test_a_batch_of_another_shape(tmp_path: Path, images: tuple[int, ...], labels: int) -> None:
    engine = make(TinyKit(), tmp_path)
    with pytest.raises(ValueError, match="a batch has shapes"):
        engine.gradients(
            np.zeros(images, np.uint8), np.zeros(labels, np.int64), np.random.default_rng(0)
        )


def test_graphs_are_opened_when_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    original = onnx_engine.Graph.__init__

    def record(self: onnx_engine.Graph, kit: Kit, name: str, **rest: object) -> None:
        opened.append(name)
        original(self, kit, name, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(onnx_engine.Graph, "__init__", record)
    tiny = TinyKit()
    engine = make(tiny, tmp_path)
    assert opened == []
    for _ in range(2):
        engine.gradients(*batch(tiny), np.random.default_rng(0))
    assert opened == ["step.onnx", "features.onnx"]
    for _ in range(2):
        engine.predict(batch(tiny)[0])
    assert opened == ["step.onnx", "features.onnx", "predict.onnx"]


@pytest.mark.parametrize(("live", "at_once"), [(64 << 20, 1), (2 << 20, 2), (1 << 10, 4)])
def test_the_frozen_part_takes_large_images_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: int, at_once: int
) -> None:
    tiny = TinyKit()
    seen: list[int] = []
    original = onnx_engine.Graph.run

    def record(
        self: onnx_engine.Graph, feeds: dict[str, np.ndarray], **rest: Any
    ) -> dict[str, np.ndarray]:
        if set(feeds) == {"images"}:
            seen.append(len(feeds["images"]))
        return original(self, feeds, **rest)

    monkeypatch.setattr(onnx_engine.Graph, "run", record)
    kit = tiny.write(tmp_path / "kit")
    spec = kit.manifest.graphs["features"]
    kit.manifest.graphs["features"] = replace(spec, memory=live)
    images, _ = batch(tiny)
    result = OnnxEngine(kit, kit.state()).predict(images)
    assert seen == [at_once] * (4 // at_once)
    np.testing.assert_allclose(result, logits(tiny, tiny.state(), images), atol=1e-4)


def test_one_of_step_and_predict_is_open_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = TinyKit(frozen_part=False, statistic=False, masks=False)
    engine, opened = make(tiny, tmp_path), []
    graph = onnx_engine.Graph

    def count(kit: Kit, name: str, **others: object) -> object:
        opened.append((name, weakref.ref(made := graph(kit, name, **others))))  # type: ignore[arg-type]
        return made

    monkeypatch.setattr(onnx_engine, "Graph", count)
    images, labels = batch(tiny)
    for _ in range(2):
        engine.gradients(images, labels, np.random.default_rng(0))
        engine.gradients(images, labels, np.random.default_rng(0))
        engine.predict(images)
    assert [name for name, _ in opened] == ["step.onnx", "predict.onnx"] * 2
    assert [alive() is not None for _, alive in opened] == [False, False, False, True]


@pytest.mark.parametrize("classes", [("cat", "dog", "owl"), ("a", "b")])
def test_swapped_values_compute_as_an_engine_of_their_own(
    tmp_path: Path, classes: tuple[str, ...]
) -> None:
    engine, other = make(TinyKit(), tmp_path), TinyKit(classes=classes)
    images, _ = batch(TinyKit())
    before = engine.predict(images)
    engine.swap(other.state())
    expected = OnnxEngine(TinyKit().write(tmp_path / "again"), other.state())
    np.testing.assert_array_equal(engine.predict(images), expected.predict(images))
    np.testing.assert_array_equal(engine.complete(engine.prepare(images)), engine.predict(images))
    assert engine.parameters["fc.weight"].shape == (len(classes), WIDTH)
    engine.swap(TinyKit().state())
    np.testing.assert_array_equal(engine.predict(images), before)


def test_swapping_opens_no_graph_again(tmp_path: Path) -> None:
    engine = make(TinyKit(), tmp_path)
    images, _ = batch(TinyKit())
    engine.predict(images)
    assert engine._open is not None
    opened = engine._open[1]
    engine.swap(TinyKit(classes=("a", "b")).state())
    assert engine.predict(images).shape == (4, 2)
    assert engine._open[1] is opened


def test_values_that_do_not_fit_are_not_swapped_in(tmp_path: Path) -> None:
    engine = make(TinyKit(), tmp_path)
    images, _ = batch(TinyKit())
    before = engine.predict(images)
    with pytest.raises(KitError, match="the state lacks the tensor scale"):
        engine.swap({name: v for name, v in TinyKit().state().items() if name != "scale"})
    np.testing.assert_array_equal(engine.predict(images), before)
