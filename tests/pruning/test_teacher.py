"""Following the blocks of a teacher."""

import pytest
import torch

from pocketune.methods import TinyTL
from pocketune.networks import anatomy
from pocketune.pruning.teacher import Blocks
from pocketune.surgery import prune
from pocketune.weights import create_network

from ..networks.names import EVERY_METHOD


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        *((name, False) for name in EVERY_METHOD if name != "resnet101"),
        ("mobilenet_v2", True),
    ],
)
def test_the_start_of_a_network_gives_the_maps_of_its_blocks(name, modules):
    torch.manual_seed(0)
    width = 1.0 if name == "mcunet_5fps" else 0.35
    teacher = create_network(name, classes=3, width=width).eval()
    if modules:
        teacher = TinyTL().insert_modules(teacher).eval()
    names = [block.name for block in anatomy(teacher).blocks]
    ratios = dict.fromkeys((names[1], names[4]), 0.5)
    pruned = prune(teacher, ratios, importance="weight").eval()

    expected = []
    for path in ratios:
        pruned.get_submodule(path).register_forward_hook(lambda *seen: expected.append(seen[-1]))
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        pruned(images)
        maps = list(expected)
        objective = Blocks(pruned, teacher)
        found = objective.model(images)
        assert len(found) == len(maps) == 2
        assert all(map(torch.equal, found, maps))
        assert objective.loss(found, images, torch.zeros(2)) > 0
        assert objective.loss(objective.teacher(images), images, torch.zeros(2)) == 0


def test_a_network_whose_norms_have_changed_follows_all_blocks():
    """And the feature fusion layer, but not the classifier, which any photos may see."""
    teacher = create_network("mobilenet_v2", width=0.1, classes=3).eval()
    network = create_network(
        "mobilenet_v2", width=0.1, weights=teacher, classes=3, norm="group", standardized=True
    )
    objective = Blocks(network, teacher)
    images = torch.randn(2, 3, 32, 32)
    maps = objective.model(images)
    assert [m.shape for m in maps] == [m.shape for m in objective.teacher(images)]
    assert len(maps) == len(anatomy(network).blocks) + 1
    assert torch.equal(maps[-1], network.features(images))
    objective.loss(maps, images, torch.zeros(2)).backward()
    untrained = {name for name, p in network.named_parameters() if p.grad is None}
    assert untrained == {"classifier.1.weight", "classifier.1.bias"}
