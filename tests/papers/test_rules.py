"""Rules are found by class, by likeness, by convention and its base."""

from __future__ import annotations

import pytest
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.papers import counts_as, trace_modules
from pocketune.papers.rules import Rules


class Wave(nn.Module):
    def forward(self, x):
        return x.sin()


class Scale(nn.Module):
    """Calls another module, and has a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.inner = nn.ReLU()
        self.weight = nn.Parameter(nn.Linear(1, 1).weight)

    def forward(self, x):
        return self.inner(x) * self.weight


class Silent(nn.Module):
    """Has a child that it never calls."""

    def __init__(self):
        super().__init__()
        self.inner = nn.ReLU()

    def forward(self, x):
        return x.relu()


def called(module):
    """The call of `module` itself."""
    return trace_modules(module, (3, 4, 4)).calls[-1]


def test_subclasses_inherit_and_their_own_rule_goes_before():
    class Derived(nn.ReLU):
        pass

    rules = Rules("mine")
    rules.rule(nn.ReLU)(lambda call: "relu")
    assert rules.find(called(Derived()))(None) == "relu"
    rules.rule(Derived)(lambda call: "derived")
    assert rules.find(called(Derived()))(None) == "derived"


def test_a_base_is_asked_where_the_convention_says_nothing():
    base = Rules("base")
    base.rule(nn.ReLU, nn.ReLU6)(lambda call: "base")
    mine = Rules("mine", base)
    mine.rule(nn.ReLU6)(lambda call: "mine")
    assert mine.find(called(nn.ReLU()))(None) == "base"
    assert mine.find(called(nn.ReLU6()))(None) == "mine"
    assert base.find(called(nn.ReLU6()))(None) == "base"


def test_a_layer_can_count_as_another_until_it_has_its_own_rule():
    class Ripple(Wave):
        pass

    counts_as(Ripple, nn.ReLU)
    rules = Rules("mine")
    rules.rule(nn.ReLU)(lambda call: "relu")
    assert rules.find(called(Ripple()))(None) == "relu"
    rules.rule(Ripple)(lambda call: "ripple")
    assert rules.find(called(Ripple()))(None) == "ripple"


def test_a_module_that_only_calls_others_needs_no_rule():
    assert Rules("mine").find(called(nn.Sequential(nn.ReLU()))) is None


@pytest.mark.parametrize("kind", [Wave, Scale, Silent])
def test_every_other_module_needs_one(kind):
    with pytest.raises(PocketuneError, match=f"mine has no rule for {kind.__name__} at the root"):
        Rules("mine").find(called(kind()))


def test_pooling_counts_as_nothing():
    rules = Rules("mine")
    rules.rule(nn.Identity)(lambda call: 0)
    for layer in (nn.AvgPool2d(2), nn.MaxPool2d(2), nn.Dropout(), nn.Flatten(), nn.Sequential()):
        assert rules.find(called(layer))(None) == 0


def test_a_class_has_one_rule_and_counts_as_one_other():
    class Foam(Wave):
        pass

    rules = Rules("mine")
    rules.rule(Foam)(lambda call: "foam")
    with pytest.raises(ValueError, match="mine has two rules for Foam"):
        rules.rule(Foam)(lambda call: "other")
    counts_as(Foam, nn.ReLU)
    with pytest.raises(ValueError, match="Foam counts as ReLU already"):
        counts_as(Foam, nn.ReLU6)
