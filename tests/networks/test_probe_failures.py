"""Whatever goes wrong inside a probe, the network is handed back as it was."""

from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from torch import Tensor, nn

from pocketune.networks.probe import input_shapes, probing, watch_inputs
from pocketune.networks.shapes import tensors


class Fails(nn.Module):
    """Raises while it runs, if it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.fails = True

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        if self.fails:
            raise ValueError("in the middle")
        return y


def network() -> nn.Sequential:
    """Modes differ from module to module."""
    made = nn.Sequential(nn.Linear(3, 3), Fails(), nn.Dropout(), nn.BatchNorm1d(3))
    made[2].eval()
    return made


def state(module: nn.Module) -> list[tuple[bool, int, int]]:
    """Mode and number of hooks of every module."""
    return [
        (part.training, len(part._forward_hooks), len(part._forward_pre_hooks))
        for part in module.modules()
    ]


def ignore(*_: object) -> None:
    """Takes what is shown and does nothing."""


def test_a_forward_pass_that_fails_leaves_no_hook_and_every_mode() -> None:
    model = network()
    before = state(model)
    with pytest.raises(ValueError, match="in the middle"), probing(model, enter=ignore):
        model(torch.zeros(2, 3))
    assert state(model) == before


@pytest.mark.parametrize("place", ["enter", "leave"])
def test_a_watcher_that_fails_leaves_no_hook_and_every_mode(place: str) -> None:
    def refuse(path: str, *_: object) -> None:
        raise LookupError(path)

    model = network()
    before = state(model)
    watch: dict[str, Callable[..., None]] = {place: refuse}
    path = "^0$" if place == "leave" else "^$"
    with pytest.raises(LookupError, match=path), probing(model, **watch):
        model(torch.zeros(2, 3))
    assert state(model) == before


def test_a_path_that_there_is_not_is_refused_before_a_hook_is_set() -> None:
    model = network()
    before = state(model)
    with pytest.raises(AttributeError, match="missing"), probing(model, paths=["0", "missing"]):
        pytest.fail("nothing is to run")
    assert state(model) == before


def test_autograd_s_own_setting_comes_back_after_a_failure() -> None:
    model, seen = network(), []

    def look(path: str, *_: object) -> None:
        seen.append(torch.is_grad_enabled())

    with torch.no_grad():
        with suppress(ValueError), probing(model, enter=look, gradients=True):
            model(torch.zeros(2, 3))
        assert not torch.is_grad_enabled()
    with suppress(ValueError), probing(model, enter=look):
        model(torch.zeros(2, 3))
    assert torch.is_grad_enabled()
    assert seen == [True] * 4 + [False] * 4


def test_a_probe_inside_a_probe_ends_alone() -> None:
    model = network()
    model[1].fails = False
    before, outer, inner = state(model), [], []
    with probing(model, paths=["0"], enter=lambda path, *_: outer.append(path)):
        with probing(model, paths=["0"], enter=lambda path, *_: inner.append(path)):
            model(torch.zeros(2, 3))
        assert not any(part.training for part in model.modules())
        model(torch.zeros(2, 3))
    assert (outer, inner) == (["0", "0"], ["0"])
    assert state(model) == before


def test_an_inner_probe_that_fails_leaves_the_outer_one_at_work() -> None:
    model, seen = network(), []
    before = state(model)
    with probing(model, leave=lambda path, *_: seen.append(path)):
        with pytest.raises(ValueError, match="middle"), probing(model, enter=ignore):
            model(torch.zeros(2, 3))
        assert seen == ["0", "1.inner"]
        model[1].fails = False
        model(torch.zeros(2, 3))
        assert seen[2:] == ["0", "1.inner", "1", "2", "3", ""]
    assert state(model) == before


def test_a_module_with_two_names_is_shown_once_a_call_under_the_first() -> None:
    shared = nn.Linear(3, 3)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    seen: list[str] = []
    with probing(model, enter=lambda path, *_: seen.append(path)):
        model(torch.zeros(2, 3))
    assert seen == ["", "0", "1", "0"]


def test_a_module_asked_for_by_both_its_names_is_shown_under_both() -> None:
    shared = nn.Linear(3, 3)
    model, seen = nn.Sequential(shared, nn.ReLU(), shared), []
    with probing(model, paths=["0", "2"], enter=lambda path, *_: seen.append(path)):
        model(torch.zeros(2, 3))
    assert seen == ["0", "2", "0", "2"]


def test_running_statistics_do_not_move_under_a_probe() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with probing(model):
        model(torch.randn(5, 3))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model[0].training


def test_what_is_watched_is_the_first_input_of_each_batch() -> None:
    model, seen = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), []
    batches = [torch.randn(4, 3), torch.randn(1, 3)]
    count = watch_inputs(model, batches, {"1": lambda x: seen.append(x)})
    assert count == 5
    with torch.no_grad():
        assert all(torch.equal(x, model[0](b)) for x, b in zip(seen, batches, strict=True))
    assert not any(x.requires_grad for x in seen)


def test_watching_no_batch_counts_none_and_takes_iterators() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    assert watch_inputs(model, iter(()), {"0": ignore}) == 0


def test_watching_that_fails_leaves_no_hook() -> None:
    model = network()
    before = state(model)
    with pytest.raises(ValueError, match="middle"):
        watch_inputs(model, [torch.zeros(1, 3)], {"3": ignore})
    assert state(model) == before


def test_shapes_are_those_of_the_modules_that_are_called() -> None:
    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Conv2d(3, 4, 3, stride=2), nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    model = Skips()
    assert input_shapes(model, ["used", "unused"], (2, 3, 9, 7)) == {"used": (2, 3, 9, 7)}
    assert model.used.weight.device.type == "cpu"


def test_shapes_of_a_module_that_runs_twice_are_those_of_its_last_call() -> None:
    pool = nn.MaxPool2d(2)
    assert input_shapes(nn.Sequential(pool, pool), ["0"], (1, 3, 8, 8)) == {"0": (1, 3, 4, 4)}


def test_tensors_are_found_in_nested_values_in_their_order() -> None:
    one, two, three = (torch.full((), float(i)) for i in range(3))
    found = tensors(([one, "text"], {"a": two, "b": (None, three)}, 5))
    assert [t.item() for t in found] == [0, 1, 2]
    assert tensors(None) == tensors("text") == []
