"""The parts of stored weights, against plain loops."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from pocketune.supernet.sharing import leading, module_kernel, smaller_kernel


def test_smaller_kernels_are_made_one_of_the_other() -> None:
    stored = torch.randn(4, 1, 7, 7, dtype=torch.float64)
    matrices = {k: torch.randn(k * k, k * k, dtype=torch.float64) for k in (3, 5)}
    five, three = torch.zeros(4, 5, 5).double(), torch.zeros(4, 3, 3).double()
    for channel in range(4):
        taps = stored[channel, 0, 1:6, 1:6].reshape(25)
        five[channel] = (matrices[5] @ taps).view(5, 5)
        three[channel] = (matrices[3] @ five[channel, 1:4, 1:4].reshape(9)).view(3, 3)
    torch.testing.assert_close(smaller_kernel(stored, 5, matrices)[:, 0], five)
    torch.testing.assert_close(smaller_kernel(stored, 3, matrices)[:, 0], three)


def test_with_the_identity_a_smaller_kernel_is_the_center() -> None:
    stored = torch.randn(4, 1, 7, 7)
    matrices = {k: torch.eye(k * k) for k in (3, 5)}
    assert torch.equal(smaller_kernel(stored, 3, matrices), stored[:, :, 2:5, 2:5])


@pytest.mark.parametrize(("groups", "kernel"), [(2, 5), (2, 3), (4, 5), (4, 3), (8, 3)])
def test_modules_of_more_groups_connect_the_same_channels(groups: int, kernel: int) -> None:
    """The dense kernel of the smaller module is the larger one's, with fewer connections."""
    channels = 16
    stored = torch.randn(channels, channels // 2, 5, 5, dtype=torch.float64)
    cut = module_kernel(stored, torch.Size((channels, channels // groups, kernel, kernel)))
    dense, margin = torch.zeros(channels, channels, kernel, kernel).double(), (5 - kernel) // 2
    for out in range(channels):
        for into in range(channels):
            if out * groups // channels == into * groups // channels:
                taps = stored[out, into % (channels // 2)]
                dense[out, into] = taps[margin : margin + kernel, margin : margin + kernel]
    x = torch.randn(1, channels, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(F.conv2d(x, cut, groups=groups), F.conv2d(x, dense))


def test_statistics_stay_views() -> None:
    stored = torch.zeros(8)
    leading(stored, torch.Size((3,))).add_(1)
    assert stored.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
