"""Sets of images with annotations, and the masks that are drawn from them."""

import json

import numpy as np
import pytest

WIDTH, HEIGHT = 24, 20  # of the images that the fixture `tree` writes


@pytest.fixture
def set_of(tree):
    """`set_of({"a.json": {...}}, "a.png", ...)`: files of annotations, images."""

    def write(files, *images):
        texts = {name: json.dumps(content) for name, content in files.items()}
        return tree({**{name: seed for seed, name in enumerate(images)}, **texts})

    return write


def masks_of(splits):
    """The masks of the training images, by the class of each pixel."""
    names = np.array([*splits.train.classes, "ignored"])
    found = [splits.train.label(i, WIDTH, HEIGHT) for i in range(len(splits.train))]
    return [names[np.minimum(each, len(names) - 1)] for each in found]
