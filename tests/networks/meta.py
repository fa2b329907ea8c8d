"""Networks on the meta device: shapes and numbers of parameters, without the values."""

from typing import Any

import torch
from torch import nn

from pocketune.weights import create_network


def on_meta(name: str, **options: Any) -> nn.Module:
    with torch.device("meta"):
        return create_network(name, **options)
