"""The ONNX engine on tiny kits, against the same network in numpy and its finite differences."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from pocketune.device.engine import base as interface
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.errors import PocketuneError
from pocketune.kit import manifest
from pocketune.kit.manifest import KitError

from ..tiny_kit import MOMENTUM, WIDTH, TinyKit
from .expected import batch, features, logits, loss_of, make

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
