"""Keep the first blocks of a network, and classify their features.

The last blocks of a network that was pretrained for one set of classes know these classes best.
For other photos, features from before them may do as well or better (Evci et al., Head2Toe, 2022),
and they take less memory and time.
"""

from dataclasses import replace

import torch
from torch import nn

from pocketune.errors import PocketuneError, whole_number
from pocketune.networks import about, anatomy, set_about
from pocketune.networks.copies import copy_network
from pocketune.networks.probe import usual_size


def truncate(network: nn.Module, first_blocks: int) -> nn.Module:
    """A copy of `network` that ends after its first blocks.

    The blocks behind them and the feature fusion are gone, and a new linear layer with random
    values classifies the pooled features of the last block that is left. All other values stay.

    Args:
        network: A network that is not adapted to a method; it is not changed.
        first_blocks: How many blocks stay, at least 1, counted as in `anatomy(network).blocks`.

    Raises:
        PocketuneError: There are fewer blocks; the network is adapted already, classifies pixels,
            has other layers before its output layer, or does not run without its last blocks.

    Example:
        >>> from pocketune import about, anatomy, create_network
        >>> network = truncate(create_network("mobilenet_v2", classes=10), 14)
        >>> len(anatomy(network).blocks), about(network).config.first_blocks
        (14, 14)
        >>> network.classifier[1]
        Linear(in_features=160, out_features=10, bias=True)
    """
    if (method := about(network).method) is not None:
        raise PocketuneError(f"the network is adapted to {method}; truncate it before adapting it")
    short = copy_network(network)
    keep_first_blocks(short, first_blocks)
    if (config := about(network).config) is not None:
        there = {block.name for block in anatomy(short).blocks}
        hidden = {block: count for block, count in config.hidden.items() if block in there}
        branches = {block: kept for block, kept in config.branches.items() if block in there}
        set_about(
            short,
            config=replace(config, first_blocks=first_blocks, hidden=hidden, branches=branches),
        )
    return short


def keep_first_blocks(network: nn.Module, first_blocks: int) -> None:
    """Remove what is behind the first blocks of a network, in place; see `truncate`."""
    body = anatomy(network)
    count = whole_number(first_blocks)
    if count is None or not 1 <= count <= len(body.blocks):
        raise PocketuneError(
            f"first_blocks={first_blocks!r} must be from 1 to {len(body.blocks)}, the number of "
            "blocks of the network"
        )
    output = network.get_submodule(body.classifier[-1])
    if body.decode_head or len(body.classifier) > 1 or not isinstance(output, nn.Linear):
        raise PocketuneError(
            f"{type(network).__name__} has more than one linear layer behind its blocks; "
            "first_blocks is for networks whose classifier is one linear layer"
        )
    removed = [path for block in body.blocks[count:] for path in (*block.entry, *block.modules)]
    removed += [path for layer in body.feature_fusion for path in layer.paths]
    size = usual_size(network)
    for path in removed:
        network.set_submodule(path, nn.Identity(), strict=True)
    features = _features(network, body.classifier[-1], size)
    classifier = nn.Linear(features, output.out_features)
    network.set_submodule(
        body.classifier[-1], classifier.to(output.weight.device, output.weight.dtype), strict=True
    )


def _features(network: nn.Module, classifier: str, size: int) -> int:
    """How many pooled features the classifier reads, found in a run on an image of this size.

    Raises:
        PocketuneError: The network does not run.
    """
    trial = copy_network(network).eval()
    like = next(network.parameters())
    lazy = nn.LazyLinear(1, device=like.device, dtype=like.dtype)
    trial.set_submodule(classifier, lazy, strict=True)
    try:
        with torch.no_grad():
            trial(torch.zeros(1, 3, size, size, dtype=like.dtype, device=like.device))
    except Exception as error:  # the network's own code may raise anything
        reason = str(error).partition("\n")[0]
        raise PocketuneError(
            f"{type(network).__name__} does not run without its last blocks: "
            f"{type(error).__name__}: {reason}"
        ) from error
    return lazy.in_features
