"""The loss of the pixels, against PyTorch's own resizing and cross-entropy in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.builder import FLOAT, INT64, UINT8, GraphBuilder
from pocketune.compiler.capture.tracer import trace
from pocketune.compiler.lower import Value, lower
from pocketune.objectives import objective_of
from pocketune.objectives.segmentation import PART, parts, resizing
from pocketune.tasks import Segmentation, numbered

from ..compiler.lowering import assert_close, run_model

Shape = tuple[int, int]


def reference(logits: Tensor, labels: Tensor, weights: Tensor, stride: int) -> list[np.ndarray]:
    """Loss, correct and counted pixels, and gradient, as a user of PyTorch writes them."""
    exact = logits.double().requires_grad_()
    pixels = F.interpolate(exact, labels.shape[1:], mode="bilinear", align_corners=False)
    pixels, target = pixels[..., ::stride, ::stride], labels[:, ::stride, ::stride].long()
    counted = (target != 255).sum()
    loss = exact.sum() * 0
    if counted:
        loss = F.cross_entropy(pixels, target, weights.double(), ignore_index=255)
    correct = (pixels.argmax(1) == target).sum()
    (gradient,) = torch.autograd.grad(loss, exact)
    return [t.detach().numpy() for t in (loss, correct, counted, gradient)]


def batch_of(
    batch: int, classes: int, cells: Shape, size: Shape, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, labels of which a fifth are ignored, and class weights."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, classes, *cells, generator=generator) * 3
    labels = torch.randint(0, classes, (batch, *size), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < 0.2] = 255
    return logits, labels.byte(), torch.rand(classes, generator=generator) + 0.2


def model_of(batch: int, cells: Shape, size: Shape, stride: int) -> onnx.ModelProto:
    """The lowered operator, traced with three classes; the number of classes is open."""
    task = Segmentation(numbered(3), loss_stride=stride)
    objective = objective_of(task)
    logits, labels, weights = batch_of(batch, 3, cells, size)

    def step(logits: Tensor, labels: Tensor, weights: Tensor) -> list[Tensor]:
        objective.inputs["class_weights"] = weights
        return objective.step(logits, labels)

    graph = trace(step, logits, labels, weights)
    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    (returned,) = next(node for node in graph.nodes if node.op == "output").args
    builder = GraphBuilder()
    open_logits = [batch, "classes", *cells]
    kinds: list[tuple[int, list[Any]]] = [
        (FLOAT, open_logits),
        (UINT8, [batch, *size]),
        (FLOAT, ["classes"]),
    ]
    given = {
        node: Value(tuple(node.meta["val"].shape), plain=builder.input(f"input{i}", kind, shape))
        for i, (node, (kind, shape)) in enumerate(zip(nodes, kinds, strict=True))
    }
    context = lower(builder, given, returned, rows_max_pixels=0)
    results: list[tuple[int, list[Any]]] = [
        (FLOAT, []),
        (INT64, []),
        (INT64, []),
        (FLOAT, open_logits),
    ]
    for i, (node, (kind, shape)) in enumerate(zip(returned, results, strict=True)):
        builder.emit(context.plain(context.value(node)), str(i), kind, shape)
    return builder.model("loss")


def check(model: onnx.ModelProto, inputs: tuple[Tensor, Tensor, Tensor], stride: int) -> None:
    for i, (ours, exact) in enumerate(
        zip(run_model(model, inputs), reference(*inputs, stride), strict=True)
    ):
        assert_close(ours, exact, name=f"result {i}")


sides = st.tuples(st.integers(1, 9), st.integers(1, 9))


@settings(max_examples=25)
@given(
    batch=st.integers(1, 3),
    cells=sides,
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    stride=st.sampled_from([1, 2, 4, 8]),
    classes=st.integers(1, 6),
)
def test_graph_and_operator_are_pytorchs_loss(
    batch: int, cells: Shape, size: Shape, stride: int, classes: int
) -> None:
    inputs = batch_of(batch, classes, cells, size)
    check(model_of(batch, cells, size, stride), inputs, stride)
    logits, labels, weights = inputs
    found = torch.ops.pocketune.pixel_cross_entropy(
        logits.double(), labels, weights.double(), stride
    )
    for ours, exact in zip(found, reference(*inputs, stride), strict=True):
        assert_close(ours.numpy(), exact, 1e-12)


@pytest.mark.parametrize("stride", [1, 4])
def test_one_graph_serves_every_number_of_classes(stride: int) -> None:
    model = model_of(2, (3, 4), (17, 23), stride)
    for classes in (1, 2, 5, 255):
        check(model, batch_of(2, classes, (3, 4), (17, 23), seed=classes), stride)


@pytest.mark.parametrize("size", [(150, 200), (40, 90)])
def test_a_batch_in_several_parts_has_the_loss_of_the_whole(size: Shape) -> None:
    """One image of the larger size takes two parts; four of the smaller ones fill one."""
    batch = 5
    assert len([part for group in parts(batch, *size) for part in group]) > 1
    check(model_of(batch, (6, 7), size, 1), batch_of(batch, 3, (6, 7), size), 1)


@given(batch=st.integers(1, 9), height=st.integers(1, 300), width=st.integers(1, 300))
def test_parts_hold_every_row_of_every_image_once(batch: int, height: int, width: int) -> None:
    found = [part for group in parts(batch, height, width) for part in group]
    rows = [(image, row) for part in found for image in part.images for row in part.rows]
    assert sorted(rows) == [(image, row) for image in range(batch) for row in range(height)]
    assert all(len(part.images) * len(part.rows) * width <= max(PART, width) for part in found)


def test_a_batch_without_labels_has_no_loss_and_no_gradient() -> None:
    logits, labels, weights = batch_of(2, 3, (4, 4), (20, 20))
    labels[:] = 255
    loss, correct, counted, gradient = run_model(
        model_of(2, (4, 4), (20, 20), 1), [logits, labels, weights]
    )
    assert (loss, correct, counted) == (0, 0, 0)
    assert not gradient.any()
    objective = objective_of(Segmentation(numbered(3)))
    leaf = logits.clone().requires_grad_()
    plain = objective.loss(leaf, labels)
    assert float(plain.detach()) == 0
    assert not torch.autograd.grad(plain, leaf)[0].any()


def test_an_image_without_labels_changes_nothing() -> None:
    logits, labels, weights = batch_of(2, 3, (4, 4), (20, 20))
    labels[1] = 255
    model = model_of(2, (4, 4), (20, 20), 1)
    loss, *_, gradient = run_model(model, [logits, labels, weights])
    alone = reference(logits[:1], labels[:1], weights, 1)
    assert_close(loss, alone[0])
    assert_close(gradient[:1], alone[3])
    assert not gradient[1].any()


@pytest.mark.parametrize("stride", [1, 2, 4, 8])
def test_the_objective_reads_the_pixels_of_the_stride(stride: int) -> None:
    logits, labels, weights = batch_of(2, 3, (5, 4), (30, 21))
    task = Segmentation(numbered(3), loss_stride=stride)
    objective = objective_of(replace(task, class_weights=tuple(weights.tolist())))
    expected = reference(logits, labels, weights, stride)
    exact = logits.double()
    found = [objective.loss(exact, labels), *objective.metrics(exact, labels)]
    for ours, wanted in zip(found, expected, strict=False):
        assert_close(ours.numpy(), wanted, 1e-12)


@pytest.mark.parametrize("stride", [1, 4])
def test_the_loss_of_a_batch_is_the_mean_of_its_parts_by_their_weight(stride: int) -> None:
    logits, labels, weights = batch_of(5, 3, (5, 4), (30, 21))
    labels[0], labels[3:] = 255, 255  # half of the first part and all of the last
    task, inputs = Segmentation(numbered(3), loss_stride=stride), {"class_weights": weights.numpy()}
    whole = reference(logits, labels, weights, stride)
    pieces = [slice(0, 2), slice(2, 3), slice(3, 5)]
    shares = np.array([task.loss_weight(labels[part].numpy(), inputs) for part in pieces])
    shares /= shares.sum()
    found = [reference(logits[part], labels[part], weights, stride) for part in pieces]
    loss = sum(share * each[0] for share, each in zip(shares, found, strict=True))
    assert loss == pytest.approx(float(whole[0]), rel=1e-12)
    gradients = [share * each[3] for share, each in zip(shares, found, strict=True)]
    np.testing.assert_allclose(np.concatenate(gradients), whole[3], rtol=1e-12)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_rows_of_the_resizing_sum_to_one(stride: int) -> None:
    for matrix in resizing(torch.Size((5, 3)), torch.Size((12, 1)), stride):
        torch.testing.assert_close(matrix.sum(1), torch.ones(len(matrix), dtype=torch.float64))
