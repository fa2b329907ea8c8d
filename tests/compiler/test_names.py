"""Names of tensors that are added to a finished graph."""

import pytest
from torch import nn

from pocketune.compiler.names import derived


def test_no_network_has_a_tensor_of_that_name() -> None:
    assert derived("conv", "again") == "conv..again"
    net = nn.Module()
    for name in ("", "conv."):
        with pytest.raises(KeyError):
            net.add_module(name, nn.Linear(1, 1))
        with pytest.raises(KeyError):
            net.register_parameter(name, None)
