"""Softmax cross entropy as one operator, so that a compiled step serves any number of classes.

Traced through PyTorch's own operators the loss would carry the number of classes as a constant.
"""

import torch
from torch import Tensor
from torch.nn import functional


@torch.library.custom_op("pocketune::cross_entropy", mutates_args=())
def cross_entropy(
    logits: Tensor, labels: Tensor, label_smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss (), correct count () and gradient of the loss by the logits (N, classes).

    `logits` float32 (N, classes), `labels` int64 (N,); mean over the batch, label smoothing as in
    `torch.nn.functional.cross_entropy`.
    """
    classes = logits.shape[1]
    target = functional.one_hot(labels, classes).to(logits.dtype)
    target = target * (1 - label_smoothing) + label_smoothing / classes
    log_probability = logits.log_softmax(1)
    loss = -(target * log_probability).sum(1).mean()
    correct = (logits.argmax(1) == labels).sum()
    return loss, correct, (log_probability.exp() - target) / len(logits)


@cross_entropy.register_fake
def _(logits: Tensor, labels: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    return logits.new_empty(()), labels.new_empty(()), torch.empty_like(logits)
