"""Weights published in 8 bits: a file made here, and the public ones."""

import json

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from safetensors.torch import load_file

from pocketune.authoring import build_kit
from pocketune.eager import calibrate
from pocketune.errors import PocketuneError
from pocketune.kit.manifest import Quantization
from pocketune.layers import QuantizedConv2d, Uint8, round_to_int8
from pocketune.methods import LastLayer, MobileTL, adapt
from pocketune.networks import Normalization, about, anatomy
from pocketune.surgery import prune
from pocketune.weights import create_network, load_network, save_network
from pocketune.weights.formats.folded import places

OPTIONS = {"name": "mcunet_5fps", "classes": 6}
FACTS = {"input": {"range": "x = pixel/127.5 - 1"}, "stages": []}
PUBLIC = [  # name, what it is, side of its images
    ("mbv2-w0.35", {"name": "mobilenet_v2", "width": 0.35}, 128),
    ("proxyless-w0.3", {"name": "proxylessnas_mobile", "width": 0.3}, 128),
    ("mcunet-5fps", {"name": "mcunet_5fps"}, 128),
    ("mbv2-w1.0", {"name": "mobilenet_v2", "padding": "same"}, 224),
]


@pytest.fixture
def arrays():
    """Of a random network, with the formats of its maps made up."""
    body = anatomy(network := create_network(**OPTIONS))
    convs = {name: network.get_submodule(layer.conv).weight for name, layer in places(body)}
    convs["classifier"] = network.classifier[0].weight[:, :, None, None]
    found = {}
    for number, (name, weight) in enumerate(convs.items()):
        whole, scale = round_to_int8(weight)
        found[f"{name}.weight_q"], found[f"{name}.w_scale"] = whole.numpy(), scale.numpy()
        found[f"{name}.bias_q"] = np.arange(len(whole), dtype=np.int32) - 5
        found[f"{name}.io"] = np.array([0.02 + number / 1000, number - 20, 0.02, -128])
    return found


@pytest.fixture
def file(arrays, tmp_path):
    path = tmp_path / "tiny.int8.npz"
    np.savez(path, **arrays)
    (tmp_path / "tiny.arch.json").write_text(json.dumps(FACTS))
    return path


def test_whole_numbers_scales_and_formats_are_the_files(file, arrays):
    network = create_network(**OPTIONS, weights=file)
    assert about(network).normalization == Normalization.HALF
    for name, layer in places(anatomy(network)):
        conv, norm = network.get_submodule(layer.conv), network.get_submodule(layer.norm)
        assert type(conv) is QuantizedConv2d
        assert np.array_equal(conv.weight_int8, arrays[f"{name}.weight_q"])
        assert np.array_equal(conv.weight_scale, arrays[f"{name}.w_scale"])
        scale, zero = arrays[f"{name}.io"][:2]
        assert conv.input_format == Uint8(scale, zero + 128)
        bias = arrays[f"{name}.bias_q"] * arrays[f"{name}.w_scale"] * scale
        np.testing.assert_allclose(norm.bias.detach(), bias, rtol=1e-6)


def test_without_a_description_says_which_file_is_missing(file):
    file.with_name("tiny.arch.json").unlink()
    with pytest.raises(
        PocketuneError, match=r"tiny\.int8\.npz does not say .*: put the tiny\.arch\.json that"
    ):
        create_network(**OPTIONS, weights=file)


def test_what_is_trained_starts_from_float_and_the_rest_stays_int8(file):
    network = create_network(**OPTIONS, weights=file)
    with pytest.warns(UserWarning, match="folded in the weights, such as"):
        adapted = adapt(network, MobileTL(blocks=2))
    top = tuple(f"{block.name}." for block in anatomy(network).blocks[-2:])
    for layer in anatomy(network).layers:
        before, after = network.get_submodule(layer.conv), adapted.get_submodule(layer.conv)
        if layer.conv.startswith(top):
            assert torch.equal(after.weight, before.kernel())
            assert after.weight.requires_grad
        else:
            assert torch.equal(after.weight_int8, before.weight_int8)
            assert after.input_format == before.input_format
    trained = {name for name, p in adapted.named_parameters() if p.requires_grad}
    plain = adapt(create_network(**OPTIONS), MobileTL(blocks=2))
    assert trained == {name for name, p in plain.named_parameters() if p.requires_grad}
    x = torch.randn(2, 3, 40, 40)
    torch.testing.assert_close(adapted.eval()(x), network.eval()(x))


def test_stays_in_8_bits_whatever_the_method_does_by_itself(file):
    network = create_network(**OPTIONS, weights=file)
    assert LastLayer().frozen_bits == 32
    assert about(adapt(network, LastLayer())).frozen_bits == 8


def test_all_of_it_in_float_if_that_is_asked_for(file):
    network = create_network(**OPTIONS, weights=file)
    adapted = adapt(network, LastLayer(), frozen_bits=32)
    assert not any(isinstance(module, QuantizedConv2d) for module in adapted.modules())
    x = torch.randn(2, 3, 40, 40)
    torch.testing.assert_close(adapted.eval()(x), network.eval()(x))


