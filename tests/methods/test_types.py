"""Networks in other floats than float32."""

import pytest
import torch

from pocketune.accounting import account
from pocketune.methods import FullFineTune, LastLayer, LoRA, TopBlocks, adapt, trainable
from pocketune.networks import anatomy
from pocketune.networks.anatomy.output import output_layer

from ..networks.small import small_mobilenet
from ..networks.tiny import tiny


@pytest.mark.filterwarnings("error:.*folded")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("mobilenet", torch.float64),
        ("mobilenet", torch.bfloat16),
        ("vit_tiny", torch.float64),
        ("fastvit_t8", torch.bfloat16),
    ],
    ids=str,
)
def test_other_floats(name: str, dtype: torch.dtype) -> None:
    """Also where a network is run to find its blocks or its output layer."""
    network = small_mobilenet() if name == "mobilenet" else tiny(name)
    expected = anatomy(network), output_layer(network)
    network.to(dtype)
    assert (anatomy(network), output_layer(network)) == expected
    others = (LastLayer(), FullFineTune()) if name == "mobilenet" else ()
    for method in (LoRA(rank=2), TopBlocks(1), *others):
        adapted = adapt(network, method)
        adapted(torch.randn(2, 3, 32, 32, dtype=dtype)).float().square().sum().backward()
        assert trainable(adapted).trained
        assert account(adapted, batch=2, size=32).kept_bytes
