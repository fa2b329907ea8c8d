"""The baselines that every method is compared with."""

from dataclasses import dataclass

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.methods.method import Method
from pocketune.methods.parts import (
    biases,
    blocks_and_entries,
    classifier,
    fusion_and_classifier,
    norms,
    top_blocks,
)
from pocketune.methods.plan import Plan
from pocketune.methods.registry import register_method
from pocketune.networks import anatomy
from pocketune.surgery import batch_norms


@register_method("full")
@dataclass(frozen=True)
class FullFineTune(Method):
    """Train every parameter of the network.

    Every batch norm uses the batch's statistics, also one that has no parameters.
    """

    def plan(self, network: nn.Module) -> Plan:
        """All parameters and batch norms."""
        names = frozenset(name for name, _ in network.named_parameters())
        return Plan(names, frozenset(batch_norms(network)))


@register_method("last")
@dataclass(frozen=True)
class LastLayer(Method):
    """Train the classifier only.

    In transformers and other networks whose blocks are not rows of convolutions, that is the layer
    that computes the class scores, as in every method that needs no blocks.
    """

    def plan(self, network: nn.Module) -> Plan:
        """The classifier's parameters."""
        return Plan.training(network, classifier(network))


@register_method("norm")
@dataclass(frozen=True)
class NormAndLast(Method):
    """Train weight and bias of every norm, and the classifier.

    Batch norms then use the batch's statistics; group, layer and instance norms have none.
    """

    def plan(self, network: nn.Module) -> Plan:
        """Weights and biases of norms, and the classifier.

        Raises:
            PocketuneError: There is no norm with parameters.
        """
        trained = norms(network)
        if not trained:
            raise PocketuneError(
                f"{self} finds no norm with parameters in {type(network).__name__}; use "
                "BiasAndLast(), or LastLayer() for the classifier alone"
            )
        return Plan.training(network, trained | classifier(network))


@register_method("bias")
@dataclass(frozen=True)
class BiasAndLast(Method):
    """Train every bias, including those of batch norms, and the classifier."""

    def plan(self, network: nn.Module) -> Plan:
        """Biases and the classifier."""
        return Plan.training(network, biases(network) | classifier(network))


@register_method("blocks")
@dataclass(frozen=True)
class TopBlocks(Method):
    """Train the last blocks, the feature fusion layer, the decode head and the classifier.

    The feature fusion layer is the convolution between the last block and pooling, if the network
    has one; a network that classifies pixels has a decode head. With three blocks, MobileTL (Chiang
    et al., AAAI 2023) calls this FT-3BLKs.

    Any network that repeats modules has blocks (`pocketune.anatomy`). What stands between two of
    them, such as the convolution that begins a stage of ConvNeXt, is trained with the second one,
    and so is the last norm of a transformer with the classifier.

    Attributes:
        blocks: How many blocks, counted from the classifier; 0 trains only what follows them.
    """

    blocks: int = 3

    def plan(self, network: nn.Module) -> Plan:
        """Blocks, feature fusion layer, decode head and classifier.

        Raises:
            PocketuneError: The network has fewer blocks; the message gives their number.
        """
        body = anatomy(network)
        blocks = top_blocks(body, self.blocks, least=0)
        top = blocks_and_entries(network, blocks)
        return Plan.training(network, top | fusion_and_classifier(network, body))
