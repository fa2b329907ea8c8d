"""Capturing a training step."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from pocketune.compiler.capture.dropout import supply_masks
from pocketune.compiler.capture.trace import (
    Traced,
    normalize,
    running_statistics,
    trace_predict,
    trace_step,
    trained_parameters,
)
from pocketune.compiler.settings import CompileSettings
from pocketune.errors import PocketuneError
from pocketune.methods import BiasAndLast, FullFineTune, TopBlocks, adapt

from ..networks import BATCH, CLASSES, SIZE, TASK, tiny

IMAGES = torch.randint(
    0, 256, (BATCH, SIZE, SIZE, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)
LABELS = torch.arange(BATCH) % CLASSES


def step_of(network: nn.Module, masks: Sequence[str] = (), **options: Any) -> Traced:
    settings = CompileSettings(**{"batch": BATCH, "size": SIZE, "task": TASK, **options})
    return trace_step(network, settings, masks)


class Caching(nn.Module):
    """Keeps what it computes from its parameter, as attention biases are kept by some."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.fc = nn.Linear(3, CLASSES)
        self.cache: dict[str, Tensor] = {}
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        if "doubled" not in self.cache:
            self.cache["doubled"] = self.scale * 2
        self.kept.append(x)
        logits: Tensor = self.fc(x.mean((2, 3)) * self.cache["doubled"])
        return logits


def test_what_a_trace_leaves_in_containers_is_gone() -> None:
    network = Caching()
    cache = network.cache
    trace_predict(network, batch=2, size=SIZE)
    assert (network.cache, network.kept) == ({}, [])
    assert network.cache is cache
    assert set(network._parameters) == {"scale"}


def run(traced: Traced, network: nn.Module, **inputs: Tensor) -> dict[str, Tensor]:
    """Execute the traced graph with the network's own tensors."""
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers()), **inputs}
    module = fx.GraphModule(_constants(traced), traced.graph)
    arguments = [tensors[name].detach().clone() for name in traced.placeholders]
    values = fx.Interpreter(module).run(*arguments, enable_io_processing=False)
    return dict(zip((name for name, _ in traced.outputs), values, strict=True))


def _constants(traced: Traced) -> dict[str, Tensor]:
    nodes = [node for node in traced.graph.nodes if node.op == "get_attr"]
    return {node.target: node.meta["constant"] for node in nodes}


def eager_gradients(network: Any) -> dict[str, Tensor]:
    network.train()
    loss = F.cross_entropy(network(normalize(network, IMAGES)), LABELS)
    trained = trained_parameters(network)
    return dict(zip(trained, torch.autograd.grad(loss, list(trained.values())), strict=True))


@pytest.mark.parametrize("method", [FullFineTune(), BiasAndLast(), TopBlocks(blocks=1)], ids=str)
def test_the_graph_gives_the_gradients_of_eager_pytorch(method: Any) -> None:
    network = adapt(tiny(), method)
    traced = step_of(network)
    values = run(traced, network, images=IMAGES, labels=LABELS)
    expected = eager_gradients(network)
    assert [name for name, _ in traced.outputs] == [
        "loss",
        "correct",
        *(f"grad.{name}" for name in expected),
    ]
    for name, gradient in expected.items():
        torch.testing.assert_close(values[f"grad.{name}"], gradient, rtol=1e-4, atol=1e-6)


class _BackwardTimesTen(torch.autograd.Function):
    """The identity, with a backward that is deliberately not its derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
        return g * 10


class _TenfoldGradient(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return _BackwardTimesTen.apply(x)


def test_a_custom_backward_survives() -> None:
    """Exports that differentiate the forward themselves would give the identity's gradient."""
    plain = adapt(tiny(), FullFineTune())
    custom = adapt(tiny(), FullFineTune())
    custom.pool = nn.Sequential(_TenfoldGradient(), custom.pool)
    ours = run(step_of(custom), custom, images=IMAGES, labels=LABELS)
    usual = run(step_of(plain), plain, images=IMAGES, labels=LABELS)
    torch.testing.assert_close(ours["loss"], usual["loss"])
    for name in trained_parameters(plain):
        factor = 1 if name.startswith("classifier") else 10
        expected = usual[f"grad.{name}"] * factor
        torch.testing.assert_close(ours[f"grad.{name}"], expected, rtol=1e-3, atol=1e-5)


def test_running_statistics_are_those_of_norms_that_use_the_batch() -> None:
    network = adapt(tiny(), TopBlocks(blocks=1))
    names = set(running_statistics(network))
    assert names == {
        f"blocks.1.{layer}.1.{statistic}"
        for layer in ("expand", "depthwise", "project")
        for statistic in ("running_mean", "running_var")
    }
    traced = step_of(network)
    assert not names & set(traced.constants)
    assert {"stem.1.running_mean", "blocks.0.expand.1.running_var"} <= set(traced.constants)


