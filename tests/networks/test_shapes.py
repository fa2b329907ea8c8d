"""Memoized shapes are those that PyTorch finds, and the tensors that have them are new."""

import torch
from torch import Tensor, nn

from pocketune.networks.probe import probing
from pocketune.networks.shapes import RememberedShapes, meta
from pocketune.weights import create_network


def outputs(network: nn.Module, images: Tensor) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []

    def note(path: str, _: nn.Module, made: list[Tensor]) -> None:
        found.append((path, *((t.shape, t.stride(), t.dtype, t.requires_grad) for t in made)))

    with probing(network, leave=note, gradients=True):
        network(images)
    return found


def test_a_network_runs_on_the_same_shapes() -> None:
    network = create_network("mobilenet_v3_small", width=0.35).to("meta")
    for size in (64, 96, 64):
        images = torch.empty(2, 3, size, size, device="meta")
        expected = outputs(network, images)
        with RememberedShapes():
            assert outputs(network, images) == expected


def test_results_are_new_and_may_be_changed() -> None:
    x = torch.ones(3, device="meta", requires_grad=True)
    with RememberedShapes():
        first, second = x * 3, x * 3
        assert first is not second
        assert first.mul_(2) is first
        (gradient,) = torch.autograd.grad(first.sum(), x)
    assert gradient.shape == x.shape


def test_numbers_of_another_type_give_another_type() -> None:
    x = torch.ones(3, device="meta", dtype=torch.int64)
    with RememberedShapes():
        kinds = [(x * number).dtype for number in (1, 1.0, True)]
    assert kinds == [torch.int64, torch.float32, torch.int64]


def test_tensors_with_data_are_computed() -> None:
    with RememberedShapes():
        assert (torch.ones(2) + torch.ones(2)).tolist() == [2, 2]


def test_one_tensor_stands_for_all_of_its_shape() -> None:
    assert meta(torch.ones(2, 3)) is meta(torch.zeros(2, 3))
    assert meta(torch.ones(2, 3)) is not meta(torch.ones(3, 2).t())
    assert meta(torch.ones(2, 3)) is not meta(torch.ones(2, 3, dtype=torch.int64))


def test_constants_of_another_device_are_taken_by_their_shape() -> None:
    x = torch.empty(2, 3, device="meta", requires_grad=True)
    with RememberedShapes():
        shifted = x - torch.ones(3)
        shifted = shifted * 2
        shifted.mul_(torch.ones(3))
        (gradient,) = torch.autograd.grad(shifted.sum(), x)
        assert torch.ones(2).add(1).tolist() == [2, 2]
    assert shifted.is_meta
    assert gradient.shape == (2, 3)
