"""TinyTL's formulas for its three phases give its printed figures."""

import pytest

from pocketune.papers.search_cost import Macs, phase_macs, predictor_macs

SMALLEST = Macs(355_062_000, 776_092_000)
LARGEST = Macs(1_181_790_000, 2_509_894_000)


def test_the_phases_on_flowers():
    found = phase_macs(SMALLEST, LARGEST, Macs(1, 2_190_000_000), photos=2040, predictions=50_100)
    assert found.adaptation == pytest.approx(134.07e12, rel=1e-4)
    assert found.measurement == pytest.approx(156.76e12, rel=1e-4)
    assert found.fine_tuning == pytest.approx(223.38e12, rel=1e-4)
    assert found.prediction == pytest.approx(18.6e9, rel=1e-2)


def test_the_predictor_has_0_37_million():
    assert predictor_macs(127) == 371_200
    assert 370_800 <= predictor_macs(126) <= predictor_macs(128) <= 371_600
