"""Freezing parameters and statistics."""

import copy

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import FrozenBatchNorm2d, FrozenConv2d
from pocketune.layers.conv import Conv2d
from pocketune.methods import TopBlocks, adapt
from pocketune.surgery import (
    batch_norms,
    freeze_batch_norms,
    freeze_convolutions,
    parameters_under,
    separate_batch_norms,
    train_only,
)
from pocketune.weights import create_network


def network() -> nn.Sequential:
    block = nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Hardswish(inplace=True), block, nn.Flatten()
    )


def test_batch_norms_by_name() -> None:
    net = network()
    assert batch_norms(net) == {"1": net[1], "3.1": net[3][1]}


def test_frozen_norms_are_no_batch_norms() -> None:
    net = network()
    freeze_batch_norms(net, keep={"3.1"})
    assert list(batch_norms(net)) == ["3.1"]
    assert isinstance(net[1], FrozenBatchNorm2d)


def test_freezing_norms_keeps_order_and_names() -> None:
    net = network()
    before = list(net.state_dict())
    freeze_batch_norms(net, keep=())
    assert list(net.state_dict()) == [n for n in before if not n.endswith("num_batches_tracked")]
    assert [type(m) for m in net[3]] == [nn.Conv2d, FrozenBatchNorm2d, nn.ReLU]


def test_freezing_norms_keeps_the_function_of_evaluation() -> None:
    net = network().eval()
    x = torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        expected = net(x)
        freeze_batch_norms(net, keep=())
        torch.testing.assert_close(net(x), expected, rtol=1e-5, atol=1e-6)


def test_freezing_norms_keeps_training_mode() -> None:
    net = network()
    net[1].eval()
    freeze_batch_norms(net, keep=())
    assert not net[1].training
    assert net[3][1].training


def test_parameters_under_a_module_at_any_depth() -> None:
    net = network()
    assert parameters_under(net, ["3"]) == {"3.0.weight", "3.1.weight", "3.1.bias"}
    assert parameters_under(net, ["0", "3.1"]) == {"0.weight", "0.bias", "3.1.weight", "3.1.bias"}
    assert parameters_under(net, ["4"]) == frozenset()


def test_train_only_freezes_and_thaws() -> None:
    net = network()
    net[0].requires_grad_(False)
    train_only(net, {"0.bias", "3.1.weight"})
    assert {n for n, p in net.named_parameters() if p.requires_grad} == {"0.bias", "3.1.weight"}


def test_convolutions_with_a_trained_kernel_stay() -> None:
    net = network()
    train_only(net, {"0.bias", "3.0.weight"})
    freeze_convolutions(net)
    assert type(net[0]) is FrozenConv2d
    assert type(net[3][0]) is nn.Conv2d


def test_frozen_convolutions_pad_as_before() -> None:
    same = nn.Sequential(Conv2d(3, 4, 3, stride=2, same_padding=True).requires_grad_(False))
    x = torch.randn(2, 3, 7, 8)
    expected = same(x)
    freeze_convolutions(same)
    assert isinstance(same[0], FrozenConv2d)
    torch.testing.assert_close(same(x.requires_grad_()), expected)


def test_convolutions_that_pad_in_other_ways_stay() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.Conv2d(4, 4, 3, padding="same")
    )
    train_only(net, ())
    freeze_convolutions(net)
    assert [type(module) for module in net] == [nn.Conv2d, nn.Conv2d]


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"track_running_stats": False}])
def test_synchronized_norms_become_ordinary_ones(options: dict[str, bool]) -> None:
    net, x = network(), torch.randn(2, 3, 6, 6)
    net[1] = nn.BatchNorm2d(4, 1e-3, 0.3, **options)
    twin = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(net))
    twin[3].eval()
    before = twin.state_dict(keep_vars=True)
    separate_batch_norms(twin)
    assert [type(twin[1]), type(twin[3][1])] == [nn.BatchNorm2d] * 2
    assert all(twin.state_dict(keep_vars=True)[name] is value for name, value in before.items())
    assert [twin[1].training, twin[3][1].training] == [True, False]
    net[3].eval()
    assert torch.equal(twin(x), net(x))
    assert all(map(torch.equal, twin.state_dict().values(), net.state_dict().values()))


def test_synchronized_norms_are_frozen_as_others() -> None:
    plain = create_network("mobilenet_v2", width=0.35, classes=3)
    synchronized = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain))
    x, kinds, values = torch.randn(2, 3, 32, 32), [], []
    for net in (plain, synchronized):
        adapted = adapt(net, TopBlocks(blocks=1))
        kinds.append({name: type(module) for name, module in adapted.named_modules()})
        values.append(adapted.eval()(x))
    assert kinds[0] == kinds[1]
    assert torch.equal(*values)
    assert any(isinstance(module, nn.SyncBatchNorm) for module in synchronized.modules())


class NormAct(nn.SyncBatchNorm):
    """As timm's `SyncBatchNormAct`."""


def test_synchronized_norms_that_do_more_are_refused_by_name() -> None:
    net = network()
    net[3][1] = NormAct(4)
    with pytest.raises(PocketuneError, match=r"3\.1 is a NormAct, which cannot be frozen"):
        separate_batch_norms(net)