def test_the_published_formats_calibrate_it(file):
    adapted = adapt(create_network(**OPTIONS, weights=file), LastLayer())
    calibrated = calibrate(adapted)
    for name in (layer.conv for layer in anatomy(adapted).layers):
        known = adapted.get_submodule(name).input_format
        assert calibrated.get_submodule(name).input_format == known
    with pytest.raises(PocketuneError, match="came without ranges"):
        calibrate(adapt(create_network(**OPTIONS), LastLayer()))


def test_it_is_saved_in_float(file, tmp_path):
    network = create_network(**OPTIONS, weights=file).eval()
    save_network(network, tmp_path / "again.safetensors")
    images = torch.randn(2, 3, 32, 32)
    again = load_network(tmp_path / "again.safetensors").eval()
    torch.testing.assert_close(again(images), network(images))


def test_what_needs_float_weights_is_refused(file):
    network = create_network(**OPTIONS, weights=file)
    block = anatomy(network).blocks[3].name
    with pytest.raises(PocketuneError, match=r"block .* cannot be pruned.*stored in 8 bits"):
        prune(network, {block: 0.5}, importance="weight")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"stem.w_scale": np.ones(3, np.float32)},
            r"8-bit weights .* is damaged: .*stem has",
        ),
        ({"stem.weight_q": np.ones((16, 3, 3, 3), np.int16)}, r"stem has int16"),
        ({"stem.weight_q": np.ones((8, 3, 3, 3), np.int8)}, r"stem has int8"),
        ({"blocks.0.dw.weight_q": None}, r"it lacks blocks\.0\.dw"),
        ({"stem.io": None}, r"is damaged"),
    ],
)
def test_files_that_do_not_fit(change, message, arrays, tmp_path):
    path = tmp_path / "broken.int8.npz"
    left = {name: value for name, value in (arrays | change).items() if value is not None}
    np.savez(path, **left)
    with pytest.raises(PocketuneError, match=message):
        create_network(**OPTIONS, weights=path, normalization=Normalization.HALF)


def test_files_that_are_none(tmp_path):
    path = tmp_path / "broken.npz"
    with pytest.raises(PocketuneError, match="there is no weights file"):
        create_network(**OPTIONS, weights=path)
    for content in (b"", b"PK no archive"):
        path.write_bytes(content)
        with pytest.raises(PocketuneError, match="is damaged"):
            create_network(**OPTIONS, weights=path)
    np.savez_compressed(path, **{"stem.weight_q": np.ones(64, np.int8)})
    content = bytearray(path.read_bytes())
    start = content.index(b"stem.weight_q.npy") + len("stem.weight_q.npy")
    content[start : start + 40] = b"\xff" * 40  # no deflate
    path.write_bytes(content)
    with pytest.raises(PocketuneError, match="is damaged"):
        create_network(**OPTIONS, weights=path)
    np.savez(path, other=np.ones(2))
    with pytest.raises(PocketuneError, match=r"has no '\.weight_q'"):
        create_network(**OPTIONS, weights=path)


@pytest.fixture(params=PUBLIC, ids=lambda public: public[0])
def public(request, shared_data):
    """A public network from its int8 file, eight images, and the results that came with them."""
    name, options, size = request.param
    folder = shared_data / "weights"
    network = create_network(**options, weights=folder / f"{name}.int8.npz").eval()
    with np.load(folder / "reference_outputs.npz") as arrays:
        results = {key: arrays[key] for key in arrays if key.startswith(f"{name}.")}
        pixels = arrays[f"images_{size}"].transpose(0, 3, 1, 2).astype(np.float32)
    return network, pixels, {k.removeprefix(f"{name}."): v for k, v in results.items()}


def test_public_networks_compute_their_float_logits(public):
    network, pixels, results = public
    with torch.no_grad():
        logits = network(torch.from_numpy(pixels / 127.5 - 1))
    torch.testing.assert_close(logits, torch.from_numpy(results["float_logits"]), rtol=0, atol=5e-5)


def test_public_networks_compute_with_integers(public):
    """Nearer to the published integer arithmetic than float is; sums and pooling are float here."""
    network, pixels, results = public
    if "int8_logits" not in results:
        pytest.skip("no logits were published")
    integers = calibrate(adapt(network, LastLayer())).eval()
    with torch.no_grad():
        logits = integers(torch.from_numpy(np.round(pixels - 127.5) * np.float32(2 / 255))).numpy()
    exact, floats = results["int8_logits"], results["float_logits"]
    assert np.linalg.norm(logits - exact) < 0.85 * np.linalg.norm(floats - exact)


def test_a_kit_holds_the_same_whole_numbers(file, arrays, tmp_path):
    """The method does not ask for 8 bits; the weights came in them."""
    kit = build_kit(
        tmp_path / "kit",
        network="mcunet_5fps",
        method=LastLayer(),
        weights=str(file),
        size=32,
        batch=2,
        save_network=tmp_path / "network.safetensors",
    )
    assert kit.manifest.quantization == Quantization(activations=32)
    model = onnx.load(kit.path / "features.onnx")
    stored = {numpy_helper.to_array(tensor).tobytes() for tensor in model.graph.initializer}
    assert arrays["blocks.3.dw.weight_q"].tobytes() in stored
    values = load_file(tmp_path / "network.safetensors")
    assert values["features.1.conv.0.0.weight_int8"].dtype == torch.int8
