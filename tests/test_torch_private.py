"""PyTorch's private names are used in one file, and still do what they are used for."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint

import pocketune
from pocketune.torch_private import (
    FUNCTIONAL_PAD,
    MADE_FOR,
    FakeTensorMode,
    backward_sequence_number,
    data_dependent_errors,
    gradient_transforms,
    in_transform,
    matrix_product,
    next_sequence_number,
    storage_address,
    uncheckpointed,
    version,
    without_dynamo,
)

SOURCE = Path(pocketune.__file__).parent
PRIVATE = re.compile(
    r"\btorch\._(?!ops\b|_version__)|\btorch\.(utils|fx|nn|autograd)\._|torch\.fx\.experimental"
    r"|torch\.ops\.(mkldnn|onednn)|\b_cdata\b|_sequence_nr|CheckpointFunction"
)


def test_no_other_file_uses_a_private_name():
    files = [path for path in SOURCE.rglob("*.py") if path.name != "torch_private.py"]
    found = [path.name for path in files if PRIVATE.search(path.read_text(encoding="utf-8"))]
    assert not found
    assert PRIVATE.search((SOURCE / "torch_private.py").read_text(encoding="utf-8"))


def test_the_file_is_read_again_with_each_release_of_pytorch():
    assert torch.__version__.split(".")[:2] == MADE_FOR.split(".")


def test_onednns_product_is_a_product():
    a, b = torch.randn(5, 7), torch.randn(7, 3)
    torch.testing.assert_close(matrix_product(a, b), a @ b)
    torch.testing.assert_close(matrix_product(a.double(), b.double()), a.double() @ b.double())


def test_transforms_are_counted():
    seen = []

    def look(x):
        seen.append((in_transform(), gradient_transforms()))
        return (x * x * x).sum()

    torch.func.grad(look)(torch.ones(2))
    torch.func.grad(lambda x: torch.func.grad(look)(x).sum())(torch.ones(2))
    torch.func.vmap(look)(torch.ones(2, 2))
    look(torch.ones(2))
    assert seen == [(True, 1), (True, 2), (True, 0), (False, 0)]


def test_a_backward_pass_has_the_numbers_of_its_forward_pass():
    seen = []
    x = torch.ones(3, requires_grad=True)
    before = next_sequence_number()
    y = x.exp()
    y.register_hook(lambda _: seen.append(backward_sequence_number()))
    z = y.sum()
    assert next_sequence_number() == before + 2
    assert backward_sequence_number() is None
    z.backward()
    assert seen == [before]


def test_storages_have_addresses_of_their_own_even_where_they_are_fake():
    with FakeTensorMode():
        x, y = torch.empty(3), torch.empty(3)
    assert storage_address(x.untyped_storage()) == storage_address(x.view(3, 1).untyped_storage())
    assert storage_address(x.untyped_storage()) != storage_address(y.untyped_storage())


def test_the_value_of_a_fake_tensor_raises_one_of_the_errors():
    with FakeTensorMode():
        x = torch.ones(())
        with pytest.raises(data_dependent_errors()):
            bool(x > 0)


def test_the_door_of_padding_is_what_a_function_mode_sees():
    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Watch():
        functional.pad(torch.ones(1, 1, 2, 2), (1, 1))
    assert {functional.pad, FUNCTIONAL_PAD} & {*seen}


def test_checkpoints_run_their_function_once_while_they_are_switched_off():
    calls = []

    def function(x):
        calls.append(len(calls))
        return nn.functional.relu(x)

    def gradient(reentrant):
        x = torch.randn(3, requires_grad=True)
        calls.clear()
        checkpoint.checkpoint(function, x, use_reentrant=reentrant).sum().backward()
        return len(calls)

    for reentrant in (True, False):
        with uncheckpointed():
            assert gradient(reentrant) == 1
        assert gradient(reentrant) == 2


def test_writing_into_a_tensor_gives_it_another_version():
    x = torch.zeros(2)
    before = version(x)
    assert version(x[:1].add_(1)) > before
    assert version(x) > before


@pytest.fixture
def unloaded(monkeypatch):
    """TorchDynamo as if nothing had loaded it yet."""
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    monkeypatch.delitem(vars(torch), "_dynamo", raising=False)


@pytest.mark.usefixtures("unloaded")
def test_operators_in_python_do_not_load_dynamo():
    def double(x):
        return 2 * x

    assert without_dynamo(torch._disable_dynamo(double), 3) == 6
    assert "torch._dynamo" not in sys.modules
    assert not vars(double)  # it will be told once TorchDynamo is loaded


@pytest.mark.usefixtures("unloaded")
def test_an_operator_that_needs_dynamo_runs_without_the_stand_in():
    def needs(x):
        if "torch._dynamo" in sys.modules:
            importlib.import_module("torch._dynamo.no_such_part")
        return x

    assert without_dynamo(needs, 3) == 3
    assert "torch._dynamo" not in sys.modules
