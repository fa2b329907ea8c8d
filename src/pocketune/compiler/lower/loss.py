"""The losses of a step, for any number of classes."""

import torch
from onnx import TensorProto
from torch import fx

import pocketune.objectives.loss  # noqa: F401 - registers the operators
from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.value import Value


@lowers(torch.ops.pocketune.cross_entropy.default)
def _cross_entropy(
    context: Context, node: fx.Node, logits: Value, labels: Value, label_smoothing: float
) -> tuple[Value, ...]:
    b, batch = context.builder, logits.shape[0]
    scores, labels_name = context.plain(logits), context.plain(labels)
    depth = _count(context, scores)
    low = b.add("Div", b.constant([label_smoothing]), b.add("Cast", depth, to=TensorProto.FLOAT))
    high = b.add("Add", low, b.constant([1 - label_smoothing]))
    target = b.add(
        "OneHot", labels_name, depth, b.add("Concat", low, high, axis=0), axis=1, hint="target"
    )
    log_probability = b.add("LogSoftmax", scores, axis=1)
    total = b.add("ReduceSum", b.add("Mul", target, log_probability), keepdims=0)
    loss = b.add("Mul", total, b.constant(-1 / batch), hint="loss_value")
    hit = b.add("Equal", b.add("ArgMax", scores, axis=1, keepdims=0), labels_name)
    correct = b.add("ReduceSum", b.add("Cast", hit, to=TensorProto.INT64), keepdims=0)
    difference = b.add("Sub", b.add("Exp", log_probability), target)
    gradient = b.add("Mul", difference, b.constant(1 / batch))
    return Value((), plain=loss), Value((), plain=correct), Value(logits.shape, plain=gradient)


@lowers(torch.ops.pocketune.binary_cross_entropy.default)
def _binary_cross_entropy(
    context: Context, node: fx.Node, logits: Value, labels: Value, label_smoothing: float
) -> tuple[Value, ...]:
    b, batch = context.builder, logits.shape[0]
    scores = context.plain(logits)
    present = b.add("Cast", context.plain(labels), to=TensorProto.FLOAT)
    scaled = b.add("Mul", present, b.constant(1 - label_smoothing))
    target = b.add("Add", scaled, b.constant(label_smoothing / 2), hint="target")
    each = b.add("Sub", b.add("Softplus", scores), b.add("Mul", scores, target))
    loss = b.add("ReduceMean", each, keepdims=0, hint="loss_value")
    zero = b.constant(0.0)
    hit = b.add("Equal", b.add("Greater", scores, zero), b.add("Greater", present, zero))
    share = b.add("ReduceMean", b.add("Cast", hit, to=TensorProto.FLOAT), keepdims=0)
    correct = b.add("Mul", share, b.constant(float(batch)))
    count = b.add("Cast", _count(context, scores), to=TensorProto.FLOAT)
    difference = b.add("Sub", b.add("Sigmoid", scores), target)
    gradient = b.add("Div", difference, b.add("Mul", count, b.constant(float(batch))))
    return Value((), plain=loss), Value((), plain=correct), Value(logits.shape, plain=gradient)


def _count(context: Context, scores: str) -> str:
    """Number of classes of logits, as an int64 vector of one."""
    return context.builder.add("Shape", scores, start=1, end=2, hint="classes")
