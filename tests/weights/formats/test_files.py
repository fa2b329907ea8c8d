"""Weights files: they are read, and tensors loaded by name."""

import pickle

import pytest
import torch
from safetensors.torch import save_file

from pocketune.errors import PocketuneError
from pocketune.weights import create_network
from pocketune.weights.formats.files import read_state

OPTIONS = {"name": "mobilenet_v2", "width": 0.1, "feature_fusion": False}


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(5)
    return create_network(**OPTIONS, classes=4).eval()


@pytest.fixture(params=["weights.safetensors", "weights.pth", "weights.pt"])
def file(request, trained, tmp_path):
    path = tmp_path / request.param
    save = save_file if path.suffix == ".safetensors" else torch.save
    save(trained.state_dict(), path)
    return path


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_same_function(file, trained, kind):
    network = create_network(**OPTIONS, classes=4, weights=kind(file)).eval()
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(network(images), trained(images))


def test_other_classes_get_a_new_output_layer(file, trained):
    network = create_network(**OPTIONS, classes=9, weights=file).eval()
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(network.features(images), trained.features(images))
    output = network.classifier[-1]
    assert output.weight.shape[0] == 9
    assert not output.bias.any()


def test_a_state_dict_itself(trained):
    network = create_network(**OPTIONS, classes=4, weights=trained.state_dict()).eval()
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(network(images), trained(images))
    with pytest.raises(PocketuneError, match="the given state dict holds no state dict"):
        create_network(**OPTIONS, weights={})
    with pytest.raises(PocketuneError, match="the given state dict does not fit the network"):
        create_network("resnet18", width=0.1, weights=trained.state_dict())


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "model."])
@pytest.mark.parametrize("wrapper", ["state_dict", "model"])
def test_a_training_scripts_checkpoint(trained, tmp_path, wrapper, prefix):
    state = {f"{prefix}{name}": tensor for name, tensor in trained.state_dict().items()}
    torch.save({wrapper: state, "epoch": 3}, tmp_path / "checkpoint.ckpt")
    loaded = read_state(tmp_path / "checkpoint.ckpt")
    assert loaded.keys() == trained.state_dict().keys()


def test_counters_may_be_missing(trained, tmp_path):
    """Files older than 2018 have no `num_batches_tracked`."""
    state = {k: v for k, v in trained.state_dict().items() if not k.endswith("tracked")}
    save_file(state, tmp_path / "old.safetensors")
    network = create_network(**OPTIONS, classes=4, weights=tmp_path / "old.safetensors").eval()
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(network(images), trained(images))


def test_no_code_is_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    (tmp_path / "trap.pth").write_bytes(pickle.dumps({"weight": Trap()}, protocol=2))
    with pytest.raises(PocketuneError, match=r"trap\.pth cannot be read as a state dict"):
        read_state(tmp_path / "trap.pth")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["cut.safetensors", "cut.pth"])
def test_damaged(trained, tmp_path, name):
    path = tmp_path / name
    save = save_file if path.suffix == ".safetensors" else torch.save
    save(trained.state_dict(), path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(PocketuneError, match=rf"{name} (is damaged|cannot be read)"):
        create_network(**OPTIONS, weights=path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x02h\x07."], ids=repr)
def test_no_pickle(tmp_path, content):
    (tmp_path / "text.pth").write_bytes(content)
    with pytest.raises(PocketuneError, match=r"text\.pth cannot be read as a state dict"):
        read_state(tmp_path / "text.pth")


@pytest.mark.parametrize(
    "content", [{}, {"epoch": 3}, [1, 2], {"state_dict": {"a": 1}}, {0: torch.ones(1)}], ids=repr
)
def test_without_tensors(tmp_path, content):
    torch.save(content, tmp_path / "empty.pth")
    with pytest.raises(PocketuneError, match="holds no state dict"):
        read_state(tmp_path / "empty.pth")


def test_missing_and_unknown_files(tmp_path):
    with pytest.raises(PocketuneError, match="there is no weights file image-net"):
        create_network("resnet18", weights="image-net")
    (tmp_path / "weights.h5").touch()
    with pytest.raises(PocketuneError, match=r"weights\.h5 is not"):
        create_network("resnet18", weights=tmp_path / "weights.h5")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0.35}, r"features\.0\.0\.weight has shape \(8, 3, 3, 3\) there and \(16, "),
        ({"feature_fusion": True}, r"it lacks features\.18\.0\.weight \(5 names missing"),
        ({"name": "mobilenet_v3_small", "feature_fusion": False}, "it lacks features"),
    ],
)
def test_the_first_mismatch_is_named(file, options, message):
    with pytest.raises(PocketuneError, match=message):
        create_network(**{**OPTIONS, "classes": 4, **options}, weights=file)


def test_what_is_left_over_is_named(trained, tmp_path):
    save_file({**trained.state_dict(), "ema.decay": torch.ones(1)}, tmp_path / "more.safetensors")
    with pytest.raises(PocketuneError, match=r"more\.safetensors .* ema\.decay is not in the"):
        create_network(**OPTIONS, classes=4, weights=tmp_path / "more.safetensors")
