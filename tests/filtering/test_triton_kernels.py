"""The kernels of GPUs, interpreted on the CPU, compiled for GPUs, and run where there is one."""

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

from pocketune.filtering.patches import Patches, patch_mean, patch_spread

triton = pytest.importorskip("triton", reason="no Triton; pip install triton, on Linux")

axes = st.tuples(  # length, size, start, count
    st.integers(1, 12), st.integers(1, 9), st.integers(-9, 9), st.integers(1, 3)
)
formats = st.sampled_from([torch.contiguous_format, torch.channels_last])
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def load() -> ModuleType:
    """Load the kernels again: Triton decides as it decorates them whether they are interpreted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "pocketune.filtering.triton_kernels", raising=False)
        return importlib.import_module("pocketune.filtering.triton_kernels")


@pytest.fixture(scope="module")
def interpreted() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        yield load()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    return load()


@settings(max_examples=15)
@given(
    axes, axes, formats, st.sampled_from([None, 1, 6]), st.sampled_from([torch.float32, torch.half])
)
def test_pools_as_pytorch_does(
    interpreted: ModuleType,
    down: tuple[int, ...],
    across: tuple[int, ...],
    layout: torch.memory_format,
    divisor: int | None,
    dtype: torch.dtype,
) -> None:
    (height, *rows), (width, *columns) = down, across
    x = torch.randn(2, 2, height, width, dtype=dtype).contiguous(memory_format=layout)
    size, start, count = zip(rows, columns, strict=True)
    found = interpreted.pool(x, size, start, count, divisor)
    expected = patch_mean(x.double(), Patches(size, start, count), divisor)
    torch.testing.assert_close(found, expected.to(dtype))


@settings(max_examples=30)
@given(axes, axes, formats)
def test_spreads_as_pytorch_does(
    interpreted: ModuleType,
    down: tuple[int, ...],
    across: tuple[int, ...],
    layout: torch.memory_format,
) -> None:
    size, start, count = zip(down[1:], across[1:], strict=True)
    values = torch.randn(2, 2, *count).contiguous(memory_format=layout)
    found = interpreted.spread(values, size, start, (down[0], across[0]))
    expected = patch_spread(values, Patches(size, start, count), (down[0], across[0]))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_line_may_be_longer_than_a_block(
    interpreted: ModuleType, layout: torch.memory_format
) -> None:
    x = torch.randn(1, 40, 30, 90).contiguous(memory_format=layout)
    grid = Patches((2, 2), (0, 0), (15, 45))
    pooled = interpreted.pool(x, grid.size, grid.start, grid.count, None)
    torch.testing.assert_close(pooled, patch_mean(x, grid))
    spread = interpreted.spread(pooled, grid.size, grid.start, (30, 90))
    torch.testing.assert_close(spread, patch_spread(pooled, grid, (30, 90)))
    assert pooled.is_contiguous(memory_format=layout) and spread.stride() == x.stride()


def test_strided_and_empty_maps(interpreted: ModuleType) -> None:
    x = torch.randn(2, 6, 8, 8, dtype=torch.float64)[:, ::2, :, ::2]
    grid = Patches((3, 2), (-1, 0), (3, 2))
    found = interpreted.pool(x, grid.size, grid.start, grid.count, None)
    torch.testing.assert_close(found, patch_mean(x, grid))
    assert interpreted.pool(x[:0], grid.size, grid.start, grid.count, None).shape == (0, 3, 3, 2)


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("name", ["pool_kernel", "spread_kernel"])
@pytest.mark.parametrize("element", ["fp32", "fp16", "bf16", "fp64"])
@pytest.mark.parametrize("channels_last", [True, False])
def test_compiles_for_gpus(
    compiled: ModuleType, name: str, element: str, channels_last: bool
) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(compiled, name)
    constants = {"rows": 2, "columns": 2, "channels_last": channels_last, "block": 1024}
    if name == "pool_kernel":
        constants["divisor"] = 0
    types = {"x": f"*{element}", "y": f"*{element}"} | dict.fromkeys(constants, "constexpr")
    signature = {argument: types.get(argument, "i32") for argument in kernel.arg_names}
    source = ASTSource(kernel, signature, constexprs=constants)
    assert triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["cubin"]


def test_gpus_run_them() -> None:
    for name in ("patch_pool", "patch_spread"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"pocketune::{name}", "CUDA")


def test_tracing_for_a_gpu_needs_none() -> None:
    with FakeTensorMode():
        x = torch.empty(2, 3, 8, 8, device="cuda")
        assert patch_mean(x, Patches((3, 3), (-1, 0), (3, 3))).shape == (2, 3, 3, 3)
        assert patch_spread(x, Patches((3, 3), (-1, 0), (8, 8)), (20, 20)).shape == (2, 3, 20, 20)


@on_gpu
@settings(max_examples=60)
@given(axes, axes, formats)
def test_on_a_gpu(
    down: tuple[int, ...], across: tuple[int, ...], layout: torch.memory_format
) -> None:
    x = torch.randn(2, 3, down[0], across[0]).contiguous(memory_format=layout)
    grid = Patches(*zip(down[1:], across[1:], strict=True))
    pooled = patch_mean(x, grid)
    torch.testing.assert_close(patch_mean(x.cuda(), grid).cpu(), pooled)
    spread = patch_spread(pooled.cuda(), grid, x.shape[2:]).cpu()
    torch.testing.assert_close(spread, patch_spread(pooled, grid, x.shape[2:]))
