"""Counting what is trained."""

from torch import nn

from pocketune.methods import TrainableCount, trainable


def test_counts_parameters_and_not_statistics() -> None:
    network = nn.Sequential(nn.Linear(10, 5), nn.BatchNorm1d(5))
    network[0].requires_grad_(False)
    assert trainable(network) == TrainableCount(trained=10, total=65)


def test_reads_as_a_sentence() -> None:
    text = str(TrainableCount(trained=1_695_972, total=2_927_612))
    assert text == "1,695,972 of 2,927,612 parameters are trained (57.93%)"
