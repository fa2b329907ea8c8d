"""LoRA: trained low-rank updates beside frozen layers."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from torch import nn

from pocketune.errors import PocketuneError, check_positive, check_truth
from pocketune.layers import LowRank
from pocketune.methods.method import Method
from pocketune.methods.parts import (
    MASKS,
    called_modules,
    classifier,
    parameters_of_branches,
    planned_branches,
)
from pocketune.methods.plan import Plan
from pocketune.methods.registry import register_method
from pocketune.networks.anatomy.modules import is_convolution, is_pointwise
from pocketune.networks.anatomy.output import classifier_layers


@register_method("lora")
@dataclass(frozen=True)
class LoRA(Method):
    """Train low-rank updates of linear layers and 1x1 convolutions, and the classifier.

    LoRA: Low-Rank Adaptation of Large Language Models (Hu et al., ICLR 2022): beside a frozen layer
    of weight W stands a trained product, so that the layer computes `W x + up(down(x))`. Every
    linear layer and 1x1 convolution gets one, except those of the classifier, which is trained as a
    whole, and those that are not called because their weights are read, as in PyTorch's attention.
    The paper's factor alpha / rank is 1: `side_lr` has the same effect.

    `save_network` and the export of a run add the products to the weights, so that the result has
    the layers and the speed of the original network.

    Attributes:
        rank: Rank of each update.
        train_down: Train `down` too. Without it, `down` keeps its random values and the input of
            the layer is not kept for the backward pass, only `rank` channels of it (LoRA-FA, Zhang
            et al., 2023).
    """

    rank: int = 4
    train_down: bool = True

    def __post_init__(self) -> None:
        check_positive(rank=self.rank)
        check_truth(train_down=self.train_down)

    def plan(self, network: nn.Module) -> Plan:
        """The low-rank updates and the classifier.

        Raises:
            PocketuneError: No layer can have an update.
        """
        branches = dict.fromkeys(_layers(network), partial(LowRank, rank=self.rank))
        if not branches:
            raise PocketuneError(
                f"{self} finds no linear layer or 1x1 convolution before the classifier"
            )
        modules = planned_branches(network, branches)
        kept = frozenset(f"{path}.down.weight" for path in modules if not self.train_down)
        trained = classifier(network) | (parameters_of_branches(modules) - kept)
        return Plan(trained, branches=branches, passes=(MASKS,))


def _layers(network: nn.Module) -> Iterator[str]:
    """Paths of the layers that get an update."""
    heads = classifier_layers(network)
    for name, module in called_modules(network):
        if name not in heads and _is_linear(module):
            yield name


def _is_linear(module: nn.Module) -> bool:
    if isinstance(module, nn.ConvTranspose2d):
        return False
    return isinstance(module, nn.Linear) or (is_convolution(module) and is_pointwise(module))
