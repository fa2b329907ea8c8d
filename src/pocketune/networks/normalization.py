"""From pixels to what a network takes."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Normalization:
    """Pixels in [0, 1] become `(pixel - mean) / std`, channel by channel (red, green, blue)."""

    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    IMAGENET: ClassVar["Normalization"]
    HALF: ClassVar["Normalization"]

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 (N, H, W, 3) to normalized float32 (N, 3, H, W), on the device of the images."""
        # by rows of the picture: a runtime works fast along the last axis, if it has more than 3
        width, device = images.shape[2], images.device
        scale = torch.tensor([1 / (255 * s) for s in self.std], device=device).repeat(width)
        shift = torch.tensor(
            [-m / s for m, s in zip(self.mean, self.std, strict=True)], device=device
        ).repeat(width)
        rows = images.flatten(2).float() * scale + shift
        return rows.view_as(images).permute(0, 3, 1, 2)


Normalization.IMAGENET = Normalization()
Normalization.HALF = Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
