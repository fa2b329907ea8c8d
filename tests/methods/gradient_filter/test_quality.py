"""Signal-to-noise ratio of filtered gradients, and energy of kernels in their sums."""

import copy
import csv
import io
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from math import inf
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.methods import GradientFilter, adapt, dc_energy, dc_ratio, gradient_snr
from pocketune.networks.anatomy.modules import is_depthwise
from pocketune.surgery import quantize_frozen
from pocketune.weights import create_network

SIZE = 64


def network() -> nn.Module:
    return create_network("mobilenet_v2", width=0.35, classes=4)


def noise(images: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(images, 3, SIZE, SIZE, generator=generator)
    return pixels, torch.arange(images) % 4


def test_labels_of_pixels() -> None:
    """The plain reference: the exact gradient of one kernel, from the resized logits."""
    torch.manual_seed(0)
    original = create_network("fcn", width=0.1, head_channels=8, classes=4).eval()
    images, labels = noise(2)[0], torch.randint(0, 4, (2, SIZE, SIZE), dtype=torch.uint8)
    labels[:, :9] = 255
    layers = ("decode_head.conv_cat.0",)
    (found,) = gradient_snr(original, GradientFilter(2, layers=layers), images, labels)
    gradients = []
    for patches in ({}, {layers[0]: 2}):
        adapted = adapt(original, GradientFilter(patches, layers=layers)).eval()
        logits = functional.interpolate(adapted(images), (SIZE, SIZE), mode="bilinear")
        functional.cross_entropy(logits, labels.long(), ignore_index=255).backward()
        gradients.append(adapted.get_submodule(layers[0]).weight.grad)
    exact, filtered = gradients
    ratio = exact.square().sum() / (filtered - exact).square().sum()
    assert found.kernel == pytest.approx(10 * ratio.log10().item(), abs=0.01)


def test_patches_of_one_pixel_lose_nothing_in_1x1_convolutions() -> None:
    (snr,) = gradient_snr(network(), GradientFilter(1, layers=1), *noise())
    assert snr.layer == "features.18.0"
    assert snr.arriving == inf
    assert snr.passed_on is None  # nothing before it is trained
    assert snr.kernel > 100  # but for rounding


def test_goes_from_the_classifier_down_and_leaves_the_network_as_it_is() -> None:
    original = network()
    before = {name: tensor.clone() for name, tensor in original.state_dict().items()}
    found = gradient_snr(original, GradientFilter(2, layers=3), *noise())
    assert [snr.layer for snr in found] == [
        "features.18.0",
        "features.17.conv.2",
        "features.17.conv.1.0",
    ]
    assert found[0].arriving == inf
    assert found[1].arriving < inf
    assert [snr.passed_on is None for snr in found] == [False, False, True]
    assert original.training
    assert all(torch.equal(t, before[name]) for name, t in original.state_dict().items())
    assert all(parameter.requires_grad for parameter in original.parameters())


def test_larger_patches_are_noisier() -> None:
    ratios = [
        gradient_snr(network(), GradientFilter(patch, layers=2), *noise())[1].kernel
        for patch in (1, 2)
    ]
    assert ratios[0] > ratios[1]


def test_says_what_it_found() -> None:
    first, last = gradient_snr(network(), GradientFilter(1, layers=2), *noise())
    assert str(first).startswith("features.18.0: inf dB arrive, ")
    assert "pass on; kernel " in str(first)
    assert "pass on" not in str(last)


def test_refuses_a_filter_that_names_no_layers() -> None:
    with pytest.raises(PocketuneError, match="names no layers; give their number"):
        gradient_snr(network(), GradientFilter(layers="trained"), *noise())


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_where_gradients_are_off(off: Callable[[], AbstractContextManager[None]]) -> None:
    torch.manual_seed(0)
    original, method = network(), GradientFilter(2, layers=2)
    expected = gradient_snr(original, method, *noise())
    with off():
        assert gradient_snr(original, method, *noise()) == expected


def test_refuses_an_adapted_network() -> None:
    adapted = adapt(network(), GradientFilter(layers=2))
    with pytest.raises(PocketuneError, match=r"is adapted to GradientFilter.*original network"):
        gradient_snr(adapted, GradientFilter(layers=2), *noise())


@pytest.mark.parametrize("count", [0, 3])
def test_refuses_no_images_or_other_labels(count: int) -> None:
    images, labels = noise()
    with pytest.raises(PocketuneError, match=f"there are {count} images and"):
        gradient_snr(
            network(), GradientFilter(layers=2), images[:count], labels[: 2 if count else 0]
        )


def test_energy_of_kernels_by_hand() -> None:
    layers = nn.Sequential(nn.Conv2d(1, 2, 2, bias=False), nn.Conv2d(2, 3, 1))
    layers[0].weight.data = torch.tensor([[[[1.0, 1], [1, 1]]], [[[1.0, -1], [2, 0]]]])
    assert dc_energy(layers) == {"0": pytest.approx((16 + 4) / (4 * (4 + 6))), "1": 1.0}


def test_energy_is_that_of_the_fourier_transform() -> None:
    conv = nn.Conv2d(3, 4, (3, 5))
    spectrum = torch.fft.fft2(conv.weight.detach().double()).abs().square()
    expected = (spectrum[:, :, 0, 0].sum() / spectrum.sum()).item()
    assert dc_energy(nn.Sequential(conv))["0"] == pytest.approx(expected)


def test_a_kernel_of_zeros_has_nothing_beside_its_sum() -> None:
    conv = nn.Conv2d(1, 1, 3)
    nn.init.zeros_(conv.weight)
    assert dc_energy(nn.Sequential(conv)) == {"0": 1.0}


def test_ratio_of_kernels_by_hand() -> None:
    layers = nn.Sequential(nn.Conv2d(1, 2, 2, bias=False), nn.Conv2d(2, 3, 1))
    layers[0].weight.data = torch.tensor([[[[1.0, 1], [1, 1]]], [[[1.0, -1], [2, 0]]]])
    # transforms (4, 0, 0, 0) and (2, 4, -2, 0)
    assert dc_ratio(layers) == {"0": pytest.approx((16 + 4) / (0 + 16)), "1": inf}


def test_a_constant_kernel_has_no_other_component() -> None:
    conv = nn.Conv2d(1, 1, 3)
    nn.init.ones_(conv.weight)
    assert dc_ratio(nn.Sequential(conv))["0"] > 1e12


def test_kernels_of_int8_are_seen_in_float() -> None:
    original = network()
    stored = copy.deepcopy(original).requires_grad_(False)
    quantize_frozen(stored)
    assert dc_energy(stored) == pytest.approx(dc_energy(original), abs=0.01)
    (snr,) = gradient_snr(stored, GradientFilter(1, layers=1), *noise())
    assert snr.kernel > 100


# ---- the paper's claims, on pretrained networks and real photos


PUBLIC = [  # with the share of their depthwise kernels' energy that is in the sums
    ("mbv2-w0.35", {"name": "mobilenet_v2", "width": 0.35, "feature_fusion": False}, 0.198),
    ("mcunet-5fps", {"name": "mcunet_5fps"}, 0.165),
]


def photos(folder: Path, size: int, count: int) -> tuple[Tensor, Tensor]:
    """Real photos of ImageNet's validation set with their classes."""
    with zipfile.ZipFile(folder / "imagenet" / "imagenette10_160.zip") as archive:
        rows = list(csv.DictReader(io.StringIO(archive.read("labels.csv").decode())))
        rows = [row for row in rows if "test" in row["file"]][:: 500 // count][:count]
        pictures = [Image.open(io.BytesIO(archive.read(row["file"]))) for row in rows]
    pixels = np.stack([np.asarray(p.convert("RGB").resize((size, size))) for p in pictures])
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 127.5 - 1
    return images, torch.tensor([int(row["label"]) for row in rows])


@pytest.mark.parametrize(("file", "options", "energy"), PUBLIC, ids=[row[0] for row in PUBLIC])
def test_filtering_leaves_a_signal_in_real_gradients(
    file: str, options: dict, energy: float, shared_data: Path
) -> None:
    """Little of the energy of these networks' depthwise kernels is in their sums (table 5)."""
    weights = shared_data / "weights" / f"{file}.float32.safetensors"
    pretrained = create_network(**options, weights=weights)
    images, labels = photos(shared_data, 128, 16)
    shares = dc_energy(pretrained)
    depthwise = [n for n in shares if is_depthwise(pretrained.get_submodule(n))]
    assert mean(shares[name] for name in depthwise) == pytest.approx(energy, abs=0.001)
    found = gradient_snr(pretrained, GradientFilter(2, layers=4), images, labels)
    assert all(snr.kernel > 0 for snr in found if shares[snr.layer] == pytest.approx(1))


def test_named_layers_are_told_as_the_gradient_passes_them() -> None:
    names = ("features.18.0", "features.17.conv.2")
    found = gradient_snr(network(), GradientFilter(2, layers=names), *noise())
    assert tuple(snr.layer for snr in found) == names


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (noise()[0].numpy(), noise()[1], "^images is an array of NumPy"),
        (noise()[0][:, :1], noise()[1], r"^images has the shape \(4, 1, 64, 64\)"),
        (noise()[0], [0, 1, 2, 3], "^labels is of type list; give a tensor of classes"),
        (noise()[0], torch.zeros(4), r"^labels is float32 of the shape \(4,\); give whole numbers"),
        (noise()[0], torch.tensor([0, 1, 4, 0]), "^the label 4 is not one of the network's 4 clas"),
        (noise()[0], torch.tensor([0, 1, -1, 0]), "^the label -1 .*; give 0 to 3"),
    ],
)
def test_images_and_labels_of_another_kind(images: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        gradient_snr(network(), GradientFilter(2, layers=1), images, labels)
