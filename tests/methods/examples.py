"""One method of every name, as it fits a network."""

from pocketune.methods import (
    ActivationPruning,
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
    adds = isinstance(method, (ActivationPruning, SignedBackward))
    return TopBlocks(blocks=1) + method if adds else method
