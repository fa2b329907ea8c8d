"""Images that a network measures something on are checked first."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from pocketune.eager import calibrate
from pocketune.errors import PocketuneError
from pocketune.methods import LastLayer, adapt
from pocketune.networks.images import image_batches, require_images
from pocketune.surgery import prune
from pocketune.weights import create_network, estimate_batch_norm, restore_batch_norm

IMAGES = torch.randn(2, 3, 32, 32)
WRONG = {
    "one batch": (IMAGES, r"^batches is one batch of images; .* \[images\]"),
    "nothing": (None, "^batches is of type NoneType; give a list of batches"),
    "text": ("images", "^batches is of type str"),
    "a number": (3, "^batches is of type int"),
    "labels too": (
        [(IMAGES, torch.zeros(2))],
        r"^batch 0 of batches is a tuple; give the images alone, as in \[images for images, la",
    ),
    "numpy": ([IMAGES.numpy()], "^batch 0 of batches is an array of NumPy; .* torch.from_numpy"),
    "numbers": ([IMAGES, 3], r"^batch 1 of batches is of type int; give a float tensor \(N, 3"),
    "bytes": ([IMAGES.to(torch.uint8)], "^batch 0 of batches is uint8; give normalized floats"),
    "double": (
        [IMAGES.double()],
        r"^batch 0 of batches is float64, and the network float32; .* network\.float\(\)",
    ),
    "gray": ([IMAGES[:, :1]], r"has the shape \(2, 1, 32, 32\); give \(N, 3, H, W\)"),
    "no batch": ([IMAGES[0]], r"has the shape \(3, 32, 32\)"),
    "NaN": ([IMAGES, IMAGES * float("nan")], "^batch 1 of batches holds a value that is not fin"),
}


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return create_network("mobilenet_v2", width=0.1, classes=3)


@pytest.mark.parametrize("wrong", WRONG)
def test_batches(network: nn.Module, wrong: str) -> None:
    batches, message = WRONG[wrong]
    with pytest.raises(PocketuneError, match=message):
        list(image_batches(network, batches))


def test_batches_that_are_right(network: nn.Module) -> None:
    stacked = torch.stack([IMAGES, IMAGES])
    for right in ([IMAGES] * 2, stacked, IMAGES.split(1), iter([IMAGES, IMAGES])):
        assert all(
            torch.equal(batch[0], IMAGES[0]) for batch in [*image_batches(network, right)][:1]
        )
    gray = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.LazyLinear(2))
    require_images(gray, IMAGES[:, :1])
    require_images(network.to("meta"), IMAGES.to("meta"))


USERS: dict[str, Callable[[nn.Module, object], object]] = {
    "calibrate": lambda network, batches: calibrate(adapt(network, LastLayer()), batches),
    "estimate": estimate_batch_norm,
    "restore": restore_batch_norm,
    "prune": lambda network, batches: prune(network, {"features.2": 0.5}, batches=batches),
}


@pytest.mark.parametrize("wrong", [name for name in WRONG if name != "nothing"])
@pytest.mark.parametrize("user", USERS)
def test_who_checks_them_and_leaves_the_network_as_it_is(user: str, wrong: str) -> None:
    network = create_network("mobilenet_v2", width=0.1, classes=3)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    batches, message = WRONG[wrong]
    with pytest.raises(PocketuneError, match=message):
        USERS[user](network, batches)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("user", ["calibrate", "estimate", "restore"])
def test_maps_that_are_not_finite(user: str) -> None:
    """Finite images may be too large for a network."""
    network = create_network("resnet18", width=0.1, classes=3)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(PocketuneError, match=r"^the input of .*\d is not finite on these images"):
        USERS[user](network, [3e38 * IMAGES.sign()])
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_arrays_of_numpy_are_named_before_their_type() -> None:
    with pytest.raises(PocketuneError, match=r"^images is an array of NumPy"):
        require_images(nn.Linear(1, 1), np.zeros((1, 3, 2, 2), np.uint8))