def test_tracing_leaves_the_network_as_it_was() -> None:
    network = adapt(tiny(), FullFineTune())
    network.train()
    network.blocks.eval()
    modes = {name: module.training for name, module in network.named_modules()}
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    step_of(network)
    trace_predict(network, batch=2, size=SIZE)
    assert {name: module.training for name, module in network.named_modules()} == modes
    for name, tensor in network.state_dict().items():
        assert type(tensor) is type(before[name])
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
    assert all(p.grad is None for p in network.parameters())


def test_the_modes_come_back_after_an_error() -> None:
    network = adapt(tiny(), FullFineTune())
    network.pool = _Fails()
    network.eval()
    with pytest.raises(PocketuneError):
        step_of(network)
    assert not any(module.training for module in network.modules())


class _Fails(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x @ torch.zeros(7, 7)


def test_prediction_uses_the_running_statistics() -> None:
    network = adapt(tiny(), FullFineTune())
    traced = trace_predict(network, batch=BATCH, size=SIZE)
    logits = run(traced, network, images=IMAGES)["logits"]
    expected = network.eval()(normalize(network, IMAGES))
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)


def test_embeddings_are_what_the_output_layer_reads() -> None:
    network = adapt(tiny(dropout=0.5), FullFineTune())
    traced = trace_predict(network, batch=BATCH, size=SIZE, layer="classifier")
    values = run(traced, network, images=IMAGES)
    logits = network.classifier(values["embeddings"])
    torch.testing.assert_close(values["logits"], logits, rtol=1e-4, atol=1e-5)


class _Rows(nn.Module):
    """Scores rows of pixels, and takes their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Linear(3 * SIZE, 4)

    def forward(self, x: Tensor) -> Tensor:
        rows: Tensor = self.rows(x.flatten(2).reshape(len(x), SIZE, 3 * SIZE))
        return rows.mean(1)


def test_rows_are_not_embeddings() -> None:
    traced = trace_predict(_Rows(), batch=BATCH, size=SIZE, layer="rows")
    assert [name for name, _ in traced.outputs] == ["logits"]


def test_a_dropout_mask_is_an_input() -> None:
    network = adapt(tiny(dropout=0.5), FullFineTune())
    (spec,) = supply_masks(network, BATCH, SIZE)
    traced = step_of(network, [spec.name])
    assert spec.name in traced.placeholders
    assert spec.name not in traced.constants
    dropped = {spec.name: torch.zeros(spec.shape)}
    values = run(traced, network, images=IMAGES, labels=LABELS, **dropped)
    assert values["grad.classifier.weight"].count_nonzero() == 0
    assert values["grad.classifier.bias"].count_nonzero() > 0


@pytest.mark.parametrize(
    "pool",
    [
        nn.AdaptiveAvgPool2d(1),
        nn.AdaptiveAvgPool2d((1, 1)),
        lambda x: F.adaptive_avg_pool2d(x, output_size=1),
        lambda x: F.adaptive_avg_pool2d(x, [1, 1]),
    ],
)
def test_global_pooling_is_a_mean(pool: Callable[[Tensor], Tensor]) -> None:
    network = adapt(tiny(), BiasAndLast())
    network.pool = _Calls(pool)
    targets = {str(node.target) for node in step_of(network).graph.nodes}
    assert "aten.mean.dim" in targets
    assert "aten.as_strided.default" not in targets


class _Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def test_decisions_by_the_data_are_refused() -> None:
    network = adapt(tiny(), BiasAndLast())
    network.pool = nn.Sequential(_Calls(lambda x: x if x.sum() > 0 else -x), network.pool)
    with pytest.raises(
        PocketuneError, match=r"TinyNetwork.*values of a tensor in its module 'pool\.0',"
    ):
        step_of(network)


def test_a_shape_that_does_not_fit_is_reported() -> None:
    network = adapt(tiny(), BiasAndLast())
    network.pool = _Fails()
    message = r"TinyNetwork cannot be traced.*3, 16, 16.* in its module 'pool': "
    with pytest.raises(PocketuneError, match=message):
        step_of(network)


def test_one_value_a_channel_is_too_few_for_batch_statistics() -> None:
    with pytest.raises(PocketuneError, match="more than 1 value per channel"):
        step_of(adapt(tiny(), FullFineTune()), batch=1, size=2)


class Returns(nn.Module):
    """Changes what a network returns."""

    def __init__(self, network: nn.Module, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.network = network
        self.change = change

    def forward(self, images: Tensor) -> Any:
        return self.change(self.network(images))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda scores: (scores, scores), "the network returns a tuple, where classification"),
        (lambda scores: scores[:, :1], rf"the network computes \({BATCH}, 1\) for {BATCH} images"),
    ],
    ids=["tuple", "shape"],
)
def test_a_network_that_returns_no_scores_is_refused(
    change: Callable[[Tensor], Any], message: str
) -> None:
    with pytest.raises(PocketuneError, match=message):
        step_of(Returns(tiny(), change))
