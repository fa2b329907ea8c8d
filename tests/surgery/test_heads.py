"""One output layer with a bias."""

import copy

import pytest
import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.methods import LastLayer, TopBlocks, adapt, final_plan
from pocketune.networks.anatomy.output import output_layer
from pocketune.surgery import settle_output

from ..networks import modern


class NormLinear(nn.Module):
    """The head of LeViT and RepViT."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.bn, self.drop = nn.BatchNorm1d(inputs), nn.Dropout(0.5)
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bn.running_mean.uniform_(-1, 1)
        self.bn.running_var.uniform_(0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.drop(self.bn(x)))


class Distilled(nn.Module):
    """Two heads in a module of their own; `mode` says what becomes of their scores."""

    def __init__(self, mode: str, head: type[nn.Module] = NormLinear) -> None:
        super().__init__()
        self.mode = mode
        self.head_dist, self.head = head(16, 3), head(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        a = self.head(x)
        b = self.head_dist(x.relu() if self.mode.startswith("different") else x)
        match self.mode:
            case "sum":
                return a + b
            case "stacked" | "different, stacked":
                return torch.stack([a, b]).mean(0)
            case "different, relu":
                return torch.stack([a.relu(), b]).mean(0)
            case "relu":
                return (a.relu() + b) / 2
        return (a + b) / 2


def network(mode: str = "mean", head: type[nn.Module] = NormLinear) -> nn.Sequential:
    torch.manual_seed(0)
    made = modern.repvgg()
    made[-1] = Distilled(mode, head)
    return made


def images() -> Tensor:
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("head", [NormLinear, nn.Linear])
@pytest.mark.parametrize("mode", ["mean", "stacked"])
def test_averaged_heads_become_one_linear_layer(mode: str, head: type[nn.Module]) -> None:
    original = network(mode, head).double()
    joined = copy.deepcopy(original)
    settle_output(joined)
    assert output_layer(joined) == "4.head"
    assert type(joined[4].head) is nn.Linear
    assert not [*joined[4].head_dist.parameters()]
    torch.testing.assert_close(joined.eval()(images().double()), original.eval()(images().double()))


def test_copies_of_the_joined_heads_are_of_their_own() -> None:
    joined = network().eval()
    settle_output(joined)
    other = copy.deepcopy(joined)
    nn.init.zeros_(other[4].head.weight)
    nn.init.ones_(other[4].head.bias)
    torch.testing.assert_close(other(images()), torch.ones(3, 3))
    assert not torch.allclose(joined(images()), torch.ones(3, 3))


@pytest.mark.parametrize("mode", ["sum", "relu", "different, relu"])
def test_heads_whose_average_is_something_else_stay(mode: str) -> None:
    original = network(mode)
    before = [name for name, _ in original.named_modules()]
    settle_output(original)
    assert [name for name, _ in original.named_modules()] == before
    with pytest.raises(PocketuneError, match=r"computed by 4\.head.* together"):
        output_layer(original)


class Pairs(nn.Module):
    """Two lists of heads; the lists themselves are never called."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(16, 3) for _ in range(2))
        self.heads_dist = nn.ModuleList(nn.Linear(16, 3) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([head(x) for head in (*self.heads, *self.heads_dist)]).mean(0)


def test_heads_in_lists_stay() -> None:
    original = modern.repvgg()
    original[-1] = Pairs()
    settle_output(original)
    assert type(original[-1].heads[0]) is nn.Linear
    with pytest.raises(PocketuneError, match=r"computed by 4\.heads\.0 .* together"):
        output_layer(original)


@pytest.mark.parametrize("head", [NormLinear, nn.Linear])
@pytest.mark.parametrize("mode", ["different", "different, stacked"])
def test_heads_on_different_embeddings_become_one_layer_on_both(
    mode: str, head: type[nn.Module]
) -> None:
    original = network(mode, head).double()
    joined = copy.deepcopy(original)
    settle_output(joined)
    assert output_layer(joined) == "4.head_dist.linear"
    assert joined[4].head_dist.linear.weight.shape == (3, 32)
    assert not [*joined[4].head.parameters()]
    torch.testing.assert_close(joined.eval()(images().double()), original.eval()(images().double()))


def test_the_layer_on_both_embeddings_is_trained_with_the_gradients_of_both_heads() -> None:
    original = network("different", nn.Linear)
    adapted = adapt(original, LastLayer())
    trained = {name: p for name, p in adapted.named_parameters() if p.requires_grad}
    assert [*trained] == ["4.head_dist.linear.weight", "4.head_dist.linear.bias"]
    adapted.eval()(images()).square().sum().backward()
    original.eval()(images()).square().sum().backward()
    both = torch.cat([original[4].head.weight.grad, original[4].head_dist.weight.grad], 1)
    weight, bias = (parameter.grad for parameter in trained.values())
    torch.testing.assert_close(weight, 2 * both)  # a head's scores count half
    torch.testing.assert_close(bias, 2 * original[4].head.bias.grad)


def test_the_joined_head_is_trained() -> None:
    original = network()
    adapted = adapt(original, LastLayer())
    trained = {name for name, p in adapted.named_parameters() if p.requires_grad}
    assert trained == {"4.head.weight", "4.head.bias"}
    adapted.train()(images())[:, 0].sum().backward()
    assert adapted[4].head.bias.grad.tolist() == [3, 0, 0]
    assert "4.head_dist.linear.weight" in original.state_dict()


@pytest.mark.parametrize(
    ("mode", "output"), [("mean", "4.head"), ("different", "4.head_dist.linear")]
)
def test_on_the_meta_device(mode: str, output: str) -> None:
    with torch.device("meta"):
        joined = modern.repvgg()
        joined[-1] = Distilled(mode, nn.Linear)
    settle_output(joined)
    assert output_layer(joined) == output


@pytest.mark.parametrize("convolution", [True, False])
def test_an_output_layer_without_a_bias_gets_zeros(convolution: bool) -> None:
    original = modern.convnext()
    if convolution:
        original = nn.Sequential(*original[:2], nn.Conv2d(16, 3, 1, bias=False), *original[2:4])
        path = "2"
    else:
        original[-1] = nn.Linear(16, 3, bias=False)
        path = "4"
    adapted = adapt(original, TopBlocks(1))
    assert adapted.get_parameter(f"{path}.bias").requires_grad
    assert original.get_submodule(path).bias is None
    torch.testing.assert_close(adapted.eval()(images()), original.eval()(images()))
    assert f"{path}.weight" in final_plan(TopBlocks(1), original).trained
