"""Giving batch norms measured statistics."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.layers import FrozenBatchNorm2d
from pocketune.networks.checks import require_network
from pocketune.networks.images import image_batches
from pocketune.networks.probe import watch_inputs


class _Moments:
    """Mean and variance of each channel over all batches seen (Chan et al., 1979)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros((), dtype=torch.float64)
        self.sum_of_squares = torch.zeros((), dtype=torch.float64)

    def add(self, x: Tensor) -> None:
        """Take in a batch (N, C, H, W)."""
        count = x.numel() // x.shape[1]
        variance, mean = (t.double() for t in torch.var_mean(x, dim=(0, 2, 3), correction=0))
        total = self.count + count
        apart = mean - self.mean
        self.sum_of_squares = (
            self.sum_of_squares + variance * count + apart**2 * (self.count * count / total)
        )
        self.mean = self.mean + apart * (count / total)
        self.count = total


def is_folded(norm: nn.Module) -> bool:
    """Whether this batch norm was folded: its statistics are those of the identity."""
    if not isinstance(norm, nn.BatchNorm2d):
        return False
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None or variance.is_meta:
        return False
    fresh = torch.ones_like(variance)
    identity = fresh - norm.eps  # the same in few bits
    return not (mean.any() or torch.equal(identity, fresh)) and torch.equal(variance, identity)


def restore_batch_norm(network: nn.Module, batches: Iterable[Tensor]) -> nn.Module:
    """Set the running statistics of every batch norm to those of its input.

    The network computes the same as before: a norm computes `a * x + b`. With the measured mean m
    and variance v as its statistics, the weight `a * sqrt(v + eps)` and the bias `b + a * m` give
    the same a and b, so only training differs. This is for weights with folded norms, where every
    norm is the identity plus a bias.

    Args:
        network: Changed in place; its training mode is restored.
        batches: Normalized images (N, 3, H, W), a few hundred images in all.

    Returns:
        The network.

    Raises:
        PocketuneError: There are no images, or batches are something else; the input of a norm is
            not finite; or the network is adapted, with frozen norms. It then stays as it is.

    Example:
        >>> from pocketune import create_network, restore_batch_norm
        >>> network = create_network("mobilenet_v2", width=0.35)
        >>> _ = restore_batch_norm(network, torch.randn(16, 3, 32, 32).split(8))
    """
    _require_open(network)
    norms = {
        path: module
        for path, module in network.named_modules()
        if isinstance(module, nn.BatchNorm2d) and module.track_running_stats and module.affine
    }
    moments = {path: _Moments() for path in norms}
    watchers = {path: seen.add for path, seen in moments.items()}
    if watch_inputs(network, image_batches(network, batches), watchers) == 0:
        raise PocketuneError("batch norm cannot be restored without images; give a few hundred")
    for path, seen in moments.items():
        _require_finite(path, seen.sum_of_squares)
    with torch.no_grad():
        for path, norm in norms.items():
            if moments[path].count:
                _restore(norm, moments[path])
    return network


def estimate_batch_norm(network: nn.Module, batches: Iterable[Tensor]) -> nn.Module:
    """Set the running statistics of every batch norm to what images give, and change nothing else.

    The statistics of a sub-network of a supernet are those of others, too, and mislead it. The
    network runs with the statistics of each batch; a norm gets the mean over images of the means
    and of the biased variances of the batches (Cai et al., Once for All, ICLR 2020, public code:
    2,000 training images in batches of 200). A network without batch norms stays as it is.

    Args:
        network: Changed in place; its training mode is restored.
        batches: Normalized images (N, 3, H, W), two or more a batch.

    Returns:
        The network.

    Raises:
        PocketuneError: As `restore_batch_norm`.
    """
    _require_open(network)
    norms = {
        path: module
        for path, module in network.named_modules()
        if isinstance(module, nn.BatchNorm2d) and module.track_running_stats
    }
    if not norms:
        return network
    means = {path: _MeanMoments() for path in norms}
    watchers = {path: seen.add for path, seen in means.items()}
    with _batch_statistics(norms.values()):
        images = watch_inputs(network, image_batches(network, batches), watchers)
    if images == 0:
        raise PocketuneError(
            "statistics of batch norms cannot be estimated without images; give a few hundred"
        )
    for path, seen in means.items():
        _require_finite(path, seen.value)
    for path, norm in norms.items():
        if means[path].count:
            assert norm.running_mean is not None
            assert norm.running_var is not None
            mean, variance = means[path].value
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(variance)
    return network


def _require_open(network: nn.Module) -> None:
    """Check that a network is one whose batch norms are not frozen."""
    require_network(network)
    frozen = (n for n, m in network.named_modules() if isinstance(m, FrozenBatchNorm2d))
    if (first := next(frozen, None)) is not None:
        raise PocketuneError(
            f"the batch norm {first} is frozen; measure the statistics of the original network, "
            "and adapt it then"
        )


def _require_finite(path: str, measured: Tensor) -> None:
    """Check statistics before any is written."""
    if not measured.isfinite().all():
        raise PocketuneError(
            f"the input of the norm {path} is not finite on these images; give other ones, or load "
            "the network's weights again"
        )


class _MeanMoments:
    """Mean over images of the means and variances that their batches have in each channel."""

    def __init__(self) -> None:
        self.count = 0
        self.value = torch.zeros((), dtype=torch.float64)

    def add(self, x: Tensor) -> None:
        """Take in a batch (N, C, H, W)."""
        variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
        self.count += len(x)
        moments = torch.stack((mean, variance)).double()
        self.value = self.value + (moments - self.value) * (len(x) / self.count)


@contextmanager
def _batch_statistics(norms: Iterable[nn.BatchNorm2d]) -> Iterator[None]:
    """Let norms use the statistics of the batch in evaluation mode, and keep their own."""
    norms = list(norms)
    kept = [(norm.running_mean, norm.running_var) for norm in norms]
    for norm in norms:
        norm.running_mean = norm.running_var = None  # then a norm uses those of its input
    try:
        yield
    finally:
        for norm, (mean, variance) in zip(norms, kept, strict=True):
            norm.running_mean, norm.running_var = mean, variance


def _restore(norm: nn.BatchNorm2d, measured: _Moments) -> None:
    """Set the statistics, and the weight and bias that undo their change."""
    mean, variance = measured.mean, measured.sum_of_squares / measured.count
    old_mean, old_variance = norm.running_mean, norm.running_var
    assert old_mean is not None
    assert old_variance is not None
    gain = norm.weight.double() / torch.sqrt(old_variance.double() + norm.eps)
    norm.bias.add_(gain * (mean - old_mean))
    norm.weight.copy_(gain * torch.sqrt(variance + norm.eps))
    old_mean.copy_(mean)
    old_variance.copy_(variance)
