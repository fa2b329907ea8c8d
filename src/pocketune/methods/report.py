"""How much of a network is trained."""

from dataclasses import dataclass

from torch import nn

from pocketune.layers.quantized_conv import count_int8_weights


@dataclass(frozen=True)
class TrainableCount:
    """Numbers of parameters; statistics are not parameters."""

    trained: int
    total: int

    def __str__(self) -> str:
        share = self.trained / self.total
        return f"{self.trained:,} of {self.total:,} parameters are trained ({share:.2%})"


def trainable(network: nn.Module) -> TrainableCount:
    """Count what is trained in an adapted network; print it to see a sentence."""
    counts = [(p.numel(), p.requires_grad) for p in network.parameters()]
    total = sum(n for n, _ in counts) + count_int8_weights(network)
    return TrainableCount(sum(n for n, trained in counts if trained), total)
