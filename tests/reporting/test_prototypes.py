"""Photos that are nearer to the mean of another class."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketune.reporting.prototypes import find_strays


def plain(embeddings, classes):
    """Nearest class and doubt of each photo, with every mean taken anew in float64."""
    nearest, doubts = [], []
    for i, (point, own) in enumerate(zip(embeddings, classes, strict=True)):
        distances = {}
        for each in sorted(set(classes.tolist())):
            members = [j for j in range(len(classes)) if classes[j] == each and j != i]
            if members:
                distances[each] = np.linalg.norm(point - embeddings[members].mean(axis=0))
        others = {c: d for c, d in distances.items() if c != own}
        if own not in distances or not others:
            nearest.append(own)
            doubts.append(0.0)
            continue
        other = min(others, key=others.get)
        doubts.append(distances[own] / others[other])
        nearest.append(other if doubts[-1] > 1 else own)
    return nearest, doubts


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(3, 25))
def test_distances_are_those_to_means_without_the_photo_itself(seed, kinds, images):
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, kinds, images)
    embeddings = rng.normal(size=(images, 4)) + classes[:, None]
    nearest, doubts = plain(embeddings, classes)
    found = find_strays(embeddings.astype(np.float64), classes)
    np.testing.assert_allclose(found.doubt, doubts, rtol=1e-6, atol=1e-9)
    assert found.nearest.tolist() == nearest


def test_a_photo_with_a_wrong_label_strays():
    points = np.array([[0, 0], [0, 1], [1, 0], [9, 9], [9, 8], [8, 9], [8, 8]], np.float32)
    found = find_strays(points, np.array([0, 0, 0, 1, 1, 1, 0]))
    assert found.nearest.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert np.flatnonzero(found.doubt > 1).tolist() == [6]


def test_a_photo_in_two_class_folders_strays():
    points = np.array([[0.0, 0], [0.1, 0], [5, 5], [5, 5]], np.float32)
    found = find_strays(points, np.array([0, 0, 0, 1]))
    assert found.nearest.tolist() == [0, 0, 1, 1]
    assert found.doubt[2] == np.inf and found.doubt[3] == 0


def test_the_only_photo_of_a_class_and_the_only_class_are_not_judged():
    points = np.array([[0.0], [5.0], [5.1]], np.float32)
    assert find_strays(points, np.array([0, 1, 1])).doubt[0] == 0
    assert find_strays(points, np.zeros(3, np.int64)).doubt.tolist() == pytest.approx([0, 0, 0])
