"""One method of every name, as it fits a network."""

from pocketune.methods import (
    ActivationPruning,
    FewBitBackward,
    LoRA,
    LowRankBackward,
    Method,
    SignedBackward,
    TinyTL,
    TopBlocks,
    create_method,
)


def example_method(name: str, network_name: str) -> Method:
    """The method of that name, added to another one where it trains nothing by itself."""
    if name == "tinytl" and network_name in ("resnet50", "resnet101"):  # their blocks are wide
        return TinyTL(lite_residual=False)
    method = create_method(name)
    if isinstance(method, LowRankBackward):  # ResNet-18 has no other 1x1 layers with stride 1
        return LoRA() + method
    adds = isinstance(method, (ActivationPruning, FewBitBackward, SignedBackward))
    return TopBlocks(blocks=1) + method if adds else method
