"""Optimizers against torch.optim, the arrays they work on, and the learning rate over a run."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketune.device.train.optimizer import (
    BLOCK,
    OPTIMIZERS,
    SGD,
    Adam,
    Adam8,
    Optimizer,
    clip_scale,
    create_optimizer,
    gradient_norm,
    state_slots,
)
from pocketune.errors import PocketuneError

SHAPES = {"conv": (8, 6, 3, 3), "long": (BLOCK + 7, 1), "bias": (40,), "scalar": ()}
STEPS = 15


def arrays(rng: np.random.Generator, scale: float = 1.0) -> dict[str, np.ndarray]:
    return {
        name: np.array(rng.standard_normal(shape) * scale, np.float32, order="C")
        for name, shape in SHAPES.items()
    }


def torch_optimizer(torch, name: str, parameters, *, momentum: float, weight_decay: float):
    """torch's optimizer with the decay on weights only, as ours has it."""
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if name == "sgd":
        return torch.optim.SGD(groups, lr=0.0, momentum=momentum)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name](groups, lr=0.0)


@pytest.mark.parametrize("clip", [None, 5.0])
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize(
    ("name", "momentum"), [("sgd", 0.0), ("sgd", 0.9), ("adam", 0.9), ("adamw", 0.9)]
)
def test_equals_torch(name: str, momentum: float, weight_decay: float, clip: float | None) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    ours = arrays(rng)
    theirs = {k: torch.nn.Parameter(torch.from_numpy(v.copy())) for k, v in ours.items()}
    optimizer = create_optimizer(name, ours, momentum=momentum, weight_decay=weight_decay)
    reference = torch_optimizer(
        torch, name, theirs.values(), momentum=momentum, weight_decay=weight_decay
    )
    for step in range(STEPS):
        gradients = arrays(rng, scale=0.1)
        lr = 1e-2 / (1 + step)
        for key, parameter in theirs.items():
            parameter.grad = torch.from_numpy(gradients[key].copy())
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(theirs.values(), clip)
        for group in reference.param_groups:
            group["lr"] = lr
        reference.step()
        optimizer.step(gradients, lr=lr, scale=clip_scale(gradient_norm(gradients), clip))
    for key, parameter in theirs.items():
        np.testing.assert_allclose(ours[key], parameter.detach().numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_rates_are_those_of_torch_groups(name: str) -> None:
    torch = pytest.importorskip("torch")
    rng, rates = np.random.default_rng(4), {"conv": 5.0, "bias": 0.1}
    ours = arrays(rng)
    theirs = {k: torch.nn.Parameter(torch.from_numpy(v.copy())) for k, v in ours.items()}
    optimizer = create_optimizer(name, ours, weight_decay=0.05, rates=rates)
    reference = torch_optimizer(torch, name, theirs.values(), momentum=0.9, weight_decay=0.05)
    groups = [
        {**group, "params": [parameter], "factor": rates.get(key, 1.0)}
        for group in reference.param_groups
        for parameter in group["params"]
        for key in theirs
        if theirs[key] is parameter
    ]
    reference.param_groups = groups
    for step in range(STEPS):
        gradients = arrays(rng, scale=0.1)
        lr = 0.01 / (step + 1)
        optimizer.step(gradients, lr=lr)
        for key, parameter in theirs.items():
            parameter.grad = torch.from_numpy(gradients[key].copy())
        for group in groups:
            group["lr"] = lr * group["factor"]
        reference.step()
    for key, parameter in theirs.items():
        np.testing.assert_allclose(ours[key], parameter.detach().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_writes_in_place_and_leaves_gradients_alone(name: str) -> None:
    rng = np.random.default_rng(0)
    parameters, gradients = arrays(rng), arrays(rng)
    for gradient in gradients.values():
        gradient.flags.writeable = False
    kept, before = dict(parameters), {k: v.copy() for k, v in parameters.items()}
    create_optimizer(name, parameters, weight_decay=0.1).step(gradients, lr=0.1, scale=0.5)
    for key, array in parameters.items():
        assert array is kept[key]
        assert not np.array_equal(array, before[key])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_takes_gradients_of_any_layout(name: str) -> None:
    rng = np.random.default_rng(0)
    start, gradients = arrays(rng), arrays(rng)
    strided = {k: np.asfortranarray(v) for k, v in gradients.items()}
    results = []
    for given_gradients in (gradients, strided):
        parameters = {k: v.copy() for k, v in start.items()}
        create_optimizer(name, parameters).step(given_gradients, lr=0.1)
        results.append(parameters)
    for key in SHAPES:
        np.testing.assert_array_equal(results[0][key], results[1][key])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_goes_on_from_its_state_with_the_same_bits(name: str, momentum: float) -> None:
    rng = np.random.default_rng(5)
    parameters = arrays(rng)
    steps = [arrays(rng) for _ in range(6)]
    optimizer: Optimizer = create_optimizer(name, parameters, momentum=momentum)
    for gradients in steps[:3]:
        optimizer.step(gradients, lr=0.01)
    copies = {k: v.copy() for k, v in parameters.items()}
    second = create_optimizer(name, copies, momentum=momentum)
    second.load({k: v.copy() for k, v in optimizer.state().items()}, steps=optimizer.steps)
    for gradients in steps[3:]:
        optimizer.step(gradients, lr=0.01)
        second.step(gradients, lr=0.01)
    for key in SHAPES:
        np.testing.assert_array_equal(parameters[key], copies[key])


def test_its_state_takes_as_much_as_it_says() -> None:
    parameters = {"w": np.zeros((2, 256), np.float32)}
    for name in OPTIMIZERS:
        for momentum in (0.0, 0.9):
            state = create_optimizer(name, parameters, momentum=momentum).state()
            size = sum(array.nbytes for array in state.values())
            assert size == state_slots(name, momentum) * parameters["w"].nbytes


@pytest.mark.parametrize("cls", [Adam, Adam8])
def test_scratch_does_not_grow_with_the_tensor(cls: type[Adam]) -> None:
    import tracemalloc

    parameters = {"w": np.zeros((64, BLOCK), np.float32)}
    gradients = {"w": np.ones((64, BLOCK), np.float32)}
    optimizer = cls(parameters, weight_decay=0.1)
    tracemalloc.start()
    try:
        optimizer.step(gradients, lr=0.1, scale=0.5)
        gradient_norm(gradients)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < BLOCK * 4


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 2), np.float64),
        np.zeros((4, 4), np.float32)[:, ::2],
        np.asfortranarray(np.zeros((2, 3), np.float32)),
        np.broadcast_to(np.float32(0), (3,)),
    ],
    ids=["double", "strided", "fortran", "read-only"],
)
def test_refuses_what_it_cannot_write_in_place(array: np.ndarray) -> None:
    with pytest.raises(ValueError, match="parameter w is not"):
        SGD({"w": array})


