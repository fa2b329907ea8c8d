"""The eager engine against the same step written out in plain PyTorch."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from pocketune.device.engine.base import Engine, draw_masks
from pocketune.eager.engine import TorchEngine
from pocketune.errors import PocketuneError
from pocketune.kit.manifest import MaskSpec
from pocketune.methods import BiasAndLast, FullFineTune, Method, TopBlocks, adapt
from pocketune.networks import about, normalize
from pocketune.tasks import Classification, numbered
from pocketune.weights import create_network

BATCH, SIZE, CLASSES = 4, 32, 5
METHODS = [FullFineTune(), BiasAndLast(), TopBlocks(blocks=2)]


@pytest.fixture(scope="module")
def original() -> nn.Module:
    torch.manual_seed(0)
    return create_network("mobilenet_v2", width=0.35, classes=CLASSES)


def engine_of(network: nn.Module, label_smoothing: float = 0.0, device: str = "cpu") -> TorchEngine:
    task = Classification(numbered(CLASSES), label_smoothing=label_smoothing)
    return TorchEngine(network, batch=BATCH, size=SIZE, task=task, device=device)


def images(seed: int = 0, count: int = BATCH) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, SIZE, SIZE, 3), dtype=np.uint8)


def labels(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, CLASSES, BATCH)


def step(engine: Engine, seed: int = 0, lr: float = 0.05) -> float:
    """One step of gradient descent, as the training loop takes it: in place."""
    result = engine.gradients(images(seed), labels(seed), np.random.default_rng(seed))
    for name, gradient in result.values.items():
        engine.parameters[name] -= lr * gradient
    return result.loss


def pixels_of(network: nn.Module, pixels: np.ndarray) -> torch.Tensor:
    normalization = about(network).normalization
    mean, std = torch.tensor(normalization.mean), torch.tensor(normalization.std)
    return ((torch.from_numpy(pixels) / 255 - mean) / std).permute(0, 3, 1, 2)


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_gradients_are_those_of_plain_pytorch(
    original: nn.Module, method: Method, label_smoothing: float
) -> None:
    reference = adapt(original, method).train()
    reference.classifier[0].p = 0.0
    engine = engine_of(adapt(original, method), label_smoothing)
    result = engine.gradients(images(), labels(), np.random.default_rng(3))

    spec = MaskSpec("mask", (BATCH, 1280), 0.8)
    mask = torch.from_numpy(draw_masks([spec], np.random.default_rng(3))["mask"])
    pixels = normalize(reference, images())
    features = reference.features(pixels).mean((2, 3))
    logits = reference.classifier(features * mask)
    target = torch.from_numpy(labels())
    loss = functional.cross_entropy(logits, target, label_smoothing=label_smoothing)
    loss.backward()

    assert result.loss == pytest.approx(loss.item(), rel=1e-5)
    assert result.metrics == {"correct": int((logits.argmax(1) == target).sum())}
    expected = {name: p.grad for name, p in reference.named_parameters() if p.requires_grad}
    assert result.values.keys() == expected.keys() == engine.parameters.keys()
    for name, gradient in result.values.items():
        scale = float(expected[name].abs().max())
        atol = 1e-3 * scale + 1e-6
        np.testing.assert_allclose(gradient, expected[name], rtol=0, atol=atol, err_msg=name)
        assert gradient.shape == engine.parameters[name].shape
        assert gradient.dtype == np.float32
        assert gradient.flags.c_contiguous
    buffers = dict(reference.named_buffers())
    for name, statistic in engine.statistics.items():
        np.testing.assert_allclose(statistic, buffers[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("method", "prefixes"),
    [(TopBlocks(blocks=2), ["16", "17", "18"]), (BiasAndLast(), [])],
    ids=str,
)
def test_statistics_are_those_of_norms_on_batch_statistics(
    original: nn.Module, method: Method, prefixes: list[str]
) -> None:
    engine = engine_of(adapt(original, method))
    assert sorted({name.split(".")[1] for name in engine.statistics}) == prefixes
    kinds = {name.rpartition(".")[2] for name in engine.statistics}
    assert kinds <= {"running_mean", "running_var"}


def test_training_lowers_the_loss(original: nn.Module) -> None:
    engine = engine_of(adapt(original, TopBlocks(blocks=2)))
    losses = []
    for _ in range(8):
        result = engine.gradients(images(), labels(), np.random.default_rng(0))
        losses.append(result.loss)
        for name, gradient in result.values.items():
            engine.parameters[name] -= 0.05 * gradient
    assert losses[-1] < 0.5 * losses[0]


def test_arrays_are_live_and_fit_for_an_optimizer(original: nn.Module) -> None:
    network = adapt(original, FullFineTune()).to(memory_format=torch.channels_last)
    engine = engine_of(network)
    arrays = {**engine.parameters, **engine.statistics}
    before = engine.state()
    step(engine)
    for name, array in {**engine.parameters, **engine.statistics}.items():
        assert array is arrays[name]
        assert array.dtype == np.float32
        assert array.flags.c_contiguous
        assert array.flags.writeable
    assert not np.array_equal(
        before["features.0.1.running_mean"], arrays["features.0.1.running_mean"]
    )
    logits = engine.predict(images())
    engine.parameters["classifier.1.bias"] += 1
    np.testing.assert_allclose(engine.predict(images()), logits + 1, rtol=1e-5, atol=1e-5)


def test_predict_is_evaluation_for_any_number_of_images(original: nn.Module) -> None:
    network = adapt(original, FullFineTune())
    expected = copy.deepcopy(network).eval()(pixels_of(network, images(count=7)))
    engine = engine_of(network)
    before = engine.state()
    logits = engine.predict(images(count=7))
    assert logits.shape == (7, CLASSES)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, expected.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(engine.predict(images(count=7)), logits)
    assert engine.predict(images(count=0)).shape == (0, CLASSES)
    for name, array in engine.state().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


def test_dropout_follows_the_generator_it_is_given(original: nn.Module) -> None:
    def bias_gradient(seed: int) -> np.ndarray:
        engine = engine_of(adapt(original, BiasAndLast()))
        rng = np.random.default_rng(seed)
        return engine.gradients(images(), labels(), rng).values["classifier.1.weight"]

    np.testing.assert_array_equal(bias_gradient(1), bias_gradient(1))
    assert not np.array_equal(bias_gradient(1), bias_gradient(2))


def test_loading_a_state_goes_back_to_it_exactly(original: nn.Module) -> None:
    engine = engine_of(adapt(original, FullFineTune()))
    step(engine, seed=0)
    saved = engine.state()
    losses = [step(engine, seed) for seed in (1, 2)]
    engine.load(saved)
    assert [step(engine, seed) for seed in (1, 2)] == losses


def test_a_state_is_a_copy(original: nn.Module) -> None:
    engine = engine_of(adapt(original, TopBlocks(blocks=1)))
    state = engine.state()
    assert state.keys() == engine.parameters.keys() | engine.statistics.keys()
    kept = {name: array.copy() for name, array in state.items()}
    step(engine)
    assert all(np.array_equal(state[name], kept[name]) for name in state)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: state.pop("classifier.1.bias"), "lacks the tensor classifier.1.bias"),
        (lambda state: state.update({"classifier.1.bias": np.zeros(9, np.float32)}), r"\(9,\)"),
    ],
)
def test_loading_a_foreign_state_is_an_error_and_changes_nothing(
    original: nn.Module, spoil: Callable[[dict[str, np.ndarray]], object], message: str
) -> None:
    engine = engine_of(adapt(original, BiasAndLast()))
    before = engine.state()
    state = {name: array + 1 for name, array in before.items()}
    spoil(state)
    with pytest.raises(PocketuneError, match=message):
        engine.load(state)
    assert all(np.array_equal(array, before[name]) for name, array in engine.state().items())


def test_another_batch_than_it_was_made_for_is_an_error(original: nn.Module) -> None:
    engine = engine_of(adapt(original, BiasAndLast()))
    with pytest.raises(ValueError, match=r"\(3, 32, 32, 3\), not \(4, 32, 32, 3\)"):
        engine.gradients(images(count=3), labels()[:3], np.random.default_rng(0))


def test_layers_that_draw_random_numbers_are_an_error(original: nn.Module) -> None:
    with pytest.raises(PocketuneError, match=r"module '0': .* draws random numbers"):
        engine_of(nn.Sequential(nn.RReLU(), adapt(original, BiasAndLast())))


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_there(original: nn.Module, device: str) -> None:
    with pytest.raises(PocketuneError, match=f"device '{device}' here; use 'cpu'"):
        engine_of(adapt(original, BiasAndLast()), device=device)


def test_mirrored_arrays_give_the_same_run(original: nn.Module) -> None:
    """As on a GPU: the arrays are copies, sent before a call and fetched after it."""
    plain, mirrored = (engine_of(adapt(original, TopBlocks(blocks=2))) for _ in range(2))
    mirrored._mirrored = True
    mirrored.parameters = {name: array.copy() for name, array in mirrored.parameters.items()}
    mirrored.statistics = {name: array.copy() for name, array in mirrored.statistics.items()}
    for seed in range(3):
        assert step(mirrored, seed) == step(plain, seed)
    np.testing.assert_array_equal(mirrored.predict(images()), plain.predict(images()))
    expected = plain.state()
    for name, array in mirrored.state().items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_cuda_follows_the_cpu(original: nn.Module, method: Method) -> None:
    cpu = engine_of(adapt(original, method))
    cuda = engine_of(adapt(original, method), device="cuda")
    arrays = {**cuda.parameters, **cuda.statistics}
    for seed in range(3):
        assert step(cuda, seed) == pytest.approx(step(cpu, seed), rel=1e-2)
    np.testing.assert_allclose(cuda.predict(images()), cpu.predict(images()), rtol=0.05, atol=0.05)
    assert all(array is arrays[n] for n, array in {**cuda.parameters, **cuda.statistics}.items())


def test_without_the_name_of_the_output_layer_there_are_no_embeddings(original: nn.Module) -> None:
    engine = engine_of(adapt(original, FullFineTune()))
    with pytest.raises(PocketuneError, match="no embeddings"):
        engine.embed(images())
