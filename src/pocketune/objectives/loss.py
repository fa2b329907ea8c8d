"""The losses of a step, each as one operator, so that it serves any number of classes.

Traced through PyTorch's own operators they would carry the number of classes as a constant.
"""

import torch
from torch import Tensor
from torch.nn import functional

Step = tuple[Tensor, Tensor, Tensor]
"""Loss (), correct guesses () and gradient of the loss by the logits (N, classes)."""


def mean_loss(logits: Tensor, labels: Tensor, label_smoothing: float) -> Tensor:
    """PyTorch's own loss (), the mean over the batch and, with attributes, over them as well.

    Cross-entropy for int64 labels (N,) of classes; binary cross-entropy for labels (N, A) that are
    1 for attributes which are there and 0 for others, `label_smoothing / 2` away from which the
    target then is.
    """
    if labels.ndim == 1:
        return functional.cross_entropy(logits, labels, label_smoothing=label_smoothing)
    target = _smoothed(labels.to(logits.dtype), label_smoothing)
    return functional.binary_cross_entropy_with_logits(logits, target)


def correct_guesses(logits: Tensor, labels: Tensor) -> Tensor:
    """Images whose class is the likeliest; or the sum over images of the share of right attributes.

    See `pocketune.device.engine.base.Gradients`.
    """
    if labels.ndim == 1:
        return (logits.argmax(1) == labels).sum()
    return ((logits > 0) == (labels > 0)).float().mean(1).sum()


def step_loss(logits: Tensor, labels: Tensor, label_smoothing: float) -> Step:
    """`mean_loss`, `correct_guesses` and the gradient, as one operator of the traced graph."""
    operator = cross_entropy if labels.ndim == 1 else binary_cross_entropy
    found: Step = operator(logits, labels, label_smoothing)
    return found


@torch.library.custom_op("pocketune::cross_entropy", mutates_args=())
def cross_entropy(logits: Tensor, labels: Tensor, label_smoothing: float) -> Step:
    """Softmax cross-entropy of `logits` float32 (N, classes) and `labels` int64 (N,)."""
    classes = logits.shape[1]
    target = functional.one_hot(labels, classes).to(logits.dtype)
    target = target * (1 - label_smoothing) + label_smoothing / classes
    log_probability = logits.log_softmax(1)
    loss = -(target * log_probability).sum(1).mean()
    gradient = (log_probability.exp() - target) / len(logits)
    return loss, correct_guesses(logits, labels), gradient


@cross_entropy.register_fake
def _(logits: Tensor, labels: Tensor, label_smoothing: float) -> Step:
    return logits.new_empty(()), labels.new_empty(()), torch.empty_like(logits)


@torch.library.custom_op("pocketune::binary_cross_entropy", mutates_args=())
def binary_cross_entropy(logits: Tensor, labels: Tensor, label_smoothing: float) -> Step:
    """Binary cross-entropy of `logits` float32 (N, A) and `labels` uint8 (N, A)."""
    target = _smoothed(labels.to(logits.dtype), label_smoothing)
    loss = mean_loss(logits, labels, label_smoothing)
    gradient = (logits.sigmoid() - target) / logits.numel()
    return loss, correct_guesses(logits, labels), gradient


@binary_cross_entropy.register_fake
def _(logits: Tensor, labels: Tensor, label_smoothing: float) -> Step:
    return logits.new_empty(()), logits.new_empty(()), torch.empty_like(logits)


def _smoothed(target: Tensor, label_smoothing: float) -> Tensor:
    return target * (1 - label_smoothing) + label_smoothing / 2
