"""Networks that no kit can be made of are refused, with what to change."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pocketune.compiler import compile
from pocketune.errors import PocketuneError
from pocketune.methods import FullFineTune, LastLayer, Method, adapt, create_method

from .networks import BATCH, CLASSES, SIZE, tiny


def refuse(network: nn.Module, method: Method, tmp_path: Path, message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        compile(adapt(network, method), tmp_path / "kit", batch=BATCH, size=SIZE)


class ThreeDimensions(nn.Module):
    """A convolution along the channels as well."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(1, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x[:, None])[:, 0]
        return y


def test_the_module_of_an_operator_that_a_kit_does_not_have_is_named(tmp_path: Path) -> None:
    network = tiny()
    network.pool = nn.Sequential(ThreeDimensions(), network.pool)
    refuse(network, FullFineTune(), tmp_path, r"module 'pool\.0\.conv': only convolutions of")


class Recurrent(nn.Module):
    """A recurrent layer over the pixels of a map."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layer = nn.GRU(channels, channels, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x.flatten(2).mT)[0].mT[..., None]
        return y


@pytest.mark.parametrize("method", [LastLayer(), FullFineTune()], ids=str)
def test_a_recurrent_layer_is_named(method: Method, tmp_path: Path) -> None:
    network = tiny()
    network.pool = nn.Sequential(Recurrent(network.classifier.in_features), network.pool)
    refuse(network, method, tmp_path, r"module 'pool\.0\.layer': ")


class Mixing(nn.Module):
    """A function of the features of all images, before the output layer."""

    def __init__(self, mix: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.stem, self.head, self.mix = nn.Conv2d(3, 4, 4, 4), nn.Linear(4, 3), mix

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.mix(self.stem(x).mean((2, 3))))
        return scores


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: x.softmax(0),
        lambda x: x - x.mean(0),
        lambda x: x + 2 * x[:1],
        lambda x: x.cumsum(0),
        lambda x: 3 * x if len(x) > 1 else x,
    ],
    ids=["softmax", "mean", "first", "sums", "number"],
)
@pytest.mark.parametrize("method", [LastLayer(), FullFineTune()], ids=str)
def test_images_that_depend_on_one_another_are_refused(
    mix: Callable[[Tensor], Tensor], method: Method, tmp_path: Path
) -> None:
    refuse(Mixing(mix), method, tmp_path, "prediction for an image depends on the other images")


def test_a_number_of_images_in_a_constant_is_no_wrong_step(tmp_path: Path) -> None:
    """The prediction is wrong as well, for the number of images in the trace is another one."""
    network = Mixing(lambda x: x / x.std())
    refuse(network, FullFineTune(), tmp_path, "prediction for an image depends on the other images")


@pytest.mark.parametrize("method", [LastLayer(), FullFineTune()], ids=str)
def test_a_loop_over_the_images_is_refused(method: Method, tmp_path: Path) -> None:
    network = Mixing(lambda x: torch.stack([2 * each for each in x]))
    refuse(network, method, tmp_path, "single images are taken out of their batch")


class OwnStatistics(nn.Module):
    """Updates buffers that are no norm's."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.batch_norm(x, self.mean, self.variance, training=self.training)


def test_a_type_that_an_operator_does_not_take_is_named(tmp_path: Path) -> None:
    network = Mixing(lambda x: x * torch.logical_or(x > 0, x.topk(4, 1)[1]))
    said = r"Mixing computes with a type .* float\(\) first \(Type 'tensor\(int64\)' .*\)$"
    refuse(network, FullFineTune(), tmp_path, said)


def test_what_becomes_no_kit_is_said_of_the_network(tmp_path: Path) -> None:
    network = tiny()
    network.pool = nn.Sequential(OwnStatistics(), network.pool)
    refuse(network, FullFineTune(), tmp_path, "became a graph that does not run, as if its forw")


@pytest.mark.parametrize("method", ["blocks", "mobiletl", "tinytl", "repnet", "gradfilter"])
def test_methods_that_need_blocks_say_which_do_not(method: str) -> None:
    pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES))
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), *pooled)
    with pytest.raises(PocketuneError, match=r"LastLayer, .* need no blocks"):
        adapt(network, create_method(method))


def test_statistics_of_a_single_value_need_another_image(tmp_path: Path) -> None:
    network = tiny()
    network.pool = nn.Sequential(network.pool, nn.BatchNorm2d(4))
    with pytest.raises(PocketuneError, match=r"'pool\.1': Expected more .*; give a batch of 2 or"):
        compile(adapt(network, FullFineTune()), tmp_path / "kit", batch=1, size=SIZE)


def test_what_no_score_depends_on_is_named(tmp_path: Path) -> None:
    network = tiny()
    network.unused = nn.Linear(4, 7)
    said = r"2 parameters are trained, .* for name in \['unused.weight', 'unused.bias'\]: network"
    refuse(network, LastLayer(), tmp_path, said)
    network = tiny()
    network.token = nn.Parameter(torch.zeros(4))
    refuse(network, FullFineTune(), tmp_path, r"token is trained, .*get_parameter\('token'\)")


def test_a_norm_that_counts_batches_is_named(tmp_path: Path) -> None:
    network = tiny()
    network.stem[1] = nn.BatchNorm2d(4, momentum=None)
    refuse(network, FullFineTune(), tmp_path, "batch norm stem.1 has momentum=None")
