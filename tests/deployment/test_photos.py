"""Photos of an export: any will do, and they are seen as the model sees them."""

from pathlib import Path

import numpy as np
from PIL import Image

from pocketune.deployment.photos import photos_for, sampled_images
from pocketune.device.use.model import Model

from ..device.pixel_kit import CLASSES, write_exact_model


def test_a_model_of_masks_sees_whole_photos_without_masks(tmp_path: Path) -> None:
    pixels = np.zeros((16, 48, 3), np.uint8)
    pixels[:, :16], pixels[:, -16:] = 200, 100
    (tmp_path / "photos").mkdir()
    Image.fromarray(pixels).save(tmp_path / "photos" / "0.png")
    write_exact_model(tmp_path / "run")
    model = Model.open(tmp_path / "run")
    assert model.classes == CLASSES
    train, val = photos_for(model, tmp_path / "photos", needed=True)
    assert train is val is not None
    images = sampled_images(train, model, 1, least=1)
    assert {100, 200} <= set(images.ravel().tolist())  # both ends, not the black middle alone
