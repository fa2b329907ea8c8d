"""Finding the layer that makes the class scores."""

import pytest
import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.methods import GradientFilter, RepNet, adapt
from pocketune.networks import anatomy
from pocketune.networks.anatomy.output import classifier_layers, output_layer
from pocketune.weights import create_network

from ..names import EVERY_METHOD


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_of_every_network_it_is_the_last_of_the_classifier(name: str) -> None:
    with torch.device("meta"):
        network = create_network(name)
    assert output_layer(network) == anatomy(network).classifier[-1]
    assert classifier_layers(network) == anatomy(network).classifier


@pytest.mark.parametrize("method", [RepNet(), GradientFilter(layers=6)], ids=str)
@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilenet_v3_small"])
def test_of_adapted_networks(name: str, method: RepNet | GradientFilter) -> None:
    network = adapt(create_network(name, width=0.35), method)
    assert output_layer(network, 64) == anatomy(network).classifier[-1]


class Heads(nn.Module):
    """A network of one convolution; `mode` says what follows."""

    def __init__(self, mode: str, size: int | None = None) -> None:
        super().__init__()
        self.mode, self.size = mode, size
        self.output = nn.Linear(8, 3)
        self.body = nn.Conv2d(1, 8, 3)
        self.other = nn.Linear(8, 3)
        self.unused = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor | dict[str, Tensor]:
        if self.size not in (None, x.shape[-1]):
            raise ValueError(x.shape)
        x = self.body(x).mean((2, 3))
        y: Tensor = self.output(x)
        match self.mode:
            case "sum":
                return y + self.other(x)
            case "softmax":
                return y.log_softmax(1)
            case "dict":
                return {"logits": y}
            case "features":
                return {"logits": y, "features": x}
            case "beside":
                self.embedding = self.other(x)
            case "pooled":
                return x
        return y


@pytest.mark.parametrize("mode", ["plain", "softmax", "dict", "beside"])
@pytest.mark.parametrize("size", [None, 28, 96])
def test_where_other_layers_are_registered_after_it(mode: str, size: int | None) -> None:
    network = Heads(mode, size)
    assert output_layer(network) == "output"
    assert output_layer(network, size) == "output"


def test_frozen_and_without_gradients() -> None:
    network = Heads("plain").requires_grad_(False)
    with torch.inference_mode():
        assert output_layer(network) == "output"
    with torch.no_grad():
        assert output_layer(network) == "output"


def test_a_convolution() -> None:
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.AdaptiveAvgPool2d(1)]
    assert output_layer(nn.Sequential(*layers, nn.Flatten())) == "2"


def test_several_or_none_are_refused() -> None:
    with pytest.raises(PocketuneError, match="Heads are computed by output and other together"):
        output_layer(Heads("sum"))
    with pytest.raises(PocketuneError, match="Heads returns more than the class scores; wrap it"):
        output_layer(Heads("features"))
    with pytest.raises(PocketuneError, match="computed by no linear layer"):
        output_layer(nn.Sequential(nn.ReLU(), nn.Flatten()))
