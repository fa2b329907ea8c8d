"""The losses of a step: one graph for any number of classes, or of attributes."""

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.builder import FLOAT, INT64, UINT8, GraphBuilder
from pocketune.compiler.capture.tracer import trace
from pocketune.compiler.lower import Value, lower
from pocketune.objectives import Objective, objective_of
from pocketune.tasks import Attributes, Classification, numbered

from ..compiler.lowering import assert_close, run_model

BATCH = 5


def objective(label_smoothing: float, *, attributes: bool = False, classes: int = 3) -> Objective:
    kind = Attributes if attributes else Classification
    return objective_of(kind(numbered(classes), label_smoothing=label_smoothing))


def loss_model(label_smoothing: float, *, attributes: bool = False) -> onnx.ModelProto:
    """Loss, correct count and gradient by the logits, traced with three classes."""
    minimized = objective(label_smoothing, attributes=attributes)
    logits, labels = torch.zeros(BATCH, 3), minimized.empty_labels(BATCH, 32)

    def step(logits: Tensor, labels: Tensor) -> list[Tensor]:
        return minimized.step(logits, labels)

    graph = trace(step, logits, labels)
    first, second = (node for node in graph.nodes if node.op == "placeholder")
    (returned,) = next(node for node in graph.nodes if node.op == "output").args
    kind, open_shape = (UINT8, [BATCH, "classes"]) if attributes else (INT64, [BATCH])
    builder = GraphBuilder()
    given = {
        first: Value((BATCH, 3), plain=builder.input("input0", FLOAT, [BATCH, "classes"])),
        second: Value(tuple(labels.shape), plain=builder.input("input1", kind, open_shape)),
    }
    context = lower(builder, given, returned, rows_max_pixels=0)
    correct = FLOAT if attributes else INT64
    kinds = [(FLOAT, []), (correct, []), (FLOAT, [BATCH, "classes"])]
    for i, (node, (dtype, shape)) in enumerate(zip(returned, kinds, strict=True)):
        builder.emit(context.plain(context.value(node)), str(i), dtype, shape)
    return builder.model("loss")


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.9])
def test_one_graph_for_every_number_of_classes(label_smoothing: float) -> None:
    model = loss_model(label_smoothing)
    for classes in range(2, 8):
        generator = torch.Generator().manual_seed(classes)
        logits = torch.randn(BATCH, classes, generator=generator) * 4
        labels = torch.randint(0, classes, (BATCH,), generator=generator)
        loss, correct, gradient = run_model(model, [logits, labels])
        exact = logits.double().requires_grad_()
        expected = F.cross_entropy(exact, labels, label_smoothing=label_smoothing)
        expected.backward()
        assert exact.grad is not None
        assert loss.shape == () and correct.shape == () and correct.dtype == np.int64
        assert loss == pytest.approx(expected.item(), rel=1e-5)
        assert correct == (logits.argmax(1) == labels).sum()
        assert_close(gradient, exact.grad.numpy())


def test_large_logits_are_finite() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0]] * BATCH)
    labels = torch.tensor([0, 1, 2, 0, 1])
    loss, correct, gradient = run_model(loss_model(0.0), [logits, labels])
    assert loss == pytest.approx(F.cross_entropy(logits, labels).item())
    assert correct == 2
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.9])
def test_one_graph_for_every_number_of_attributes(label_smoothing: float) -> None:
    model = loss_model(label_smoothing, attributes=True)
    for count in range(1, 8):
        generator = torch.Generator().manual_seed(count)
        logits = torch.randn(BATCH, count, generator=generator) * 4
        labels = torch.randint(0, 2, (BATCH, count), generator=generator, dtype=torch.uint8)
        loss, correct, gradient = run_model(model, [logits, labels])
        exact = logits.double().requires_grad_()
        # each attribute is the question "yes or no" with its label smoothed over both answers
        pairs = torch.stack([torch.zeros_like(exact), exact], 2).flatten(0, 1)
        expected = F.cross_entropy(pairs, labels.long().flatten(), label_smoothing=label_smoothing)
        expected.backward()
        assert exact.grad is not None
        assert loss.shape == () and correct.shape == ()
        assert loss == pytest.approx(expected.item(), rel=1e-5)
        right = ((logits.sigmoid() > 0.5) == labels.bool()).double().mean(1).sum()
        assert correct == pytest.approx(right.item())
        assert_close(gradient, exact.grad.numpy())


def test_large_logits_of_attributes_are_finite() -> None:
    logits = torch.tensor([[1e4, -1e4]] * BATCH)
    labels = torch.tensor([[1, 0], [0, 1], [1, 1], [0, 0], [1, 0]], dtype=torch.uint8)
    loss, correct, gradient = run_model(loss_model(0.0, attributes=True), [logits, labels])
    assert loss == pytest.approx(4e3)
    assert correct == 3
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("attributes", [False, True])
def test_the_operators_are_pytorchs_losses(attributes: bool) -> None:
    logits = torch.randn(BATCH, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.arange(BATCH) % 4
    expected = F.cross_entropy(logits, labels, label_smoothing=0.2)
    right = (logits.argmax(1) == labels).sum()
    if attributes:
        labels = torch.arange(4 * BATCH, dtype=torch.uint8).view(BATCH, 4) % 3 % 2
        expected = F.binary_cross_entropy_with_logits(logits, labels * 0.8 + 0.1)
        right = ((logits > 0) == labels).sum() / 4
    expected.backward()
    minimized = objective(0.2, attributes=attributes, classes=4)
    torch.testing.assert_close(minimized.loss(logits, labels), expected)
    loss, correct, gradient = minimized.step(logits.detach(), labels)
    assert minimized.metrics(logits, labels) == (correct,)
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradient, logits.grad)
    assert correct == pytest.approx(right.item())