def test_refuses_a_foreign_state() -> None:
    optimizer = Adam({"w": np.zeros(3, np.float32)})
    with pytest.raises(ValueError, match="other names"):
        optimizer.load({}, steps=1)
    wrong = {k: np.zeros(4, np.float32) for k in optimizer.state()}
    with pytest.raises(ValueError, match="another size"):
        optimizer.load(wrong, steps=1)
    wrong = {k: np.zeros(3, np.int8) for k in optimizer.state()}
    with pytest.raises(ValueError, match="another size or type"):
        optimizer.load(wrong, steps=1)


def test_unknown_name() -> None:
    with pytest.raises(PocketuneError, match="unknown optimizer 'lion': choose one of adam, "):
        create_optimizer("lion", {})


@settings(max_examples=30)
@given(
    sizes=st.lists(st.integers(0, 20_000), min_size=1, max_size=4), seed=st.integers(0, 2**32 - 1)
)
def test_norm_over_all_gradients(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    gradients = {str(i): rng.standard_normal(n, np.float32) for i, n in enumerate(sizes)}
    exact = math.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in gradients.values()))
    assert gradient_norm(gradients) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_norm_is_not_finite_where_a_gradient_is_not(bad: float) -> None:
    gradients = {"a": np.ones(10, np.float32), "b": np.ones((3, 3), np.float32)}
    gradients["b"][1, 2] = bad
    assert not math.isfinite(gradient_norm(gradients))


def test_clip_scale() -> None:
    assert clip_scale(100.0, None) == 1.0
    assert clip_scale(0.5, 1.0) == 1.0
    assert clip_scale(0.0, 1.0) == 1.0
    assert clip_scale(4.0, 1.0) == pytest.approx(0.25, rel=1e-5)


def test_a_clipped_norm_is_the_limit() -> None:
    gradients = {"a": np.array([3, 4], np.float32), "b": np.zeros((0, 2), np.float32)}
    norm = gradient_norm(gradients)
    assert norm == 5
    clipped = {name: values * clip_scale(norm, 2.0) for name, values in gradients.items()}
    assert gradient_norm(clipped) == pytest.approx(2)


def test_a_gradient_of_nothing_is_not_scaled_up() -> None:
    assert clip_scale(0.0, 1.0) == 1
    assert gradient_norm({}) == 0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_zero_gradient_moves_nothing_without_decay(name: str) -> None:
    weight = np.array([[1, -2]], np.float32)
    optimizer = create_optimizer(name, {"w": weight})
    optimizer.step({"w": np.zeros((1, 2), np.float32)}, lr=0.5)
    assert weight.tolist() == [[1, -2]]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_rate_of_zero_freezes_a_parameter_alone(name: str) -> None:
    parameters = {n: np.ones(3, np.float32) for n in "ab"}
    optimizer = create_optimizer(name, parameters, rates={"a": 0.0})
    optimizer.step({n: np.ones(3, np.float32) for n in "ab"}, lr=0.1)
    assert parameters["a"].tolist() == [1, 1, 1]
    assert (parameters["b"] < 1).all()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_biases_and_norms_do_not_decay(name: str, shape: tuple[int, ...]) -> None:
    values = np.ones(shape, np.float32)
    optimizer = create_optimizer(name, {"a": values}, weight_decay=0.1)
    optimizer.step({"a": np.zeros(shape, np.float32)}, lr=0.1)
    assert (values == 1).all() == (len(shape) == 1)


def test_the_first_step_of_adam_is_the_learning_rate_whatever_the_gradient() -> None:
    values = np.zeros(3, np.float32)
    gradient = np.array([1e-3, -5, 1e4], np.float32)
    create_optimizer("adam", {"a": values}).step({"a": gradient}, lr=0.1)
    np.testing.assert_allclose(values, [-0.1, 0.1, -0.1], rtol=1e-4)


def test_the_8_bit_optimizer_rounds_otherwise_in_each_step() -> None:
    """Rounding alike in all steps would keep small gradients from ever adding up."""
    gradient = np.linspace(0.1, 1, 256, dtype=np.float32)
    codes = []
    for steps in (0, 1):
        optimizer = create_optimizer("adam8", {"a": np.zeros(256, np.float32)})
        optimizer.load(optimizer.state(), steps=steps)
        optimizer.step({"a": gradient}, lr=0.1)
        codes.append(optimizer.state()["gradient_code.a"])
    assert (codes[0] != codes[1]).any()
