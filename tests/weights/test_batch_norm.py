import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.methods import FullFineTune, LastLayer, adapt
from pocketune.weights import create_network, estimate_batch_norm, restore_batch_norm


def norms(network):
    return [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]


@pytest.fixture
def network():
    """Norms with nothing to them but a shift, as folded weights leave them."""
    network = (
        create_network("mobilenet_v2", width=0.1, classes=5, feature_fusion=False).double().eval()
    )
    for norm in norms(network):
        nn.init.normal_(norm.bias, 0.5, 0.5)
        norm.running_var.fill_(1 - norm.eps)
    return network


@pytest.fixture
def images():
    return torch.randn(24, 3, 40, 40, dtype=torch.float64)


def test_function_stays(network, images):
    before = network(images)
    assert restore_batch_norm(network, images.split(8)) is network
    torch.testing.assert_close(network(images), before, rtol=1e-9, atol=1e-9)


def test_statistics_are_those_of_all_images(network, images):
    """Uneven batches, yet mean and variance as if all images were one batch."""
    restore_batch_norm(network, images.split([5, 16, 3]))
    seen = {}
    for norm in norms(network):
        norm.register_forward_pre_hook(lambda norm, inputs: seen.update({norm: inputs[0]}))
    network(images)
    for norm in norms(network):
        variance, mean = torch.var_mean(seen[norm], (0, 2, 3), correction=0)
        torch.testing.assert_close(norm.running_mean, mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(norm.running_var, variance, rtol=1e-9, atol=1e-9)


def test_scale_and_shift_are_those_of_the_recipe(network, images):
    """On an identity with shift: scale = sqrt(v + eps), shift = m + bias."""
    stem = network.features[0]
    bias = stem[1].bias.detach().clone()
    restore_batch_norm(network, [images])
    variance, mean = torch.var_mean(stem[0](images), (0, 2, 3), correction=0)
    torch.testing.assert_close(stem[1].weight, torch.sqrt(variance + stem[1].eps))
    torch.testing.assert_close(stem[1].bias, mean + bias)


def test_training_now_sees_what_evaluation_saw(network, images):
    """On those images, batch statistics and running ones are the same thing."""
    expected = network(images)
    restore_batch_norm(network, [images])
    network.train()
    network.classifier.eval()
    torch.testing.assert_close(network(images), expected, rtol=1e-6, atol=1e-6)


def test_twice_is_once(network, images):
    restore_batch_norm(network, [images])
    once = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    restore_batch_norm(network, [images])
    torch.testing.assert_close(dict(network.state_dict()), once, rtol=1e-9, atol=1e-9)


def test_modes_gradients_and_hooks_are_left_as_they_were(network, images):
    network.features[3].train()
    modes = [module.training for module in network.modules()]
    restore_batch_norm(network, [images])
    assert [module.training for module in network.modules()] == modes
    assert all(parameter.grad_fn is None for parameter in network.parameters())
    assert not any(module._forward_pre_hooks for module in network.modules())


def test_a_norm_that_does_not_run_stays(network, images):
    network.unused = nn.BatchNorm2d(3)
    restore_batch_norm(network, [images])
    assert torch.equal(network.unused.running_var, torch.ones(3))


def test_without_images(network):
    with pytest.raises(PocketuneError, match="without images"):
        restore_batch_norm(network, [])


def test_estimated_statistics_are_those_of_batches_in_training(network, images):
    """Against a loop over batches of different sizes with the statistics of each."""
    seen = {norm: [] for norm in norms(network)}
    hooks = [
        norm.register_forward_pre_hook(lambda norm, given: seen[norm].append(given[0]))
        for norm in seen
    ]
    network.train()
    network.classifier.eval()
    weights = dict(network.named_parameters())
    before = {name: value.detach().clone() for name, value in weights.items()}
    for norm in seen:
        norm.momentum = 0.0
    parts = images.split([5, 16, 3])
    for part in parts:
        network(part)
    for hook in hooks:
        hook.remove()
    assert estimate_batch_norm(network.eval(), parts) is network
    for norm, inputs in seen.items():
        moments = [torch.var_mean(x, (0, 2, 3), correction=0) for x in inputs]
        variance, mean = (
            sum(len(x) / 24 * each[i] for x, each in zip(inputs, moments, strict=True))
            for i in range(2)
        )
        torch.testing.assert_close(norm.running_var, variance, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(norm.running_mean, mean, rtol=1e-9, atol=1e-9)
    assert not network.training
    assert all(torch.equal(value, before[name]) for name, value in weights.items())


def test_estimating_needs_images_and_norms(network):
    with pytest.raises(PocketuneError, match="cannot be estimated without images"):
        estimate_batch_norm(network, [])
    linear = nn.Linear(2, 2)
    assert estimate_batch_norm(linear, []) is linear


@pytest.mark.filterwarnings("ignore:.*folded")
@pytest.mark.parametrize("measure", [estimate_batch_norm, restore_batch_norm])
def test_frozen_norms_are_refused(network, images, measure):
    with pytest.raises(
        PocketuneError, match=r"batch norm features\.0\.1 is frozen; measure the sta"
    ):
        measure(adapt(network, LastLayer()), [images])
    trained = adapt(network, FullFineTune())
    assert measure(trained, [images]) is trained
    with pytest.raises(PocketuneError, match="must be a PyTorch module"):
        measure("mobilenet_v2", [images])
