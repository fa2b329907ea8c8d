"""The sizes of images that are tried."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pocketune.networks import anatomy
from pocketune.networks.anatomy.output import output_layer
from pocketune.networks.image_sizes import image_sizes

from ..compiler.token_networks import Block, Transformer


class Embedding(nn.Conv2d):
    """As timm's and torchvision's: it takes one size, which it names."""

    def __init__(self, named: dict[str, Any]) -> None:
        super().__init__(3, 12, 12, 12)
        for name, size in named.items():
            setattr(self, name, size)

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[2:] == (48, 48), "another size"
        return super().forward(x)


@pytest.mark.parametrize(
    "named", [{"img_size": (48, 48)}, {"image_size": 48}, {"img_size": None, "image_size": [48]}]
)
def test_a_size_that_a_module_names_is_tried_first(named: dict[str, Any]) -> None:
    network = Transformer(Block(), Block())
    network.patch_embed = Embedding(named)
    assert image_sizes(network)[:2] == (48, 224)
    assert output_layer(network) == "head"
    assert [block.name for block in anatomy(network).blocks] == ["blocks.0", "blocks.1"]


@pytest.mark.parametrize("size", [(48, 32), (), None, True, 0, "48", torch.ones(2), nn.ReLU()])
def test_other_attributes_of_these_names_say_nothing(size: Any) -> None:
    network = nn.Sequential(nn.ReLU())
    network[0].img_size = size
    assert image_sizes(network)[0] == 224
    assert len(set(image_sizes(network))) == len(image_sizes(network))
